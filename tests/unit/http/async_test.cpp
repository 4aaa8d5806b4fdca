// Tasks, groups, deadlines, notifiers, descriptors, offload.

#include <sys/eventfd.h>

#include <catch2/catch.hpp>

#include "unit/http/lab.h"

using namespace talon;
using namespace talon::test;

namespace {

Task<int> number_after(Millis delay, int value) {
  auto slept = co_await sleep_for(delay);
  if (!slept) {
    co_return std::unexpected(slept.error());
  }
  co_return value;
}

// Counts the frames that are alive.
struct Live {
  explicit Live(int& n) : count(&n) { ++*count; }
  Live(const Live& other) : count(other.count) { ++*count; }
  Live& operator=(const Live&) = delete;
  ~Live() { --*count; }
  int* count;
};

Task<> sleep_long(Live live, std::vector<Code>* ends) {
  auto slept = co_await sleep_for(1h);
  if (ends != nullptr) {
    ends->push_back(slept ? Code::internal : slept.error().code);
  }
  (void)live;
  co_return slept;
}

// Does not take the first hint.
Task<> stubborn(Live live, int waits) {
  for (int i = 0; i < waits; ++i) {
    co_await asio::this_coro::reset_cancellation_state(asio::enable_total_cancellation());
    auto slept = co_await sleep_for(1h);
    (void)slept;
  }
  (void)live;
  co_return Result<>{};
}

Task<> throws() {
  co_await asio::post(asio::use_awaitable);
  throw std::runtime_error("boom");
}

Task<> wait_notified(Notifier& n, std::uint64_t seen, Millis limit, int& done, Code& code) {
  auto r = co_await n.wait(seen, limit);
  code = r ? Code::gone : r.error().code;
  ++done;
  co_return Result<>{};
}

Task<int> nested(Millis inner, Millis delay) {
  Task<int> task = number_after(delay, 5);
  auto r = co_await with_deadline<int>(std::move(task), inner);
  co_return r;
}

Task<int> blocking_job(Offload& offload, std::chrono::milliseconds time) {
  std::function<Result<int>()> job = [time]() -> Result<int> {
    std::this_thread::sleep_for(time);
    return 9;
  };
  auto r = co_await offload.run<int>(std::move(job));
  co_return r;
}

struct Fixture {
  asio::io_context io{1};
  Executor ex{io.get_executor()};
  std::vector<std::string> errors;
  TaskGroup group{ex, [this](std::string_view name, const Error& e) {
                    errors.push_back(std::string(name) + ": " + e.message);
                  }};
  // Runs what is ready.
  void poll() {
    io.restart();
    io.poll();
  }
  // Later than a wait that the next run() begins.
  void after_start(std::function<void()> f) {
    auto timer = std::make_shared<asio::steady_timer>(io, 5ms);
    timer->async_wait([timer, f = std::move(f)](const boost::system::error_code&) { f(); });
  }
  template <class T>
  Result<T> run(Task<T> task) {
    std::optional<Result<T>> out;
    asio::co_spawn(io, std::move(task), [&](const std::exception_ptr& e, Result<T> r) {
      out.emplace(e ? Result<T>(fail(Code::internal, "exception")) : std::move(r));
    });
    io.restart();
    while (!out && io.run_one() > 0) {
    }
    return out ? std::move(*out) : Result<T>(fail(Code::internal, "never ended"));
  }
};

}  // namespace

TEST_CASE("a group stops gently, and leaves no frame") {
  Fixture f;
  int live = 0;
  std::vector<Code> ends;
  for (int i = 0; i < 10; ++i) {
    f.group.spawn("sleeper", sleep_long(Live(live), &ends));
  }
  CHECK(f.group.running() == 10);
  CHECK(live == 10);
  CHECK(f.run<void>(f.group.stop(1h)));
  CHECK(f.group.running() == 0);
  CHECK(live == 0);
  CHECK(ends == std::vector<Code>(10, Code::unavailable));
  CHECK(f.errors.empty());  // being stopped is not an error
  f.group.spawn("late", sleep_long(Live(live), nullptr));
  CHECK(f.group.running() == 0);
  CHECK(live == 0);
}

TEST_CASE("a group cancels again what starts another wait") {
  Fixture f;
  int live = 0;
  f.group.spawn("stubborn", stubborn(Live(live), 5));
  CHECK(f.run<void>(f.group.stop(10ms)));
  CHECK(live == 0);
}

TEST_CASE("a task that fails or throws is reported by name and the group goes on") {
  Fixture f;
  f.group.spawn("thrower", throws());
  auto failing = []() -> Task<> { co_return fail(Code::io, "bad disk"); };
  f.group.spawn("failer", failing());
  CHECK(f.run<int>(number_after(1ms, 1)) == 1);
  REQUIRE(f.errors.size() == 2);
  CHECK(f.errors[0] == "failer: bad disk");
  CHECK(f.errors[1] == "thrower: exception: boom");
  CHECK(f.run<void>(f.group.stop(0ms)));
}

TEST_CASE("with_deadline gives the value in time, timeout after it, and waits for the task") {
  Fixture f;
  CHECK(f.run<int>(nested(1h, 1ms)) == 5);
  const auto late = f.run<int>(nested(5ms, 1h));
  REQUIRE_FALSE(late);
  CHECK(late.error().code == Code::timeout);
  int live = 0;
  auto sleeper = with_deadline<void>(sleep_long(Live(live), nullptr), 5ms);
  CHECK(f.run<void>(std::move(sleeper)).error().code == Code::timeout);
  CHECK(live == 0);
}

TEST_CASE("cancelling a caller cancels what it waits for under a deadline") {
  Fixture f;
  int live = 0;
  std::vector<Code> ends;
  auto outer = with_deadline<void>(sleep_long(Live(live), &ends), 1h);
  f.group.spawn("outer", std::move(outer));
  while (ends.empty() && f.io.poll_one() > 0) {
  }
  CHECK(live == 1);
  CHECK(f.run<void>(f.group.stop(1h)));
  CHECK(live == 0);
  CHECK(ends == std::vector<Code>{Code::unavailable});
}

TEST_CASE("a notifier wakes all who wait, and who came too late not at all") {
  Fixture f;
  auto n = std::make_unique<Notifier>(f.ex);
  int done = 0;
  Code code{};
  CHECK(n->version() == 0);
  for (int i = 0; i < 3; ++i) {
    f.group.spawn("w", wait_notified(*n, 0, 1h, done, code));
  }
  f.poll();
  CHECK(done == 0);
  n->notify_all();
  f.poll();
  CHECK(done == 3);
  CHECK(code == Code::gone);
  CHECK(n->version() == 1);
  f.group.spawn("w", wait_notified(*n, 0, 1h, done, code));  // missed it: at once
  f.poll();
  CHECK(done == 4);
  f.group.spawn("w", wait_notified(*n, 1, 5ms, done, code));
  f.io.restart();
  while (done < 5 && f.io.run_one() > 0) {
  }
  CHECK(code == Code::timeout);
  f.group.spawn("w", wait_notified(*n, 1, 1h, done, code));
  f.poll();
  n.reset();  // its end wakes too
  f.poll();
  CHECK(done == 6);
  CHECK(f.run<void>(f.group.stop(0ms)));
}

TEST_CASE("waiting for the longest time does not overflow") {
  Fixture f;
  Notifier n(f.ex);
  int done = 0;
  Code code{};
  f.group.spawn("w", wait_notified(n, 0, Millis::max(), done, code));
  f.poll();
  CHECK(done == 0);
  f.io.restart();
  CHECK(f.run<void>(f.group.stop(1h)));
  CHECK(code == Code::unavailable);
}

TEST_CASE("a watched descriptor: readable, cancelled, watched twice, not owned") {
  Fixture f;
  UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  auto one = std::make_unique<FdWatch>(f.ex, event.get());
  FdWatch two(f.ex, event.get());
  std::uint64_t v = 1;
  REQUIRE(::write(event.get(), &v, sizeof(v)) == sizeof(v));
  CHECK(f.run<void>(one->readable()));
  CHECK(f.run<void>(two.readable()));
  CHECK(f.run<void>(two.readable()));  // still readable: level, not edge
  REQUIRE(::read(event.get(), &v, sizeof(v)) == sizeof(v));
  f.after_start([&] { two.cancel(); });
  CHECK(f.run<void>(two.readable()).error().code == Code::unavailable);
  auto waiting = one->readable();
  f.after_start([&] { one.reset(); });
  CHECK(f.run<void>(std::move(waiting)).error().code == Code::unavailable);
  CHECK(::fcntl(event.get(), F_GETFD) >= 0);
  FdWatch bad(f.ex, -1);
  CHECK(f.run<void>(bad.readable()).error().code == Code::io);
}

TEST_CASE("offload runs elsewhere, reports what is thrown, and is waited for") {
  Fixture f;
  Offload offload(f.ex, 2);
  const auto here = std::this_thread::get_id();
  std::thread::id there;
  std::function<Result<std::string>()> job = [&there]() -> Result<std::string> {
    there = std::this_thread::get_id();
    return std::string("done");
  };
  CHECK(f.run<std::string>(offload.run<std::string>(std::move(job))) == "done");
  CHECK(there != here);
  std::function<Result<int>()> thrower = []() -> Result<int> { throw std::runtime_error("x"); };
  const auto thrown = f.run<int>(offload.run<int>(std::move(thrower)));
  REQUIRE_FALSE(thrown);
  CHECK(thrown.error().code == Code::internal);
  // A deadline does not leave the job behind: its value counts.
  auto late = with_deadline<int>(blocking_job(offload, 50ms), 5ms);
  CHECK(f.run<int>(std::move(late)) == 9);
  offload.join();
  CHECK(f.run<int>(blocking_job(offload, 0ms)).error().code == Code::unavailable);
}
