#pragma once
// talon-init alone: the embedded ELF in a pid namespace of its own, with descriptors as the
// spawner would place them, no plan but `listen`, on the machine's own root. What it needs: root.
// One InitBox per case; its destructor ends everything and removes what it made.

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "isolate/log_reader.h"
#include "isolate/wire/frames.h"
#include "isolate/wire/log_format.h"
#include "isolate/wire/plan_format.h"

namespace talon::test {

struct Frame {
  wire::Header head{};
  std::string payload;
  wire::Type type() const { return static_cast<wire::Type>(head.type); }
  template <class T>
  T as() const {
    T value{};
    payload.copy(reinterpret_cast<char*>(&value), sizeof value);
    return value;
  }
};

struct BoxOptions {
  std::uint32_t flags = 0;  // wire::PlanFlags
  std::uint32_t live_execs = 256;
  std::string default_cwd = "/";
  std::string logs_dir = {};  // "" = a directory of the box's own
  bool cgroups = true;        // used where cgroup2 is mounted
  std::uint64_t log_budget = 0;
  std::uint64_t open_files = 0;  // RLIMIT_NOFILE by a plan step, 0 = as it is
};

struct ExecOptions {
  std::vector<std::string> argv = {};
  std::vector<std::string> env = {"PATH=/usr/local/bin:/usr/bin:/bin"};
  std::string cwd = {};
  std::string user = {};
  std::string input = {};
  std::uint32_t flags = wire::kExecUnlimitedLog;
  std::uint64_t timeout_ms = 0;
  std::uint64_t grace_ms = 0;
  std::uint64_t max_output = 0;
  std::uint64_t log_cap = 0;
  std::uint16_t cols = 80;
  std::uint16_t rows = 24;
};

// Why this machine cannot run a box, "" if it can.
std::string why_not();

class InitBox {
 public:
  explicit InitBox(BoxOptions options = {});
  ~InitBox();
  InitBox(const InitBox&) = delete;
  InitBox& operator=(const InitBox&) = delete;

  bool up() const { return up_; }
  bool has_cgroups() const { return static_cast<bool>(execs_); }
  int conn() const { return conn_.get(); }
  int logs() const { return logs_.get(); }
  int event() const { return event_.get(); }
  const std::string& dir() const { return dir_; }
  const std::string& group() const { return group_; }
  const std::string& socket_path() const { return socket_path_; }
  int host_pid() const { return pid_; }

  // A new connection; the caller says hello.
  UniqueFd connect() const;
  static bool send(int fd, wire::Type type, std::uint64_t request, const void* payload,
                   std::size_t size, const std::vector<int>& fds = {});
  static std::optional<Frame> receive(int fd, std::chrono::milliseconds deadline);

  std::uint64_t exec(const std::string& px, const ExecOptions& options, int fd = -1);
  // Shell text under /bin/sh -c.
  std::uint64_t shell(const std::string& px, const std::string& text, ExecOptions options = {});
  std::uint64_t input(const std::string& px, std::uint64_t offset, const std::string& bytes,
                      bool close = false);
  template <class T>
  std::uint64_t request(wire::Type type, const T& payload) {
    send(conn(), type, ++last_request_, &payload, sizeof payload);
    return last_request_;
  }
  int signal(const std::string& px, int number, wire::Scope scope);  // Done's errno, -1 = no answer

  // The first frame (also among those that came earlier) that `want` takes; others are kept.
  std::optional<Frame> wait(const std::function<bool(const Frame&)>& want,
                            std::chrono::milliseconds deadline = std::chrono::seconds(20));
  std::optional<Frame> wait_type(wire::Type type, const std::string& px = "",
                                 std::chrono::milliseconds deadline = std::chrono::seconds(20));
  std::optional<wire::ExitInfo> wait_exit(
      const std::string& px, std::chrono::milliseconds deadline = std::chrono::seconds(60));
  // Runs to its end.
  std::optional<wire::ExitInfo> run(const std::string& px, const std::string& text,
                                    ExecOptions options = {});

  std::vector<isolate::LogEntry> entries(const std::string& px) const;
  std::string output(const std::string& px, wire::Kind kind = wire::Kind::out) const;
  std::vector<wire::JournalRecord> journal() const;
  std::vector<std::string> log_files() const;
  // The groups in x/: those of execs, and the one that is kept ready for the next.
  std::vector<std::string> exec_groups() const;
  bool init_alive() const;
  // Polls until `done` says so; false at the deadline.
  static bool eventually(const std::function<bool()>& done,
                         std::chrono::milliseconds deadline = std::chrono::seconds(10));

 private:
  bool start(const BoxOptions& options);

  bool up_ = false;
  bool own_logs_ = false;
  std::string dir_;
  std::string logs_dir_;
  std::string group_;
  std::string socket_path_;
  UniqueFd conn_;
  UniqueFd logs_;
  UniqueFd event_;
  UniqueFd execs_;
  UniqueFd pidfd_;
  int pid_ = -1;
  std::uint64_t last_request_ = 0;
  std::deque<Frame> kept_;
};

inline constexpr unsigned char kNonce[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

}  // namespace talon::test
