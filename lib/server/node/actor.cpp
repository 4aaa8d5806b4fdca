#include "server/node/actor.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/fault.h"
#include "base/log.h"

namespace talon::server::node {

namespace {

constexpr Millis kAnswer{15'000};  // init answers in microseconds; a frozen or starved one never
constexpr Millis kOperationWait{5'000};

Error error_of(const isolate::event::ExecFailed& event, const Exec& exec) {
  static_cast<void>(exec);
  const auto sys = [&](std::string_view what) { return fail_sys(event.error, what).error(); };
  switch (event.stage) {
    case wire::Stage::user:
      return bad_field("user",
                       "there is no such user in the sandbox; give a name from its "
                       "/etc/passwd or a number 0..65535")
          .error();
    case wire::Stage::cwd: {
      Error error = bad_field("cwd", "").error();
      error.message = sys("the directory cannot be entered").message +
                      "; give an absolute path of a directory that exists";
      return error;
    }
    case wire::Stage::too_many:
      return over_limit(Code::too_many, "live_execs",
                        "too many processes run in this sandbox; end some first")
          .error();
    case wire::Stage::paused: return wrong_state(State::paused, "running").error();
    case wire::Stage::log: return sys("open the log of the process");
    case wire::Stage::cgroup: return sys("make the group of the process");
    case wire::Stage::pipe: return sys("make its pipes");
    case wire::Stage::clone: return sys("start the process");
    case wire::Stage::request: break;
  }
  return sys("init refused the request");
}

std::int64_t now_ms() { return system_clock().wall_ms(); }

}  // namespace

Actor::Actor(Executor ex, Hooks hooks, store::SandboxRow first_row)
    : row(std::move(first_row)),
      changed(ex),
      grew(ex),
      ex_(ex),
      hooks_(std::move(hooks)),
      answered_(ex) {}

State Actor::state() const { return parse_state(row.state).value_or(State::failed); }

void Actor::attach(std::unique_ptr<isolate::Sandbox> sandbox) {
  live_ = std::move(sandbox);
  closed_ = false;
  watchers_ =
      std::make_unique<TaskGroup>(ex_, [id = row.id](std::string_view name, const Error& e) {
        if (e.code != Code::unavailable) {
          log_warn("sandbox_watch", {{"sandbox", id}, {"watch", name}, {"error", e.message}});
        }
      });
  init_watch_ = std::make_unique<FdWatch>(ex_, live_->init_fd());
  pid_watch_ = std::make_unique<FdWatch>(ex_, live_->pid_fd());
  event_watch_ = std::make_unique<FdWatch>(ex_, live_->event_fd());
  watchers_->spawn("init", watch_init(shared_from_this()));
  watchers_->spawn("pid", watch_pid(shared_from_this()));
  watchers_->spawn("event", watch_event(shared_from_this()));
}

Task<std::unique_ptr<isolate::Sandbox>> Actor::release() {
  closed_ = true;
  if (watchers_ != nullptr) {
    init_watch_->cancel();
    pid_watch_->cancel();
    event_watch_->cancel();
    auto stopped = co_await watchers_->stop(Millis{1000});
    static_cast<void>(stopped);
    watchers_.reset();
    init_watch_.reset();
    pid_watch_.reset();
    event_watch_.reset();
  }
  fail_waiting();
  co_return std::move(live_);
}

// No answer comes any more.
void Actor::fail_waiting() {
  for (auto& [request, exec] : starting_) {
    exec->failure = fail(Code::unavailable, "the sandbox ended while the process started").error();
    exec->changed.notify_all();
  }
  starting_.clear();
  for (auto& [request, answer] : answers_) {
    answer = ESRCH;
  }
  answered_.notify_all();
}

Task<> Actor::watch_init(std::shared_ptr<Actor> self) {
  while (!closed_) {
    auto ready = co_await self->init_watch_->readable();
    if (!ready) {
      co_return Result<>{};
    }
    while (!closed_) {
      auto event = live_->receive();
      if (!event) {
        died("the connection to init failed: " + event.error().message);
        co_return Result<>{};
      }
      if (!event->has_value()) {
        break;
      }
      dispatch(**event);
    }
  }
  co_return Result<>{};
}

Task<> Actor::watch_pid(std::shared_ptr<Actor> self) {
  auto ready = co_await self->pid_watch_->readable();
  if (ready) {
    died("init has ended");
  }
  co_return Result<>{};
}

Task<> Actor::watch_event(std::shared_ptr<Actor> self) {
  while (!closed_) {
    auto ready = co_await self->event_watch_->readable();
    if (!ready) {
      co_return Result<>{};
    }
    std::uint64_t count = 0;
    const ssize_t got = ::read(live_->event_fd(), &count, sizeof count);
    if (got < 0 && errno != EAGAIN && errno != EINTR) {
      co_return fail_sys(errno, "read the log event");
    }
    self->grew.notify_all();
  }
  co_return Result<>{};
}

void Actor::died(std::string reason) {
  if (!closed_) {
    closed_ = true;
    fail_waiting();
    hooks_.died(shared_from_this(), std::move(reason));
  }
}

void Actor::dispatch(const isolate::Event& event) {
  namespace ev = isolate::event;
  if (const auto* started = std::get_if<ev::Started>(&event)) {
    on_started(*started);
  } else if (const auto* failed = std::get_if<ev::ExecFailed>(&event)) {
    on_failed(*failed);
  } else if (const auto* exited = std::get_if<ev::Exited>(&event)) {
    if (const ExecPtr exec = find_exec(exited->px)) {
      finish_exec(exec, exited->info, now_ms());
    }
  } else if (const auto* ended = std::get_if<ev::Ended>(&event)) {
    if (const ExecPtr exec = find_exec(ended->px)) {
      end_exec_log(exec);
    }
  } else if (const auto* ack = std::get_if<ev::StdinAck>(&event)) {
    if (auto it = answers_.find(ack->request); it != answers_.end()) {
      it->second = ack->error;
      answered_.notify_all();
    }
    if (const ExecPtr exec = find_exec(ack->px)) {
      exec->stdin_accepted = std::max(exec->stdin_accepted, ack->accepted);
      exec->stdin_error = ack->error;
      exec->stdin_closed = exec->stdin_closed || ack->closed;
      exec->changed.notify_all();
    }
  } else if (const auto* done = std::get_if<ev::Done>(&event)) {
    if (auto it = answers_.find(done->request); it != answers_.end()) {
      it->second = done->error;
      answered_.notify_all();
    }
  } else if (std::get_if<ev::Resync>(&event) != nullptr) {
    hooks_.resync(shared_from_this());
  } else if (const auto* closed = std::get_if<ev::Closed>(&event)) {
    died(closed->reason);
  }
  for (const std::string& px : std::exchange(lifts_due_, {})) {
    lift_pace(px);
  }
}

void Actor::on_started(const isolate::event::Started& event) {
  ExecPtr exec = find_exec(event.px);
  starting_.erase(event.request);
  if (exec == nullptr) {
    return;
  }
  exec->started = true;
  exec->row.pid = event.pid;
  hooks_.exec_changed(shared_from_this(), exec);
  exec->changed.notify_all();
}

void Actor::on_failed(const isolate::event::ExecFailed& event) {
  const auto it = starting_.find(event.request);
  if (it == starting_.end()) {
    return;
  }
  const ExecPtr exec = it->second;
  starting_.erase(it);
  exec->failure = error_of(event, *exec);
  exec->changed.notify_all();
}

Task<> Actor::start_exec(isolate::ExecSpec spec, ExecPtr exec) {
  if (live_ == nullptr || closed_) {
    co_return wrong_state(state(), "running");
  }
  auto request = live_->exec(spec);
  if (!request) {
    co_return std::unexpected(std::move(request.error()).in("start the process"));
  }
  fault::stop("exec.sent");
  add_exec(exec);
  starting_[*request] = exec;
  const std::int64_t end = system_clock().mono_ns() + kAnswer.count() * 1'000'000;
  while (!exec->started && !exec->failure && !exec->exited) {
    const std::int64_t left = (end - system_clock().mono_ns()) / 1'000'000;
    if (left <= 0) {
      break;
    }
    const std::uint64_t seen = exec->changed.version();
    auto woken = co_await exec->changed.wait(seen, Millis{left});
    if (!woken && woken.error().code != Code::timeout) {
      co_return std::unexpected(std::move(woken.error()));
    }
  }
  if (exec->started || exec->exited) {
    co_return Result<>{};
  }
  starting_.erase(*request);
  if (execs_.erase(exec->row.id) != 0) {
    --live_count_;
  }
  if (exec->failure) {
    co_return std::unexpected(*exec->failure);
  }
  co_return fail(Code::timeout, "init did not answer within 15 s");
}

// The errno that init answers `request` with; timeout after `limit`.
Task<int> Actor::await_errno(std::uint64_t request, std::optional<Millis> limit) {
  answers_[request] = std::nullopt;
  const std::int64_t end =
      limit ? system_clock().mono_ns() + limit->count() * 1'000'000 : INT64_MAX;
  Result<> woken;
  while (!answers_[request]) {
    const std::int64_t left =
        std::min<std::int64_t>((end - system_clock().mono_ns()) / 1'000'000, 3'600'000);
    const std::uint64_t seen = answered_.version();
    if (left <= 0) {
      break;
    }
    woken = co_await answered_.wait(seen, Millis{left});
    if (!woken && woken.error().code != Code::timeout) {
      answers_.erase(request);
      co_return std::unexpected(std::move(woken.error()));
    }
  }
  const std::optional<int> answer = answers_[request];
  answers_.erase(request);
  if (!answer) {
    co_return fail(Code::timeout, "init did not answer within 15 s");
  }
  co_return *answer;
}

Task<> Actor::await_done(std::uint64_t request, std::string what) {
  auto answered = co_await await_errno(request, kAnswer);
  if (!answered) {
    co_return std::unexpected(std::move(answered.error()).in(what));
  }
  if (*answered != 0) {
    co_return fail_sys(*answered, what);
  }
  co_return Result<>{};
}

Task<> Actor::signal(std::string px, int number, wire::Scope scope) {
  if (live_ == nullptr || closed_) {
    co_return wrong_state(state(), "running");
  }
  auto request = live_->signal(px, number, scope);
  TALON_CO_TRY(sent, std::move(request));
  auto done = co_await await_done(sent, "signal the process");
  co_return done;
}

Task<> Actor::end_exec(std::string px, Millis grace) {
  if (live_ == nullptr || closed_) {
    co_return wrong_state(state(), "running");
  }
  auto request = live_->end_exec(px, grace);
  fault::stop("exec.end_sent");
  TALON_CO_TRY(sent, std::move(request));
  auto done = co_await await_done(sent, "end the process");
  co_return done;
}

Task<> Actor::mark(bool paused) {
  // A process that is frozen between its clone and its execve would leave its caller waiting.
  const std::int64_t end = system_clock().mono_ns() + kAnswer.count() * 1'000'000;
  while (live_ != nullptr && !closed_ && !starting_.empty() && system_clock().mono_ns() < end) {
    const ExecPtr exec = starting_.begin()->second;
    const std::uint64_t seen = exec->changed.version();
    auto woken = co_await exec->changed.wait(seen, Millis{1000});
    if (!woken && woken.error().code != Code::timeout) {
      co_return woken;
    }
  }
  if (live_ == nullptr || closed_) {
    co_return wrong_state(state(), "running or paused");
  }
  auto request = live_->mark(paused);
  TALON_CO_TRY(sent, std::move(request));
  const std::string what = paused ? "pause the sandbox" : "resume the sandbox";
  auto done = co_await await_done(sent, what);
  co_return done;
}

Task<> Actor::send_stdin(ExecPtr exec, std::uint64_t offset, std::string bytes, bool close,
                         Millis wait) {
  if (live_ == nullptr || closed_) {
    co_return wrong_state(state(), "running");
  }
  const std::uint64_t wanted = offset + bytes.size();
  exec->stdin_error = 0;
  auto request = live_->send_stdin(exec->row.id, offset, bytes, close);
  TALON_CO_TRY(sent, std::move(request));
  static_cast<void>(sent);
  const std::int64_t end = system_clock().mono_ns() + wait.count() * 1'000'000;
  while (exec->stdin_error == 0 && !exec->exited &&
         (exec->stdin_accepted < wanted || (close && !exec->stdin_closed))) {
    const std::int64_t left = (end - system_clock().mono_ns()) / 1'000'000;
    if (left <= 0) {
      co_return fail(Code::timeout, "the process does not read its input");
    }
    const std::uint64_t seen = exec->changed.version();
    auto woken = co_await exec->changed.wait(seen, Millis{left});
    if (!woken && woken.error().code != Code::timeout) {
      co_return std::unexpected(std::move(woken.error()));
    }
  }
  if (exec->stdin_error != 0) {
    co_return fail_sys(exec->stdin_error, "write to the input of the process");
  }
  co_return Result<>{};
}

ExecPtr Actor::find_exec(std::string_view px) const {
  const auto it = execs_.find(std::string{px});
  return it == execs_.end() ? nullptr : it->second;
}

void Actor::add_exec(ExecPtr exec) {
  const std::string id = exec->row.id;
  if (execs_.emplace(id, std::move(exec)).second) {
    ++live_count_;
  }
}

ExecPtr Actor::newest_exec() const {
  ExecPtr newest;
  for (const auto& [id, exec] : execs_) {
    if (newest == nullptr || exec->row.started_ms > newest->row.started_ms) {
      newest = exec;
    }
  }
  return newest;
}

void Actor::finish_exec(const ExecPtr& exec, const wire::ExitInfo& info, std::int64_t wall_ms) {
  if (exec->exited) {
    return;
  }
  fault::stop("exec.exited");
  exec->exited = true;
  exec->info = info;
  exec->row.state = "exited";
  exec->row.ended_ms = wall_ms;
  --live_count_;
  hooks_.exec_changed(shared_from_this(), exec);
  exec->changed.notify_all();
  grew.notify_all();
}

void Actor::end_all_execs() {
  std::vector<ExecPtr> left;
  for (const auto& [id, exec] : execs_) {
    if (!exec->exited) {
      left.push_back(exec);
    }
  }
  for (const ExecPtr& exec : left) {
    wire::ExitInfo info{};
    info.code = -1;
    info.signal = 9;
    info.flags = wire::kKilled;
    const std::int64_t lasted_ms = std::max<std::int64_t>(now_ms() - exec->row.started_ms, 0);
    info.duration_ns = static_cast<std::uint64_t>(lasted_ms) * 1'000'000;
    exec->cut = true;
    finish_exec(exec, info, now_ms());
  }
  std::vector<ExecPtr> all;
  for (const auto& [id, exec] : execs_) {
    all.push_back(exec);
  }
  for (const ExecPtr& exec : all) {
    end_exec_log(exec);
  }
}

void Actor::drain() {
  draining = true;
  for (const auto& [id, exec] : execs_) {
    exec->changed.notify_all();
  }
  grew.notify_all();
  changed.notify_all();
}

// Only what nobody can act on any more leaves memory: an exec that has exited may still have
// children that hold its output.
void Actor::end_exec_log(const ExecPtr& exec) {
  if (exec->ended) {
    return;
  }
  exec->ended = true;
  ended_.push_back(exec->row.id);
  if (ended_.size() > kKeptEnded) {
    execs_.erase(ended_.front());
    ended_.pop_front();
  }
  exec->changed.notify_all();
  grew.notify_all();
}

Task<Operation> begin_operation(ActorPtr actor, std::string_view name) {
  const std::int64_t end = system_clock().mono_ns() + kOperationWait.count() * 1'000'000;
  while (!actor->operation.empty()) {
    const std::int64_t left = (end - system_clock().mono_ns()) / 1'000'000;
    if (left <= 0) {
      co_return busy(actor->operation);
    }
    const std::uint64_t seen = actor->changed.version();
    auto woken = co_await actor->changed.wait(seen, Millis{left});
    if (!woken && woken.error().code != Code::timeout) {
      co_return std::unexpected(std::move(woken.error()));
    }
  }
  co_return Operation(actor, name);
}

}  // namespace talon::server::node
