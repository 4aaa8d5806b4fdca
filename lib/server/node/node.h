#pragma once
// The node: every sandbox of this daemon. Rows first, then the act, then the row again; the
// reconcile at start settles what a dead daemon left half done, in both directions. What can be
// cleaned up later is (trash/, reaper). All of it runs on the I/O thread; what blocks goes
// through Offload.
//
// Every function takes a tenant: another tenant's id is not_found, like an unknown one. A
// deleted sandbox is `gone` from everything but row().

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/metrics.h"
#include "isolate/image/image.h"
#include "server/async/task.h"
#include "server/node/actor.h"
#include "server/node/dirs.h"
#include "server/node/isolator.h"
#include "server/node/log_stream.h"
#include "server/node/types.h"
#include "store/store.h"

namespace talon::server::node {

struct NodeParts {
  Executor ex;
  Offload* offload = nullptr;
  store::Store* store = nullptr;
  Isolator* isolator = nullptr;
  isolate::ImageStore* images = nullptr;
  Metrics* metrics = nullptr;
  const DataDir* data = nullptr;
};

struct NodeConfig {
  bool unconfined_seccomp = false;
  // The most sandboxes that may be alive: from RLIMIT_NOFILE (decision 12).
  std::size_t max_sandboxes = 1000;
};

struct SandboxStats {
  store::SandboxRow row;
  isolate::CgroupStats cgroup;
  std::size_t live_execs = 0;
};

class Node {
 public:
  Node(NodeParts parts, NodeConfig config);
  ~Node();

  // Reconciles, then starts the reaper and the life timers. Before it nothing else is called.
  Task<> start();
  // Streams that follow a log or events end where they are: the daemon is about to stop, and a
  // cursor goes on with the next one.
  void end_streams();
  // Ends every sandbox if asked to; else leaves them running for the next daemon to adopt.
  Task<> stop(bool end_sandboxes);

  // Checks, writes the row, starts the work; returns the row in `creating`.
  Task<store::SandboxRow> create(CreateRequest request);
  // The row once it has left `creating`; timeout with the state in Error::field.
  Task<store::SandboxRow> settled(std::string tenant, std::string id, Millis deadline);
  // Also failed, deleting and deleted ones.
  Task<store::SandboxRow> row(std::string tenant, std::string id);
  Task<store::SandboxPage> list(store::SandboxFilter filter);
  Task<store::SandboxRow> patch(std::string tenant, std::string id, PatchRequest request);
  // Idempotent. Returns when the processes are gone and the id is retired.
  Task<> remove(std::string tenant, std::string id, Certificate why);
  Task<store::SandboxRow> stop_sandbox(std::string tenant, std::string id, Certificate why);
  Task<store::SandboxRow> start_sandbox(std::string tenant, std::string id);
  Task<SandboxStats> stats(std::string tenant, std::string id);

  Task<std::vector<store::EventRow>> events(std::string tenant, std::string id, std::int64_t after,
                                            int limit);
  // For `follow`: the actor, or null when the sandbox is deleted.
  ActorPtr actor(std::string_view tenant, std::string_view id) const;

  // Processes.
  struct Started {
    ActorPtr actor;
    ExecPtr exec;
  };
  Task<Started> spawn(std::string tenant, std::string id, ExecRequest request);
  // unavailable when the daemon stops first: the exec goes on, the next daemon has its result.
  Task<> wait_exit(ActorPtr actor, ExecPtr exec);
  struct Found {
    ActorPtr actor;
    ExecPtr exec;  // null when it has left memory
    store::ExecRow row;
  };
  Task<Found> exec(std::string tenant, std::string id, std::string px);
  Task<store::ExecPage> execs(std::string tenant, std::string id, std::string after, int limit);
  Task<> signal_exec(std::string tenant, std::string id, std::string px, int number,
                     wire::Scope scope);
  Task<> end_exec(std::string tenant, std::string id, std::string px, Millis grace);
  // Sends as much as the process takes within `wait`; the offset after the accepted bytes.
  struct StdinResult {
    std::uint64_t accepted = 0;
    bool closed = false;
  };
  Task<StdinResult> feed_stdin(std::string tenant, std::string id, std::string px,
                               std::optional<std::uint64_t> offset, std::string bytes, bool close,
                               Millis wait);
  LogStream log(const Found& found, isolate::Cursor from, Follow follow) const;

  // For /metrics and /v1/host.
  std::vector<std::size_t> count_by_state() const;
  Isolator& isolator() const { return *parts_.isolator; }
  const NodeConfig& config() const { return config_; }
  const DataDir& data() const { return *parts_.data; }
  bool reserve_present() const { return reserve_; }
  // ENOSPC anywhere gives the disk reserve up (decision 24).
  void note(const Error& error);

 private:
  struct Made;
  Task<> run_create(ActorPtr actor, SandboxWish wish, bool restart);
  std::function<Result<Made>()> creation_job(const ActorPtr& actor, const SandboxWish& wish) const;
  Task<> fail_create(ActorPtr actor, Error error);
  Task<> settle_dead(ActorPtr actor, std::string detail);
  // Ends the processes and gives back what the kernel holds; the actor has no live sandbox then.
  Task<> end_live(ActorPtr actor);
  Task<> read_journal(ActorPtr actor);
  Task<> save(ActorPtr actor, std::string event, std::string data_json);
  void write_exec(const ExecPtr& exec);
  Task<ActorPtr> alive(std::string tenant, std::string id);
  Task<ActorPtr> running(std::string tenant, std::string id);
  Actor::Hooks hooks();

  // reconcile.cpp
  Task<> reconcile();
  Task<> reconcile_row(store::SandboxRow row, std::vector<std::string>& keep);
  Task<> adopt(ActorPtr actor, std::unique_ptr<isolate::Sandbox> sandbox);
  Task<> finish_delete(store::SandboxRow row, Certificate why);
  Task<> sweep_directories();
  Task<> reaper();
  Task<> life_timer();

  NodeParts parts_;
  NodeConfig config_;
  std::unique_ptr<TaskGroup> group_;
  std::unordered_map<std::string, ActorPtr> actors_;
  Notifier trash_;
  bool reserve_ = true;
  bool stopping_ = false;
};

}  // namespace talon::server::node
