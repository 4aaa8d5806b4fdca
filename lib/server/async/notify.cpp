#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/this_coro.hpp>

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <list>

#include "base/fd.h"
#include "server/async/task.h"

namespace talon::server {

namespace {
constexpr Millis kLongest = std::chrono::hours(24 * 365 * 10);
}

struct Notifier::State {
  explicit State(Executor e) : ex(std::move(e)) {}
  void wake() {
    ++version;
    for (auto* timer : waiters) {
      timer->cancel();
    }
  }
  Executor ex;
  std::uint64_t version = 0;
  std::list<asio::steady_timer*> waiters;  // each lives in its wait()'s frame
};

Notifier::Notifier(Executor ex) : state_(std::make_shared<State>(std::move(ex))) {}

Notifier::~Notifier() { state_->wake(); }

void Notifier::notify_all() { state_->wake(); }

std::uint64_t Notifier::version() const { return state_->version; }

Task<> Notifier::wait(std::uint64_t seen, Millis deadline) {
  auto state = state_;
  if (state->version != seen) {
    co_return Result<>{};
  }
  auto cancelled = co_await asio::this_coro::cancellation_state;
  if (cancelled.cancelled() != asio::cancellation_type::none) {
    co_return fail(Code::unavailable, "wait: cancelled");
  }
  asio::steady_timer timer(state->ex, std::min(std::max(deadline, Millis(0)), kLongest));
  // Leaves the list also when the frame is destroyed without being resumed.
  struct Membership {
    State& state;
    std::list<asio::steady_timer*>::iterator place;
    ~Membership() { state.waiters.erase(place); }
  };
  Membership member{*state, state->waiters.insert(state->waiters.end(), &timer)};
  auto [ec] = co_await timer.async_wait(kNoThrow);
  if (state->version != seen) {
    co_return Result<>{};
  }
  if (ec) {
    co_return fail(Code::unavailable, "wait: cancelled");
  }
  co_return fail(Code::timeout, "wait: deadline passed");
}

struct FdWatch::Impl {
  explicit Impl(const Executor& ex) : stream(ex) {}
  asio::posix::stream_descriptor stream;
  int error = 0;
};

FdWatch::FdWatch(Executor ex, int fd) : impl_(std::make_shared<Impl>(ex)) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!copy) {
    impl_->error = errno;
    return;
  }
  boost::system::error_code ec;
  impl_->stream.assign(copy.get(), ec);
  if (ec) {
    impl_->error = ec.value();
    return;
  }
  (void)copy.release();
}

FdWatch::~FdWatch() {
  if (impl_) {
    boost::system::error_code ignored;
    impl_->stream.close(ignored);
  }
}

FdWatch::FdWatch(FdWatch&&) noexcept = default;

Task<> FdWatch::readable() {
  auto impl = impl_;  // the FdWatch may go while we wait
  if (impl->error != 0) {
    co_return fail_sys(impl->error, "watch a descriptor");
  }
  auto cancelled = co_await asio::this_coro::cancellation_state;
  if (cancelled.cancelled() != asio::cancellation_type::none) {
    co_return fail(Code::unavailable, "watch: cancelled");
  }
  auto [ec] = co_await impl->stream.async_wait(asio::posix::stream_descriptor::wait_read, kNoThrow);
  if (ec == asio::error::operation_aborted || ec == asio::error::bad_descriptor) {
    co_return fail(Code::unavailable, "watch: cancelled");
  }
  if (ec) {
    co_return fail_sys(ec.value(), "watch a descriptor");
  }
  co_return Result<>{};
}

void FdWatch::cancel() {
  boost::system::error_code ignored;
  impl_->stream.cancel(ignored);
}

}  // namespace talon::server
