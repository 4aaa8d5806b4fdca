#pragma once
// One sandbox as the daemon holds it: its row, the live isolate::Sandbox while there is one, and
// the execs that somebody may still wait for. The actor watches init's socket, init's pidfd and
// the log event, turns what arrives into state and wakes whoever waits. It lives on the I/O
// thread; nothing here blocks.
//
// Ended execs leave memory after kKeptEnded more have ended: the row in the store is then what
// is read. Waiters hold a shared_ptr, so an Exec never goes while somebody looks at it.

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "isolate/sandbox.h"
#include "server/async/task.h"
#include "server/node/lifecycle.h"
#include "server/node/services.h"
#include "server/node/types.h"
#include "store/tables.h"

namespace talon::server::node {

// The right to type into a terminal. Whoever takes it over calls `lost`.
struct Writer {
  bool held = true;
  std::function<void()> lost;
};

struct Exec {
  explicit Exec(Executor ex) : changed(std::move(ex)) {}

  store::ExecRow row;
  bool started = false;
  bool exited = false;  // `info` is there and the output is in the log
  bool ended = false;   // no writer of the log is left
  bool cut = false;     // it ended with its init: the log has no exit frame, `info` is all there is
  std::optional<Error> failure;  // it was never started
  std::string ended_by;          // who asked for a signal or its end, "" = nobody
  wire::ExitInfo info{};
  std::uint64_t stdin_accepted = 0;
  int stdin_error = 0;
  bool stdin_closed = false;
  bool unrecorded = false;         // a terminal whose log goes with its end
  std::shared_ptr<Writer> writer;  // of a terminal: who may type, at most one
  Notifier changed;
};
using ExecPtr = std::shared_ptr<Exec>;

class Actor : public std::enable_shared_from_this<Actor> {
 public:
  // What the node does when the actor has learnt something.
  struct Hooks {
    std::function<void(const std::shared_ptr<Actor>&, const ExecPtr&)> exec_changed;
    std::function<void(const std::shared_ptr<Actor>&, std::string reason)> died;
    std::function<void(const std::shared_ptr<Actor>&)> resync;
  };

  Actor(Executor ex, Hooks hooks, store::SandboxRow first_row);

  State state() const;
  const std::string& id() const { return row.id; }
  Executor executor() const { return ex_; }

  // Takes the live sandbox and starts watching it.
  void attach(std::unique_ptr<isolate::Sandbox> sandbox);
  // Stops watching (waits for the watchers) and gives the sandbox up. Never called by a watcher.
  Task<std::unique_ptr<isolate::Sandbox>> release();
  isolate::Sandbox* live() const { return live_.get(); }

  // Sends the exec and waits until init says that it runs or why not. The Exec has its row.
  Task<> start_exec(isolate::ExecSpec spec, ExecPtr exec);
  // signal, end_exec: waits for init's answer; io with errno otherwise.
  Task<> signal(std::string px, int number, wire::Scope scope);
  Task<> end_exec(std::string px, Millis grace);
  // Tells init of a pause or its end, after the execs that are just being started.
  Task<> mark(bool paused);
  // One piece of stdin (at most half the window) and its acknowledgement.
  Task<> send_stdin(ExecPtr exec, std::uint64_t offset, std::string bytes, bool close, Millis wait);
  // terminal.cpp. Bytes behind whatever else was written, at most wire::kStdinFrame; returns when
  // the process has taken them, however long that is.
  Task<> append_stdin(ExecPtr exec, std::string bytes, bool close);
  Task<> resize(std::string px, std::uint16_t cols, std::uint16_t rows);
  // See wire::Flow. False: init is busy, ask again.
  bool flow(std::string_view px, std::uint64_t limit);
  // No limit any more; again when init answers, if it is busy now.
  void lift_pace(const std::string& px);

  ExecPtr find_exec(std::string_view px) const;
  void add_exec(ExecPtr exec);
  ExecPtr newest_exec() const;  // null when none is in memory
  std::size_t live_execs() const { return live_count_; }
  // Marks every live exec as ended with what is known (init is gone).
  void end_all_execs();
  // The daemon stops: wakes whoever waits for a log, an exit or a state, to end where it is.
  void drain();
  void finish_exec(const ExecPtr& exec, const wire::ExitInfo& info, std::int64_t wall_ms);

  // By an operation that starts or ends processes.
  bool held() const { return !operation.empty() && operation != "patch" && operation != "service"; }

  store::SandboxRow row;
  Services services;
  std::string operation;         // what holds the sandbox, "" = nothing
  std::int64_t deadline_ns = 0;  // life timeout on the monotonic clock, 0 = none
  std::uint64_t journal_offset = 0;
  Certificate ending;  // why its processes are being ended; the execs' certificates say it
  std::uint64_t execs_ended = 0;
  bool draining = false;  // the daemon stops: streams end where they are
  Notifier changed;       // state or operation
  Notifier grew;          // some log of this sandbox

 private:
  Task<> watch_init(std::shared_ptr<Actor> self);
  Task<> watch_pid(std::shared_ptr<Actor> self);
  Task<> watch_event(std::shared_ptr<Actor> self);
  void dispatch(const isolate::Event& event);
  void end_exec_log(const ExecPtr& exec);
  void on_started(const isolate::event::Started& event);
  void on_failed(const isolate::event::ExecFailed& event);
  Task<> await_done(std::uint64_t request, std::string what);
  Task<int> await_errno(std::uint64_t request, std::optional<Millis> limit);
  void died(std::string reason);
  void fail_waiting();

  static constexpr std::size_t kKeptEnded = 32;

  Executor ex_;
  Hooks hooks_;
  std::unique_ptr<isolate::Sandbox> live_;
  std::unique_ptr<TaskGroup> watchers_;
  std::unique_ptr<FdWatch> init_watch_;
  std::unique_ptr<FdWatch> pid_watch_;
  std::unique_ptr<FdWatch> event_watch_;
  bool closed_ = false;
  std::unordered_map<std::string, ExecPtr> execs_;
  std::unordered_map<std::uint64_t, ExecPtr> starting_;
  std::unordered_map<std::uint64_t, std::optional<int>> answers_;
  std::deque<std::string> ended_;
  std::size_t live_count_ = 0;
  std::vector<std::string> lifts_due_;  // execs whose lift_pace() found init busy
  Notifier answered_;
};
using ActorPtr = std::shared_ptr<Actor>;

// Holds a sandbox for one operation; gives it back when it goes.
class Operation {
 public:
  Operation(ActorPtr actor, std::string_view name) : actor_(std::move(actor)) {
    actor_->operation = name;
  }
  ~Operation() { end(); }
  Operation(Operation&&) noexcept = default;
  Operation& operator=(Operation&&) = delete;
  void end() {
    if (actor_ != nullptr) {
      actor_->operation.clear();
      actor_->changed.notify_all();
      actor_.reset();
    }
  }

 private:
  ActorPtr actor_;
};

// Waits up to 5 s for the sandbox, then busy naming the operation (decision 26).
Task<Operation> begin_operation(ActorPtr actor, std::string_view name);

}  // namespace talon::server::node
