#include "cli/throttle.h"

#include <fcntl.h>

namespace talon::cli {

namespace {

// Far below the log's cap: between the look and the freeze the command writes on.
constexpr std::uint64_t kHoldAbove = 32ULL << 20;
constexpr std::uint64_t kFreeBelow = 8ULL << 20;

}  // namespace

Throttle::Throttle(const std::string& cgroup) {
  auto execs = open_at(AT_FDCWD, cgroup + "/x", O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (execs) {
    execs_ = std::move(*execs);
  } else {
    off_ = true;
  }
}

void Throttle::check(const isolate::LogReader& reader) {
  if (off_) {
    return;
  }
  const std::uint64_t unread = reader.unread();
  if (!held_ && unread > kHoldAbove) {
    set(true);
  } else if (held_ && unread < kFreeBelow) {
    set(false);
  }
}

void Throttle::give_up() {
  release();
  off_ = true;
}

void Throttle::set(bool held) {
  if (held != held_ && write_file_at(execs_.get(), "cgroup.freeze", held ? "1" : "0")) {
    held_ = held;
  }
}

}  // namespace talon::cli
