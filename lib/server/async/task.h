#pragma once
// Coroutines of the server. One I/O thread owns everything in lib/server: no locks, no strands.
// Blocking work goes through Offload. Every coroutine is awaited or belongs to a TaskGroup;
// co_spawn with `detached` is banned (tests/style). House rule: co_await stands alone,
// `auto r = co_await named(args);`, no ?:, no braces, no capturing lambda in that statement.
//
// This header includes only the light parts of Asio; sockets and Beast stay in lib/server/http.

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace talon::server {

namespace asio = boost::asio;
using Millis = std::chrono::milliseconds;
using Executor = asio::any_io_executor;

// An awaitable of Result<T>.
template <class T = void>
using Task = asio::awaitable<Result<T>>;

inline constexpr auto kNoThrow = asio::as_tuple(asio::use_awaitable);

// Owns running coroutines. A task that returns an error is reported to `on_error` with its name;
// so is one that ends by an exception (as Code::internal). Errors `unavailable` are not reported
// while the group stops: they are the cancellation itself.
//
// Cancellation is a signal that ends the wait in progress: sleep_for, Notifier::wait and
// FdWatch::readable answer Code::unavailable, also at once when they are called later in a
// cancelled task. A task that must wait while it cleans up first calls
// `co_await asio::this_coro::reset_cancellation_state(asio::enable_total_cancellation());`.
// A cancelled task is not thrown at: it ends by returning.
class TaskGroup {
 public:
  using OnError = std::function<void(std::string_view name, const Error&)>;
  TaskGroup(Executor ex, OnError on_error);
  ~TaskGroup();  // asserts that nothing runs any more
  TaskGroup(const TaskGroup&) = delete;
  TaskGroup& operator=(const TaskGroup&) = delete;

  // `name` must outlive the task (a literal).
  void spawn(std::string_view name, Task<> task);
  std::size_t running() const;
  // Refuses new work, cancels (total, then terminal after `gentle`), waits for all. The terminal
  // signal is repeated until the last task has ended.
  Task<> stop(Millis gentle);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// A thread pool for blocking calls. run() resumes on the home executor, which must be the
// caller's. It is not cancellable: `work` may refer to what its caller owns, so the caller waits
// for its end; what blocks for long needs a limit of its own.
class Offload {
 public:
  Offload(Executor home, unsigned threads);
  ~Offload();  // joins
  // Errors: what `work` returns; internal if it throws, unavailable after join().
  // `work` runs on a pool thread; it must not touch the server's objects. Named so that the
  // coroutine rule holds: auto job = [..]{..}; auto r = co_await offload.run<T>(std::move(job));
  template <class T>
  Task<T> run(std::function<Result<T>()> work) {
    auto slot = std::make_shared<Result<T>>(fail(Code::unavailable, "offload: stopped"));
    std::function<void()> job = [slot, work = std::move(work)] { *slot = work(); };
    auto ran = co_await run_erased(std::move(job));
    if (!ran) {
      co_return std::unexpected(std::move(ran).error());
    }
    co_return std::move(*slot);
  }
  void join();

 private:
  Task<> run_erased(std::function<void()> job);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns after `duration`. Errors: unavailable when the task is cancelled.
Task<> sleep_for(Millis duration);

// A broadcast: wait() returns at the next notify_all() after it was called, or with
// Code::timeout after `deadline` (a duration). Used for "the log grew", "the state changed".
// Belongs to the I/O thread: another thread posts its notify_all() there. Waiters survive the
// Notifier: its end is like a last notify_all().
class Notifier {
 public:
  explicit Notifier(Executor ex);
  ~Notifier();
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;
  void notify_all();
  // Grows by one at each notify_all().
  std::uint64_t version() const;
  // Returns at once if version() != seen.
  Task<> wait(std::uint64_t seen, Millis deadline);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Waits until a descriptor that somebody else owns is readable. It watches a duplicate (epoll
// wants one registration a number), so the owner may close its own at any time; the open file
// description lives until the FdWatch goes. One readable() at a time. cancel() and the
// destructor end a wait with Code::unavailable. Errors: io if the descriptor cannot be watched
// (regular files cannot).
class FdWatch {
 public:
  FdWatch(Executor ex, int fd);
  ~FdWatch();
  FdWatch(FdWatch&&) noexcept;
  Task<> readable();
  void cancel();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// Runs `job` as a child of the calling coroutine; cancels it after `limit` and waits for its end
// in any case, so what it refers to stays alive. True if it ended before the limit.
Task<bool> run_with_limit(asio::awaitable<void> job, Millis limit);

template <class T>
asio::awaitable<void> store_result(Task<T> task, std::shared_ptr<std::optional<Result<T>>> slot) {
  auto result = co_await std::move(task);
  slot->emplace(std::move(result));
}

// `task` with a deadline: Code::timeout if it failed because it was cancelled at the limit. If
// it succeeds in spite of that (the work was done), its value is returned. Cancelling the caller
// cancels the task too.
template <class T>
Task<T> with_deadline(Task<T> task, Millis limit) {
  auto slot = std::make_shared<std::optional<Result<T>>>();
  asio::awaitable<void> job = store_result<T>(std::move(task), slot);
  auto in_time = co_await run_with_limit(std::move(job), limit);
  if (!in_time) {
    co_return std::unexpected(std::move(in_time).error());
  }
  if (!slot->has_value()) {
    co_return fail(Code::internal, "with_deadline: no result");
  }
  if (!*in_time && !(*slot)->has_value()) {
    co_return fail(Code::timeout, "deadline passed: " + (*slot)->error().message);
  }
  co_return std::move(**slot);
}

}  // namespace talon::server
