#pragma once
// An Isolator without a kernel: sandboxes are eventfds and log files. What a real one would keep
// over a restart of the daemon (which ids are alive) lives in FakeWorld.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "server/node/isolator.h"

namespace talon::test {

struct FakeWorld {
  std::mutex mutex;
  std::set<std::string> alive;   // sandbox ids whose "init" lives
  std::set<std::string> marked;  // those whose init was told of a pause
  std::set<std::string> frozen;
  std::vector<isolate::ExecSpec> execs;
  std::vector<isolate::SandboxSpec> created;
};

class FakeSandbox final : public isolate::Sandbox {
 public:
  FakeSandbox(std::shared_ptr<FakeWorld> world, isolate::Identity identity, DirFd logs);

  const isolate::Identity& identity() const override { return identity_; }
  int init_fd() const override { return init_.get(); }
  int pid_fd() const override { return pid_.get(); }
  int event_fd() const override { return event_.get(); }
  const isolate::CgroupApplied& limits() const override { return limits_; }
  const std::vector<isolate::StepTime>& step_times() const override { return steps_; }
  Result<std::uint64_t> exec(const isolate::ExecSpec& spec) override;
  Result<std::uint64_t> send_stdin(std::string_view px, std::uint64_t offset,
                                   std::string_view bytes, bool close) override;
  Result<std::uint64_t> signal(std::string_view px, int number, wire::Scope scope) override;
  Result<std::uint64_t> end_exec(std::string_view px, std::chrono::milliseconds grace) override;
  Result<std::uint64_t> resize(std::string_view px, std::uint16_t, std::uint16_t) override;
  Result<> flow(std::string_view, std::uint64_t) override { return {}; }
  Result<std::uint64_t> mark(bool paused) override;
  Result<> freeze(bool frozen, std::chrono::milliseconds deadline) override;
  bool paused() const override;
  Result<std::optional<isolate::Event>> receive() override;
  Result<> kill(std::chrono::milliseconds deadline) override;
  Result<> remove() override;
  Result<isolate::CgroupStats> stats() const override;

  std::optional<int> init_status() const override { return init_status_; }

  // init ends by itself; `status` as of waitpid, if it is known.
  void die(std::optional<int> status = std::nullopt);

 private:
  struct Log {
    std::uint64_t seq = 0;
    std::uint64_t offset = 0;
  };
  void append(const std::string& px, wire::Kind kind, std::string_view payload);
  void finish(const std::string& px, int code, int signal);
  void post(isolate::Event event);
  void journal(wire::Record type, const std::string& px, std::uint64_t value,
               const wire::ExitInfo& info);

  std::shared_ptr<FakeWorld> world_;
  isolate::Identity identity_;
  DirFd logs_;
  UniqueFd init_;
  UniqueFd pid_;
  UniqueFd event_;
  isolate::CgroupApplied limits_;
  std::vector<isolate::StepTime> steps_;
  std::deque<isolate::Event> queue_;
  std::optional<int> init_status_;
  std::map<std::string, Log> hanging_;
  std::map<std::string, Log> written_;
  std::uint64_t next_request_ = 1;
};

class FakeIsolator final : public server::node::Isolator {
 public:
  FakeIsolator(std::shared_ptr<FakeWorld> world, std::string data_dir);

  std::string_view tier() const override { return "namespace"; }
  const isolate::HostFacts& host() const override { return facts; }
  std::string cgroup_path() const override { return ""; }
  Result<> check_limits(const isolate::Limits& limits) const override;
  Result<std::unique_ptr<isolate::Sandbox>> create(const isolate::SandboxSpec& spec,
                                                   const isolate::SandboxDirs& dirs) override;
  Result<std::unique_ptr<isolate::Sandbox>> adopt(const isolate::Identity& identity) override;
  std::vector<std::string> sweep(const std::vector<std::string>& keep) override;
  isolate::Launcher::Counters counters() const override { return {}; }

  isolate::HostFacts facts;
  std::optional<Error> fail_create;          // what the next creates answer
  std::function<void()> during_create;       // runs on the pool thread
  std::map<std::string, FakeSandbox*> live;  // by id; owned by the node
  std::vector<std::string> kept;             // what the last sweep was told to keep

 private:
  std::shared_ptr<FakeWorld> world_;
  std::string data_dir_;
};

}  // namespace talon::test
