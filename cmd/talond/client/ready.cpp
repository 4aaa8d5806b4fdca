#include "client/ready.h"

#include <poll.h>
#include <sys/epoll.h>

namespace talon::client {

namespace {

// Regular files cannot be watched and need not be (epoll_ctl(2), EPERM).
UniqueFd watch_of(int fd, bool reading) {
  UniqueFd epoll{::epoll_create1(EPOLL_CLOEXEC)};
  epoll_event event{};
  event.events = reading ? EPOLLIN : EPOLLOUT;
  if (!epoll || ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return {};
  }
  return epoll;
}

}  // namespace

Ready::Ready(server::Executor executor, int fd, For what)
    : fd_(fd),
      events_(what == For::reading ? POLLIN : POLLOUT),
      epoll_(watch_of(fd, what == For::reading)),
      watch_(std::move(executor), epoll_.get()) {}

bool Ready::now() const {
  pollfd item{.fd = fd_, .events = events_, .revents = 0};
  return !epoll_ || ::poll(&item, 1, 0) != 0;
}

server::Task<> Ready::wait() {
  while (!now()) {
    auto woken = co_await watch_.readable();
    if (!woken) {
      co_return woken;
    }
  }
  co_return Result<>{};
}

}  // namespace talon::client
