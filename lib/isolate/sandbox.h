#pragma once
// A live sandbox: its init connection, its descriptors, its cgroup. What init says is hostile
// input: every frame is checked, an invalid one closes the connection and is reported once.
//
// Sending never blocks (a full socket is Code::unavailable, sys EAGAIN); receiving is a poll on
// init_fd() and one receive(). One thread at a time may use a Sandbox, except kill().

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "isolate/cgroup.h"
#include "isolate/disk.h"
#include "isolate/spec.h"
#include "isolate/wire/log_format.h"

namespace talon::isolate {

// What proves, after a restart of talond, that a process is the sandbox of a row.
struct Identity {
  std::string id;
  std::int32_t host_pid = 0;
  std::uint64_t start_time = 0;  // field 22 of /proc/<pid>/stat
  std::string cgroup;            // absolute path of the sandbox's group
  std::string boot_id;
  std::string nonce;  // 32 hex digits
  std::uint32_t lease = 0;
};

// Frames from init, decoded and checked.
namespace event {
struct Started {
  std::uint64_t request;
  std::string px;
  std::int32_t pid;
  std::uint32_t group = 0;  // the exec's cgroup is x/<group> below the sandbox's; 0 = not known
};
struct ExecFailed {
  std::uint64_t request;
  std::string px;
  int error;
  wire::Stage stage;
};
struct Exited {
  std::string px;
  wire::ExitInfo info;
};
struct Ended {
  std::string px;
};
struct StdinAck {
  std::uint64_t request;
  std::string px;
  std::uint64_t accepted;
  int error;
  bool closed;
};
struct Done {
  std::uint64_t request;
  int error;
};
struct Resync {};
struct Closed {
  std::string reason;
};  // init is gone or sent garbage; the last event
}  // namespace event
using Event = std::variant<event::Started, event::ExecFailed, event::Exited, event::Ended,
                           event::StdinAck, event::Done, event::Resync, event::Closed>;

struct StepTime {
  std::string step;
  std::uint64_t ns;
};

class Sandbox {
 public:
  virtual ~Sandbox() = default;  // closes descriptors; ends nothing

  virtual const Identity& identity() const = 0;
  virtual int init_fd() const = 0;   // readable: receive()
  virtual int pid_fd() const = 0;    // readable: init has ended
  virtual int event_fd() const = 0;  // readable: something was appended to a log (read 8 bytes)
  // The daemon's own clone of the tree (decision 31): root, workspace and /tmp, without proc, sys
  // and dev; nodev, nosuid, noexec. -1 after remove().
  virtual int files_fd() const { return -1; }
  virtual const CgroupApplied& limits() const = 0;
  // How its files are limited; of an adopted one its row says it.
  virtual DiskApplied disk() const { return {}; }
  virtual const std::vector<StepTime>& step_times() const = 0;

  // Requests; the number returned comes back in the answering event.
  virtual Result<std::uint64_t> exec(const ExecSpec& spec) = 0;
  virtual Result<std::uint64_t> send_stdin(std::string_view px, std::uint64_t offset,
                                           std::string_view bytes, bool close) = 0;
  virtual Result<std::uint64_t> signal(std::string_view px, int number, wire::Scope scope) = 0;
  virtual Result<std::uint64_t> end_exec(std::string_view px, std::chrono::milliseconds grace) = 0;
  virtual Result<std::uint64_t> resize(std::string_view px, std::uint16_t cols,
                                       std::uint16_t rows) = 0;
  // wire::Flow: not answered.
  virtual Result<> flow(std::string_view px, std::uint64_t limit) = 0;
  // Tells init that the execs are about to stand still, or go on: it starts none meanwhile, takes
  // no input, and the clocks of timeouts stop (decisions 15, 20). Answered by Done.
  virtual Result<std::uint64_t> mark(bool paused) = 0;

  // Freezes the execs or lets them go. Blocks until every process stands; timeout when one does
  // not (all go on then).
  virtual Result<> freeze(bool frozen, std::chrono::milliseconds deadline) = 0;
  // At adoption: what init or the kernel was told last.
  virtual bool paused() const = 0;

  // One event, or nullopt when the socket is empty.
  virtual Result<std::optional<Event>> receive() = 0;

  // Blocking helpers for callers without a loop (talond run, bench, tests).
  Result<Event> wait_event(std::chrono::milliseconds deadline);

  // cgroup.kill, then waits for init's end (pidfd) until the deadline. Idempotent.
  virtual Result<> kill(std::chrono::milliseconds deadline) = 0;
  // After kill(): cgroup and run directory go and the lease comes back soon (Launcher::drain()
  // waits for it; a create of the same id does so itself). Idempotent.
  virtual Result<> remove() = 0;

  virtual Result<CgroupStats> stats() const = 0;
  // How init ended, as waitpid(2) says it, if somebody still knows: the spawner that started it, or
  // Linux 6.15 and newer. Nothing while it lives. May wait for 200 ms.
  virtual std::optional<int> init_status() const { return std::nullopt; }
};

}  // namespace talon::isolate
