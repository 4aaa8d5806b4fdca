#include "isolate/kernel/pidfd.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

namespace talon::isolate::kernel {

Result<PidFd> open_pidfd(pid_t pid) {
  PidFd fd{static_cast<int>(syscall(SYS_pidfd_open, pid, 0))};
  if (!fd) {
    return errno == ESRCH ? fail(Code::not_found, fmt::format("no process {}", pid))
                          : fail_sys(errno, "pidfd_open");
  }
  return fd;
}

Result<std::uint64_t> start_time(pid_t pid) {
  auto text = read_file_at(AT_FDCWD, fmt::format("/proc/{}/stat", pid), 4096);
  if (!text) {
    return fail(Code::not_found, fmt::format("no process {}", pid));
  }
  // The name in parentheses may itself hold parentheses and spaces: count from the last one.
  std::string_view rest{*text};
  const auto name_end = rest.rfind(')');
  rest.remove_prefix(name_end == std::string_view::npos ? rest.size() : name_end + 1);
  for (int field = 3; field <= 22; ++field) {
    const auto begin = rest.find_first_not_of(' ');
    rest.remove_prefix(begin == std::string_view::npos ? rest.size() : begin);
    if (field == 22) {
      break;
    }
    const auto end = rest.find(' ');
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end);
  }
  std::uint64_t value = 0;
  if (std::from_chars(rest.data(), rest.data() + rest.size(), value).ec != std::errc{}) {
    return fail(Code::internal, fmt::format("/proc/{}/stat has no start time", pid));
  }
  return value;
}

Result<bool> wait_readable(int fd, std::chrono::milliseconds deadline) {
  const auto until = std::chrono::steady_clock::now() + deadline;
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    pollfd wait{fd, POLLIN, 0};
    const int n = poll(&wait, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (n > 0) {
      return true;
    }
    if (n < 0 && errno != EINTR) {
      return fail_sys(errno, "poll");
    }
    if (n == 0 && left.count() <= 0) {
      return false;
    }
  }
}

std::optional<int> exit_status(int pidfd) {
  struct Info {  // struct pidfd_info of linux/pidfd.h, first version
    std::uint64_t mask;
    std::uint64_t cgroup;
    std::uint32_t ids[11];
    std::int32_t exit_code;
  };
  static_assert(sizeof(Info) == 64);
  constexpr std::uint64_t kExit = 1u << 3;
  Info info{.mask = kExit, .cgroup = 0, .ids = {}, .exit_code = 0};
  if (ioctl(pidfd, _IOWR(0xFF, 11, Info), &info) != 0 || (info.mask & kExit) == 0) {
    return std::nullopt;
  }
  return info.exit_code;
}

Result<UniqueFd> mount_namespace(int pidfd, pid_t pid) {
  constexpr unsigned long kGetMountNamespace = _IO(0xFF, 3);  // linux/pidfd.h
  UniqueFd fd{ioctl(pidfd, kGetMountNamespace, 0)};
  if (!fd && (errno == ENOTTY || errno == EINVAL)) {
    return open_at(AT_FDCWD, fmt::format("/proc/{}/ns/mnt", pid), O_RDONLY);
  }
  if (!fd) {
    return fail_sys(errno, "get the mount namespace of a process");
  }
  return fd;
}

Result<UniqueFd> copy_descriptor(int pidfd, int number) {
  UniqueFd fd{static_cast<int>(syscall(SYS_pidfd_getfd, pidfd, number, 0))};
  if (!fd) {
    return fail_sys(errno, "pidfd_getfd");
  }
  return fd;
}

}  // namespace talon::isolate::kernel
