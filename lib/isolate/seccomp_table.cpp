// The policy as data: which calls, which verdict. Reviewed against the tables of man 2 syscalls
// and runtime.md §7 (S1-S12).

#include <linux/audit.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "isolate/seccomp.h"

namespace talon::isolate::seccomp {

Verdict allow() { return SECCOMP_RET_ALLOW; }
Verdict deny(int error) {
  return SECCOMP_RET_ERRNO | (static_cast<std::uint32_t>(error) & SECCOMP_RET_DATA);
}
Verdict kill() { return SECCOMP_RET_KILL_PROCESS; }

namespace {

// clang-format off: tables
constexpr const char* kAllowed[] = {
    // files
    "access", "chdir", "chmod", "chown", "chown32", "close", "close_range", "copy_file_range",
    "creat", "dup", "dup2", "dup3", "faccessat", "faccessat2", "fadvise64", "fadvise64_64",
    "arm_fadvise64_64", "fallocate", "fchdir", "fchmod", "fchmodat", "fchown", "fchown32",
    "fchownat", "fcntl", "fcntl64", "fdatasync", "fgetxattr", "flistxattr", "flock",
    "fremovexattr", "fsetxattr", "fstat", "fstat64", "fstatat64", "fstatfs", "fstatfs64", "fsync",
    "ftruncate", "ftruncate64", "futimesat", "getcwd", "getdents", "getdents64", "getxattr",
    "inotify_add_watch", "inotify_init", "inotify_init1", "inotify_rm_watch", "lchown",
    "lchown32", "lgetxattr", "link", "linkat", "listxattr", "llistxattr", "_llseek", "lremovexattr",
    "lseek", "lsetxattr", "lstat", "lstat64", "mkdir", "mkdirat", "mknod", "mknodat",
    "name_to_handle_at", "newfstatat", "oldfstat", "oldlstat", "oldstat", "open", "openat",
    "openat2", "pipe", "pipe2", "pread64", "preadv", "preadv2", "pwrite64", "pwritev", "pwritev2",
    "read", "readahead", "readdir", "readlink", "readlinkat", "readv", "removexattr", "rename",
    "renameat", "renameat2", "rmdir", "sendfile", "sendfile64", "setxattr", "splice", "stat",
    "stat64", "statfs", "statfs64", "statx", "symlink", "symlinkat", "sync", "sync_file_range",
    "arm_sync_file_range", "syncfs", "tee", "truncate", "truncate64", "umask", "unlink",
    "unlinkat", "utime", "utimensat", "utimensat_time64", "utimes", "vmsplice", "write", "writev",
    // memory
    "brk", "madvise", "membarrier", "memfd_create", "memfd_secret", "mincore", "mlock", "mlock2",
    "mlockall", "mmap", "mmap2", "mprotect", "mremap", "msync", "munlock", "munlockall", "munmap",
    "pkey_alloc", "pkey_free", "pkey_mprotect", "process_madvise", "process_mrelease",
    "process_vm_readv", "process_vm_writev", "remap_file_pages", "shmat", "shmctl", "shmdt",
    "shmget",
    // processes and threads
    "alarm", "arch_prctl", "capget", "capset", "clone3", "execve", "execveat", "exit",
    "exit_group", "fork", "futex", "futex_time64", "futex_waitv", "get_robust_list",
    "get_thread_area", "getcpu", "getegid", "getegid32", "geteuid", "geteuid32", "getgid",
    "getgid32", "getgroups", "getgroups32", "getpgid", "getpgrp", "getpid", "getppid",
    "getpriority", "getresgid", "getresgid32", "getresuid", "getresuid32", "getrlimit",
    "getrusage", "getsid", "gettid", "getuid", "getuid32", "ioprio_get", "ioprio_set", "kcmp",
    "kill", "landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self", "nice",
    "pause", "pidfd_getfd", "pidfd_open", "pidfd_send_signal", "prlimit64", "ptrace",
    "restart_syscall", "rseq", "sched_get_priority_max", "sched_get_priority_min",
    "sched_getaffinity", "sched_getattr", "sched_getparam", "sched_getscheduler",
    "sched_rr_get_interval", "sched_rr_get_interval_time64", "sched_setaffinity", "sched_setattr",
    "sched_setparam", "sched_setscheduler", "sched_yield", "seccomp", "set_robust_list",
    "set_thread_area", "set_tid_address", "setfsgid", "setfsgid32", "setfsuid", "setfsuid32",
    "setgid", "setgid32", "setgroups", "setgroups32", "setpgid", "setpriority", "setregid",
    "setregid32", "setresgid", "setresgid32", "setresuid", "setresuid32", "setreuid",
    "setreuid32", "setrlimit", "setsid", "setuid", "setuid32", "sysinfo", "tgkill", "times",
    "tkill", "ugetrlimit", "uname", "vfork", "wait4", "waitid", "waitpid",
    // signals, time, waiting
    "adjtimex", "clock_adjtime", "clock_adjtime64", "clock_getres", "clock_getres_time64",
    "clock_gettime", "clock_gettime64", "clock_nanosleep", "clock_nanosleep_time64",
    "epoll_create", "epoll_create1", "epoll_ctl", "epoll_ctl_old", "epoll_pwait", "epoll_pwait2",
    "epoll_wait", "epoll_wait_old", "eventfd", "eventfd2", "getitimer", "gettimeofday",
    "nanosleep", "_newselect", "poll", "ppoll", "ppoll_time64", "pselect6", "pselect6_time64",
    "rt_sigaction", "rt_sigpending", "rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn",
    "rt_sigsuspend", "rt_sigtimedwait", "rt_sigtimedwait_time64", "rt_tgsigqueueinfo", "select",
    "setitimer", "sigaction", "sigaltstack", "signal", "signalfd", "signalfd4", "sigpending",
    "sigprocmask", "sigreturn", "sigsuspend", "time", "timer_create", "timer_delete",
    "timer_getoverrun", "timer_gettime", "timer_gettime64", "timer_settime", "timer_settime64",
    "timerfd_create", "timerfd_gettime", "timerfd_gettime64", "timerfd_settime",
    "timerfd_settime64",
    // sockets and System V or POSIX messages
    "accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt", "ipc",
    "listen", "mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive",
    "mq_timedreceive_time64", "mq_timedsend", "mq_timedsend_time64", "mq_unlink", "msgctl",
    "msgget", "msgrcv", "msgsnd", "recv", "recvfrom", "recvmmsg", "recvmmsg_time64", "recvmsg",
    "semctl", "semget", "semop", "semtimedop", "semtimedop_time64", "send", "sendmmsg", "sendmsg",
    "sendto", "setsockopt", "shutdown",
    // asynchronous I/O of the old kind, randomness
    "getrandom", "io_cancel", "io_destroy", "io_getevents", "io_pgetevents",
    "io_pgetevents_time64", "io_setup", "io_submit",
};

// Harmless calls newer than the libseccomp we build with. Since Linux 5.1 new calls have one
// number on every architecture (include/uapi/asm-generic/unistd.h).
constexpr std::uint32_t kAllowedNumbers[] = {
    449,                 // futex_waitv
    451,                 // cachestat
    452,                 // fchmodat2
    453,                 // map_shadow_stack
    454, 455, 456,       // futex_wake, futex_wait, futex_requeue
    462,                 // mseal
    463, 464, 465, 466,  // setxattrat, getxattrat, listxattrat, removexattrat
    468, 469,            // file_getattr, file_setattr
};

// Known and dangerous: EPERM (S4-S7), so that a program reports it rather than falls back.
constexpr const char* kForbidden[] = {
    "acct", "add_key", "bpf", "chroot", "clock_settime", "clock_settime64", "create_module",
    "delete_module", "fanotify_init", "fanotify_mark", "finit_module", "fsconfig", "fsmount",
    "fsopen", "fspick", "get_mempolicy", "init_module", "io_uring_enter", "io_uring_register",
    "io_uring_setup", "ioperm", "iopl", "kexec_file_load", "kexec_load", "keyctl",
    "lookup_dcookie", "mbind", "migrate_pages", "modify_ldt", "mount", "mount_setattr",
    "move_mount", "move_pages", "open_by_handle_at", "open_tree", "perf_event_open",
    "pivot_root", "quotactl", "quotactl_fd", "reboot", "request_key", "set_mempolicy",
    "set_mempolicy_home_node", "setdomainname", "sethostname", "setns", "settimeofday", "stime",
    "swapoff", "swapon", "syslog", "umount", "umount2", "userfaultfd", "vhangup", "vm86",
    "vm86old",
};
constexpr std::uint32_t kForbiddenNumbers[] = {467};  // open_tree_attr
// clang-format on

// CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID, NET; in clone(2) the byte of CLONE_NEWTIME (0x80)
// belongs to the exit signal.
constexpr std::uint32_t kNewNamespaces = 0x7e020000;
constexpr std::uint32_t kNewTime = 0x80;
constexpr std::uint32_t kLow = 0xffffffff;
constexpr std::uint32_t kTiocsti = 0x5412;
constexpr std::uint32_t kTioclinux = 0x541c;

std::vector<Entry> by_arguments() {
  std::vector<Entry> out;
  out.push_back({0, "clone", {{{{0, kNewNamespaces, 0}}, allow()}}, deny(EPERM)});
  out.push_back({0, "unshare", {{{{0, kNewNamespaces | kNewTime, 0}}, allow()}}, deny(EPERM)});
  out.push_back({0,
                 "socket",
                 {{{{0, kLow, AF_UNIX}}, allow()},
                  {{{0, kLow, AF_INET}}, allow()},
                  {{{0, kLow, AF_INET6}}, allow()},
                  {{{0, kLow, AF_NETLINK}, {2, kLow, 0}}, allow()}},  // NETLINK_ROUTE only
                 deny(EAFNOSUPPORT)});
  // It makes sockets too, and has the kernel load a family's module before it says no.
  out.push_back({0, "socketpair", {{{{0, kLow, AF_UNIX}}, allow()}}, deny(EAFNOSUPPORT)});
  out.push_back({0,
                 "ioctl",
                 {{{{1, kLow, kTiocsti}}, deny(EPERM)}, {{{1, kLow, kTioclinux}}, deny(EPERM)}},
                 allow()});
  out.push_back({0,
                 "personality",
                 {{{{0, kLow, 0}}, allow()},
                  {{{0, kLow, 0x8}}, allow()},      // PER_LINUX32
                  {{{0, kLow, 0x20000}}, allow()},  // UNAME26
                  {{{0, kLow, 0x20008}}, allow()},
                  {{{0, kLow, 0xffffffff}}, allow()}},  // ask
                 deny(EPERM)});
  out.push_back(
      {0,
       "prctl",
       {{{{0, kLow, PR_SET_MM}}, deny(EPERM)}, {{{0, kLow, PR_SET_SECUREBITS}}, deny(EPERM)}},
       allow()});
  return out;
}

// libseccomp names i386's direct socket calls by negative numbers, because it rewrites them to
// socketcall(2), which we refuse (its arguments lie behind a pointer). These are the real ones
// (arch/x86/entry/syscalls/syscall_32.tbl).
int resolve_name(std::uint32_t scmp_arch, const std::string& name) {
  static const std::map<std::string, int> kSockets = {
      {"socket", 359},      {"socketpair", 360},  {"bind", 361},       {"connect", 362},
      {"listen", 363},      {"accept4", 364},     {"getsockopt", 365}, {"setsockopt", 366},
      {"getsockname", 367}, {"getpeername", 368}, {"sendto", 369},     {"sendmsg", 370},
      {"recvfrom", 371},    {"recvmsg", 372},     {"shutdown", 373}};
  if (scmp_arch == SCMP_ARCH_X86) {
    if (const auto at = kSockets.find(name); at != kSockets.end()) {
      return at->second;
    }
  }
  return seccomp_syscall_resolve_name_arch(scmp_arch, name.c_str());
}

Policy resolve(std::uint32_t scmp_arch, std::uint32_t audit_arch) {
  std::map<std::uint32_t, Entry> table;  // sorted, and a later line of the table replaces
  const auto put = [&](Entry entry) {
    const int number = resolve_name(scmp_arch, entry.name);
    if (number >= 0) {  // negative: this architecture has no such call
      entry.number = static_cast<std::uint32_t>(number);
      table.insert_or_assign(entry.number, std::move(entry));
    }
  };
  for (const char* name : kAllowed) {
    put({0, name, {}, allow()});
  }
  for (const char* name : kForbidden) {
    put({0, name, {}, deny(EPERM)});
  }
  for (Entry& entry : by_arguments()) {
    put(std::move(entry));
  }
  for (const std::uint32_t number : kAllowedNumbers) {
    table.try_emplace(number, Entry{number, "#" + std::to_string(number), {}, allow()});
  }
  for (const std::uint32_t number : kForbiddenNumbers) {
    table.try_emplace(number, Entry{number, "#" + std::to_string(number), {}, deny(EPERM)});
  }
  Policy policy{audit_arch, {}};
  for (auto& [number, entry] : table) {
    policy.entries.push_back(std::move(entry));
  }
  return policy;
}

}  // namespace

Policy native_policy() {
#if defined(__x86_64__)
  return resolve(SCMP_ARCH_X86_64, AUDIT_ARCH_X86_64);
#elif defined(__aarch64__)
  return resolve(SCMP_ARCH_AARCH64, AUDIT_ARCH_AARCH64);
#else
#error "no seccomp policy for this architecture"
#endif
}

Policy compat32_policy() {
#if defined(__x86_64__)
  // socketcall(2) stays ENOSYS; glibc has used the direct calls since 2.23.
  return resolve(SCMP_ARCH_X86, AUDIT_ARCH_I386);
#else
  return {0, {}};
#endif
}

}  // namespace talon::isolate::seccomp
