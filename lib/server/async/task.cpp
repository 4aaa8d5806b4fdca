#include "server/async/task.h"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>

#include <algorithm>
#include <list>
#include <vector>

namespace talon::server {

namespace {

// A spawned coroutine may be cancelled gently (total) and is never thrown at; Asio's default
// is terminal only, with an exception at the next co_await.
asio::awaitable<void> accept_cancellation() {
  co_await asio::this_coro::reset_cancellation_state(asio::enable_total_cancellation());
  co_await asio::this_coro::throw_if_cancelled(false);
}

Error to_error(const std::exception_ptr& e) {
  try {
    std::rethrow_exception(e);
  } catch (const std::exception& x) {
    return fail(Code::internal, std::string("exception: ") + x.what()).error();
  } catch (...) {
    return fail(Code::internal, "exception of unknown type").error();
  }
}

// Far enough to be "never", near enough not to overflow a time point.
constexpr Millis kForever = std::chrono::hours(24 * 365 * 10);

}  // namespace

struct TaskGroup::State {
  struct Entry {
    std::string_view name;
    asio::cancellation_signal signal;
    std::list<std::shared_ptr<Entry>>::iterator place;
  };

  State(Executor e, OnError f) : ex(std::move(e)), on_error(std::move(f)), changed(ex) {
    changed.expires_at(asio::steady_timer::time_point::max());
  }

  void report(std::string_view name, const Error& error) const {
    if (on_error && !(stopping && error.code == Code::unavailable)) {
      on_error(name, error);
    }
  }

  void cancel_all(asio::cancellation_type type) {
    const std::vector<std::shared_ptr<Entry>> now(entries.begin(), entries.end());
    for (const auto& entry : now) {
      entry->signal.emit(type);
    }
  }

  Executor ex;
  OnError on_error;
  std::list<std::shared_ptr<Entry>> entries;
  asio::steady_timer changed;  // cancelled when the last task ends
  bool stopping = false;
};

namespace {

template <class State>
asio::awaitable<void> run_task(std::shared_ptr<State> state, std::string_view name, Task<> task) {
  co_await accept_cancellation();
  auto result = co_await std::move(task);
  if (!result) {
    state->report(name, result.error());
  }
}

template <class State, class Entry>
struct Ended {
  std::shared_ptr<State> state;
  std::shared_ptr<Entry> entry;

  void operator()(const std::exception_ptr& e) {
    state->entries.erase(entry->place);
    if (e) {
      state->report(entry->name, to_error(e));
    }
    // The signal outlives the operation that is bound to its slot (asio#1452).
    asio::post(state->ex, [keep = std::move(entry)] {});
    if (state->entries.empty()) {
      state->changed.cancel();
    }
  }
};

}  // namespace

TaskGroup::TaskGroup(Executor ex, OnError on_error)
    : state_(std::make_shared<State>(std::move(ex), std::move(on_error))) {}

TaskGroup::~TaskGroup() { TALON_ASSERT(state_->entries.empty()); }

void TaskGroup::spawn(std::string_view name, Task<> task) {
  if (state_->stopping) {
    return;  // the frame goes with `task`; nothing of it has run
  }
  auto entry = std::make_shared<State::Entry>();
  entry->name = name;
  entry->place = state_->entries.insert(state_->entries.end(), entry);
  auto slot = entry->signal.slot();
  Ended<State, State::Entry> ended{state_, std::move(entry)};
  asio::co_spawn(state_->ex, run_task(state_, name, std::move(task)),
                 asio::bind_cancellation_slot(slot, std::move(ended)));
}

std::size_t TaskGroup::running() const { return state_->entries.size(); }

Task<> TaskGroup::stop(Millis gentle) {
  auto state = state_;
  state->stopping = true;
  state->cancel_all(asio::cancellation_type::total);
  asio::steady_timer::time_point hard =
      std::chrono::steady_clock::now() + std::min(std::max(gentle, Millis(0)), kForever);
  bool forced = false;
  while (!state->entries.empty()) {
    state->changed.expires_at(hard);
    co_await state->changed.async_wait(kNoThrow);
    if (state->entries.empty()) {
      break;
    }
    if (std::chrono::steady_clock::now() >= hard) {
      forced = true;
      // A task may start another wait after the first signal: so again, until all are gone.
      hard = std::chrono::steady_clock::now() + Millis(20);
    }
    if (forced) {
      state->cancel_all(asio::cancellation_type::terminal);
    }
  }
  co_return Result<>{};
}

Task<> sleep_for(Millis duration) {
  auto cancelled = co_await asio::this_coro::cancellation_state;
  if (cancelled.cancelled() != asio::cancellation_type::none) {
    co_return fail(Code::unavailable, "sleep: cancelled");
  }
  auto ex = co_await asio::this_coro::executor;
  asio::steady_timer timer(ex, std::min(std::max(duration, Millis(0)), kForever));
  auto [ec] = co_await timer.async_wait(kNoThrow);
  if (ec) {
    co_return fail(Code::unavailable, "sleep: cancelled");
  }
  co_return Result<>{};
}

namespace {

struct LimitedRun {
  explicit LimitedRun(const Executor& ex) : timer(ex) {}
  asio::cancellation_signal signal;
  asio::steady_timer timer;
  std::exception_ptr error;
  bool done = false;
};

struct LimitedRunEnded {
  std::shared_ptr<LimitedRun> run;
  void operator()(std::exception_ptr e) {
    run->done = true;
    run->error = std::move(e);
    run->timer.cancel();
  }
};

asio::awaitable<void> cancellable(asio::awaitable<void> job) {
  co_await accept_cancellation();
  co_await std::move(job);
}

}  // namespace

Task<bool> run_with_limit(asio::awaitable<void> job, Millis limit) {
  auto before = co_await asio::this_coro::cancellation_state;
  if (before.cancelled() != asio::cancellation_type::none) {
    co_return fail(Code::unavailable, "cancelled");
  }
  auto ex = co_await asio::this_coro::executor;
  auto run = std::make_shared<LimitedRun>(ex);
  auto until = std::chrono::steady_clock::now() + std::min(std::max(limit, Millis(0)), kForever);
  LimitedRunEnded ended{run};
  asio::co_spawn(ex, cancellable(std::move(job)),
                 asio::bind_cancellation_slot(run->signal.slot(), std::move(ended)));
  bool late = false;
  while (!run->done) {
    run->timer.expires_at(until);
    co_await run->timer.async_wait(kNoThrow);
    if (run->done) {
      break;
    }
    const auto now = std::chrono::steady_clock::now();
    auto state = co_await asio::this_coro::cancellation_state;
    if (now >= until) {
      late = true;
      until = now + Millis(20);
    }
    if (late || state.cancelled() != asio::cancellation_type::none) {
      run->signal.emit(late ? asio::cancellation_type::terminal : asio::cancellation_type::total);
    }
  }
  // As in TaskGroup: the signal outlives the completion of what is bound to it.
  asio::post(ex, [run] {});
  if (run->error) {
    co_return std::unexpected(to_error(run->error));
  }
  co_return !late;
}

}  // namespace talon::server
