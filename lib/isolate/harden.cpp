#include "isolate/harden.h"

#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

namespace talon::isolate {

namespace {

Result<> keep_capabilities(std::uint64_t wanted) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  if (syscall(SYS_capget, &header, data) != 0) {
    return fail_sys(errno, "read capabilities");
  }
  for (unsigned capability = 0; capability < 64; ++capability) {
    if ((wanted >> capability & 1) == 0 && prctl(PR_CAPBSET_READ, capability, 0, 0, 0) == 1 &&
        prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) {
      return fail_sys(errno, "drop a capability from the bounding set");
    }
  }
  for (unsigned half = 0; half < 2; ++half) {
    data[half].permitted &= static_cast<std::uint32_t>(wanted >> 32 * half);
    data[half].effective = data[half].permitted;
    data[half].inheritable = 0;
  }
  if (syscall(SYS_capset, &header, data) != 0) {
    return fail_sys(errno, "drop capabilities");
  }
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  return {};
}

// clang-format off: a table
constexpr const char* kDenied[] = {
    // another kernel, code in this one, or a language for it
    "bpf", "create_module", "delete_module", "finit_module", "init_module", "kexec_file_load",
    "kexec_load", "perf_event_open",
    // interfaces with a history of holes that nothing of ours asks for
    "io_uring_enter", "io_uring_register", "io_uring_setup", "lookup_dcookie", "modify_ldt",
    "move_pages", "migrate_pages", "nfsservctl", "uselib", "userfaultfd", "vm86", "vm86old",
    // the machine: ports, power, swap, time, accounting, its log and its keys
    "acct", "add_key", "clock_settime", "clock_settime64", "ioperm", "iopl", "pciconfig_read",
    "pciconfig_write", "reboot", "request_key", "settimeofday", "stime", "swapoff", "swapon",
    "syslog", "vhangup",
};
// clang-format on

}  // namespace

Result<> give_up_all_but(std::uint64_t capabilities) {
  TALON_CHECK(keep_capabilities(capabilities));
  const rlimit none{};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 ||
      setrlimit(RLIMIT_CORE, &none) != 0) {
    return fail_sys(errno, "close the process");
  }
  return {};
}

Result<> deny_calls() {
  if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) < 0) {
    return {};  // HostFacts says so, and no sandbox is made
  }
  const std::unique_ptr<void, void (*)(void*)> filter{seccomp_init(SCMP_ACT_ALLOW),
                                                      seccomp_release};
  if (filter == nullptr) {
    return fail(Code::internal, "make the daemon's system call filter");
  }
  // libseccomp answers as the kernel does: a negative errno.
  int error = seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2);
  // x32, and on x86 the 32-bit table where it is not added below.
  error = error != 0
              ? error
              : seccomp_attr_set(filter.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS));
#ifdef __x86_64__
  error = error != 0 ? error : seccomp_arch_add(filter.get(), SCMP_ARCH_X86);
#endif
  for (const char* name : kDenied) {
    const int number = seccomp_syscall_resolve_name(name);
    if (error == 0 && number != __NR_SCMP_ERROR) {
      error = seccomp_rule_add(filter.get(), SCMP_ACT_ERRNO(EPERM), number, 0);
    }
  }
  error = error != 0 ? error : seccomp_load(filter.get());
  return error == 0 ? Result<>{} : fail_sys(-error, "load the daemon's system call filter");
}

}  // namespace talon::isolate
