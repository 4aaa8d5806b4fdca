#include "cli/signals.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>

namespace talon::cli {

namespace {

constexpr std::array<int, 5> kForwarded{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH};

std::atomic<int> wake_fd{-1};  // a handler has no other way to its pipe

void on_signal(int number) {
  const int saved = errno;
  const auto byte = static_cast<unsigned char>(number);
  // Full: so many signals wait already that one more says nothing new.
  [[maybe_unused]] const auto written = ::write(wake_fd.load(), &byte, 1);
  errno = saved;
}

void on_pipe(int) {}

void set_handler(int number, void (*handler)(int)) {
  struct sigaction action{};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigaction(number, &action, nullptr);
}

}  // namespace

Result<Signals> Signals::install() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return fail_sys(errno, "pipe for signals");
  }
  Signals signals;
  signals.reader_ = UniqueFd{ends[0]};
  signals.writer_ = UniqueFd{ends[1]};
  wake_fd.store(ends[1]);
  for (const int number : kForwarded) {
    struct sigaction before{};
    ::sigaction(number, nullptr, &before);
    if (before.sa_handler != SIG_IGN || number == SIGWINCH) {
      set_handler(number, on_signal);
    }
  }
  set_handler(SIGPIPE, on_pipe);
  return signals;
}

Signals::~Signals() {
  if (!reader_) {
    return;
  }
  for (const int number : kForwarded) {
    struct sigaction present{};
    ::sigaction(number, nullptr, &present);
    if (present.sa_handler == on_signal) {
      set_handler(number, SIG_DFL);
    }
  }
  wake_fd.store(-1);
}

std::optional<int> Signals::next() {
  unsigned char byte = 0;
  return ::read(reader_.get(), &byte, 1) == 1 ? std::optional<int>{byte} : std::nullopt;
}

}  // namespace talon::cli
