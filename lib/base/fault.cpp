#include "base/fault.h"

#ifdef TALON_FAULTS

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <string>

namespace talon::fault {

namespace {

std::string_view setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view{value};
}

// One write of one short line with O_APPEND is whole, whichever thread makes it.
void trace(std::string_view name, bool fails) {
  static const int file = [] {
    const std::string path{setting("TALON_TEST_FAULT_TRACE")};
    return path.empty() ? -1
                        : ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  }();
  if (file >= 0) {
    const std::string line = std::string{name} + (fails ? " fails\n" : "\n");
    static_cast<void>(!::write(file, line.data(), line.size()));
  }
}

// What is wanted now.
std::string wanted() {
  static const std::string_view fixed = setting("TALON_TEST_FAULT");
  if (!fixed.starts_with('@')) {
    return std::string{fixed};
  }
  std::array<char, 256> text{};
  const int file = ::open(fixed.data() + 1, O_RDONLY | O_CLOEXEC);
  const ssize_t size = file < 0 ? 0 : ::read(file, text.data(), text.size());
  ::close(file);
  return {text.data(), size > 0 ? static_cast<std::size_t>(size) : 0};
}

enum class Kind { none, stop, fail, full };

// What this pass of a point is to do; each wish comes true once.
Kind due(std::string_view name, bool fails) {
  static std::mutex mutex;
  static std::string wish;
  static unsigned long left = 0;
  const std::lock_guard lock{mutex};
  if (std::string now = wanted(); now != wish) {
    wish = std::move(now);
    left = 1;
    if (const auto number = wish.find('#'); number != std::string::npos) {
      std::from_chars(wish.data() + number + 1, wish.data() + wish.size(), left);
    }
  }
  const std::string_view text = std::string_view{wish}.substr(0, wish.find('#'));
  const auto is = [&](std::string_view kind) {
    return text.size() == kind.size() + name.size() && text.starts_with(kind) &&
           text.ends_with(name);
  };
  const Kind kind = is("stop:")            ? Kind::stop
                    : fails && is("fail:") ? Kind::fail
                    : fails && is("full:") ? Kind::full
                                           : Kind::none;
  if (kind == Kind::none || left == 0 || --left != 0) {
    return Kind::none;
  }
  return kind;
}

Kind pass(std::string_view name, bool fails) {
  trace(name, fails);
  const Kind kind = due(name, fails);
  if (kind == Kind::stop) {
    ::kill(::getpid(), SIGKILL);
    for (;;) {
      ::pause();
    }
  }
  return kind;
}

}  // namespace

void stop(std::string_view name) { pass(name, false); }

Result<> point(std::string_view name) {
  const Kind kind = pass(name, true);
  if (kind == Kind::none) {
    return {};
  }
  return fail_sys(kind == Kind::full ? ENOSPC : EIO, "fault point " + std::string{name});
}

}  // namespace talon::fault

#endif
