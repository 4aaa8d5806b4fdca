#pragma once
// Owned descriptors. Every descriptor in talon is close-on-exec and has exactly one owner;
// what is handed to another process goes by SCM_RIGHTS or a spawn table, never by inheritance.

#include <sys/uio.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace talon {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      reset(std::exchange(other.fd_, -1));
    }
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }
  explicit operator bool() const { return fd_ >= 0; }
  void reset(int fd = -1);

  // F_DUPFD_CLOEXEC.
  [[nodiscard]] Result<UniqueFd> dup() const;

 private:
  int fd_ = -1;
};

using DirFd = UniqueFd;    // an open directory (O_DIRECTORY)
using MountFd = UniqueFd;  // a detached mount tree (open_tree, fsmount)
using PidFd = UniqueFd;

// Anonymous sealed file (memfd_create + F_ADD_SEALS all): content as given, offset 0.
Result<UniqueFd> sealed_memfd(const char* name, std::span<const std::byte> content);

// openat(2) with O_CLOEXEC added. mode is used with O_CREAT only.
Result<UniqueFd> open_at(int dir, const std::string& path, int flags, unsigned mode = 0);

// Whole small file; fails with too_large above `limit` bytes.
Result<std::string> read_file_at(int dir, const std::string& path, std::size_t limit = 1 << 20);

// Writes all of `data` to an existing file (O_WRONLY, no O_CREAT, no O_TRUNC): sysfs, cgroupfs,
// proc.
Result<> write_file_at(int dir, const std::string& path, std::string_view data);

// Creates or replaces a file atomically: PATH.tmp in the same directory, fsync, rename. One writer
// of a path at a time.
Result<> replace_file_at(int dir, const std::string& path, std::string_view data, unsigned mode);

// write(2) until all is written; EINTR restarted.
Result<> write_all(int fd, std::string_view data);

// One SEQPACKET message with descriptors. `fds` keeps its order.
Result<> send_message(int sock, std::span<const std::byte> bytes, std::span<const int> fds);
struct Message {
  std::size_t size = 0;  // 0 = the peer closed
  std::vector<UniqueFd> fds;
};
// Receives one message into `buffer` (MSG_CMSG_CLOEXEC); a truncated one is an error.
// With `wait == false` an empty socket answers Code::unavailable, sys EAGAIN.
Result<Message> receive_message(int sock, std::span<std::byte> buffer, bool wait = true);

}  // namespace talon
