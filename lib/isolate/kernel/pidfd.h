#pragma once
// Processes by pidfd, and the facts of /proc that identify one (decision 10).

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>

#include "base/error.h"
#include "base/fd.h"

namespace talon::isolate::kernel {

Result<PidFd> open_pidfd(pid_t pid);
// Field 22 of /proc/<pid>/stat: clock ticks from boot to its start. not_found if it is gone.
Result<std::uint64_t> start_time(pid_t pid);
// Waits until a descriptor is readable; false when the deadline passed first.
Result<bool> wait_readable(int fd, std::chrono::milliseconds deadline);
// waitpid's status of a process that somebody else has reaped: PIDFD_INFO_EXIT, Linux 6.15 and
// newer.
std::optional<int> exit_status(int pidfd);
// The mount namespace of a process (before Linux 6.11 by /proc, where `pid` must still be its).
Result<UniqueFd> mount_namespace(int pidfd, pid_t pid);
// A copy of another process's descriptor (man 2 pidfd_getfd; needs SYS_PTRACE).
Result<UniqueFd> copy_descriptor(int pidfd, int number);

}  // namespace talon::isolate::kernel
