// What the filter answers, by running it as the kernel would (runtime.md §7, S1-S13).

#include <linux/audit.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <cerrno>

#include "isolate/seccomp.h"

using namespace talon;
using namespace talon::isolate::seccomp;

namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kArch = AUDIT_ARCH_X86_64;
constexpr std::uint32_t kForeign = AUDIT_ARCH_I386;
#else
constexpr std::uint32_t kArch = AUDIT_ARCH_AARCH64;
constexpr std::uint32_t kForeign = AUDIT_ARCH_ARM;
#endif

std::span<const sock_filter> native() { return native_filter(); }

bool same(std::span<const sock_filter> one, std::span<const sock_filter> other) {
  return std::ranges::equal(one, other, [](const sock_filter& a, const sock_filter& b) {
    return a.code == b.code && a.jt == b.jt && a.jf == b.jf && a.k == b.k;
  });
}

Verdict ask(long number, std::array<std::uint64_t, 6> arguments = {}) {
  return interpret(native(), kArch, static_cast<std::uint32_t>(number), arguments);
}

}  // namespace

TEST_CASE("what libc and language runtimes need is allowed") {
  for (const long number : std::initializer_list<long>{SYS_read,
                                                       SYS_write,
                                                       SYS_openat,
                                                       SYS_mmap,
                                                       SYS_execve,
                                                       SYS_exit_group,
                                                       SYS_futex,
                                                       SYS_rseq,
                                                       SYS_set_robust_list,
                                                       SYS_getrandom,
                                                       SYS_clone3,
                                                       SYS_wait4,
                                                       SYS_pidfd_open,
                                                       SYS_epoll_pwait,
                                                       SYS_statx,
                                                       SYS_prlimit64,
                                                       SYS_ptrace,
                                                       SYS_memfd_create,
                                                       SYS_setresuid,
                                                       SYS_setgroups,
                                                       SYS_capset,
                                                       SYS_waitid,
                                                       SYS_close_range,
                                                       SYS_openat2,
#if defined(__x86_64__)
                                                       SYS_arch_prctl,
                                                       SYS_fork,
                                                       SYS_vfork,
                                                       SYS_open,
                                                       SYS_poll,
#endif
                                                       449L,
                                                       451L,
                                                       452L,
                                                       462L}) {
    INFO("call " << number);
    CHECK(ask(number) == allow());
  }
}

TEST_CASE("S4-S7: known dangerous calls are EPERM") {
  for (const long number : std::initializer_list<long>{SYS_bpf,
                                                       SYS_perf_event_open,
                                                       SYS_userfaultfd,
                                                       SYS_io_uring_setup,
                                                       SYS_io_uring_enter,
                                                       SYS_io_uring_register,
                                                       SYS_kexec_load,
                                                       SYS_init_module,
                                                       SYS_finit_module,
                                                       SYS_delete_module,
                                                       SYS_open_by_handle_at,
                                                       SYS_swapon,
                                                       SYS_reboot,
                                                       SYS_settimeofday,
                                                       SYS_clock_settime,
                                                       SYS_acct,
                                                       SYS_quotactl,
                                                       SYS_move_pages,
                                                       SYS_mbind,
                                                       SYS_keyctl,
                                                       SYS_add_key,
                                                       SYS_request_key,
                                                       SYS_setns,
                                                       SYS_mount,
                                                       SYS_umount2,
                                                       SYS_pivot_root,
                                                       SYS_chroot,
                                                       SYS_fsopen,
                                                       SYS_fsconfig,
                                                       SYS_fsmount,
                                                       SYS_fspick,
                                                       SYS_move_mount,
                                                       SYS_open_tree,
                                                       SYS_mount_setattr,
                                                       SYS_sethostname,
                                                       SYS_syslog,
#if defined(__x86_64__)
                                                       SYS_iopl,
                                                       SYS_ioperm,
                                                       SYS_modify_ldt,
#endif
                                                       467L}) {
    INFO("call " << number);
    CHECK(ask(number) == deny(EPERM));
  }
}

TEST_CASE("S2: unknown and future calls are ENOSYS") {
  for (const std::uint32_t number : {500u, 511u, 9999u, 0x7fffffffu, 0xffffffffu}) {
    CHECK(ask(number) == deny(ENOSYS));
  }
}

#if defined(__x86_64__)
TEST_CASE("S3: a foreign architecture is killed, x32 does not exist") {
  for (const std::uint32_t number : {0u, 1u, 11u, 120u, 9999u}) {
    CHECK(interpret(native(), kForeign, number, std::array<std::uint64_t, 6>{}) == kill());
  }
  for (const std::uint32_t number : {0x40000000u, 0x40000001u, 0x40000208u}) {
    CHECK(ask(number) == deny(ENOSYS));
  }
}

TEST_CASE("compat32 adds 32-bit x86 with the same rules and leaves x86_64 as it was") {
  const std::span<const sock_filter> filter = compat32_filter().value();
  const auto ask32 = [&filter](std::uint32_t number, std::array<std::uint64_t, 6> arguments = {}) {
    return interpret(filter, AUDIT_ARCH_I386, number, arguments);
  };
  CHECK(ask32(4) == allow());         // write
  CHECK(ask32(243) == allow());       // set_thread_area
  CHECK(ask32(21) == deny(EPERM));    // mount
  CHECK(ask32(102) == deny(ENOSYS));  // socketcall
  CHECK(ask32(359, {AF_UNIX}) == allow());
  CHECK(ask32(359, {AF_ALG}) == deny(EAFNOSUPPORT));
  CHECK(ask32(120, {CLONE_NEWUSER}) == deny(EPERM));
  CHECK(ask32(9999) == deny(ENOSYS));
  for (std::uint32_t number = 0; number < 512; ++number) {
    const std::array<std::uint64_t, 6> none{};
    CHECK(interpret(filter, kArch, number, none) == ask(number));
  }
  CHECK(interpret(filter, AUDIT_ARCH_ARM, 4, std::array<std::uint64_t, 6>{}) == kill());
}
#endif

TEST_CASE("S6: clone and unshare with any new namespace are EPERM, threads and forks work") {
  constexpr std::uint64_t kThread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND |
                                    CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS |
                                    CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
  CHECK(ask(SYS_clone, {kThread}) == allow());
  CHECK(ask(SYS_clone, {17}) == allow());  // fork by clone: SIGCHLD
  CHECK(ask(SYS_unshare, {CLONE_FILES | CLONE_FS}) == allow());
  for (const std::uint64_t flag : {CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER,
                                   CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWCGROUP}) {
    CHECK(ask(SYS_clone, {flag | 17}) == deny(EPERM));
    CHECK(ask(SYS_clone, {flag | 17 | 0xffffffff'00000000ull}) == deny(EPERM));
    CHECK(ask(SYS_unshare, {flag}) == deny(EPERM));
  }
  CHECK(ask(SYS_unshare, {0x80}) == deny(EPERM));  // CLONE_NEWTIME
}

TEST_CASE("S10: sockets by family, netlink only as rtnetlink") {
  CHECK(ask(SYS_socket, {AF_UNIX, SOCK_STREAM, 0}) == allow());
  CHECK(ask(SYS_socket, {AF_INET, SOCK_STREAM, 0}) == allow());
  CHECK(ask(SYS_socket, {AF_INET6, SOCK_DGRAM, 0}) == allow());
  CHECK(ask(SYS_socket, {AF_NETLINK, SOCK_RAW, 0}) == allow());
  CHECK(ask(SYS_socket, {AF_NETLINK, SOCK_RAW, 12}) == deny(EAFNOSUPPORT));  // netfilter
  CHECK(ask(SYS_socket, {AF_NETLINK, SOCK_RAW, 16}) == deny(EAFNOSUPPORT));  // generic
  for (const std::uint64_t family : {AF_VSOCK, AF_ALG, AF_PACKET, AF_BLUETOOTH, AF_XDP, 99}) {
    CHECK(ask(SYS_socket, {family, SOCK_STREAM, 0}) == deny(EAFNOSUPPORT));
    // The kernel reads an int: the upper half must not make another family of it.
    CHECK(ask(SYS_socket, {family | 1ull << 32, SOCK_STREAM, 0}) == deny(EAFNOSUPPORT));
    // socketpair has the kernel load the family's module, too.
    CHECK(ask(SYS_socketpair, {family, SOCK_STREAM, 0}) == deny(EAFNOSUPPORT));
  }
  CHECK(ask(SYS_socketpair, {AF_UNIX, SOCK_SEQPACKET, 0}) == allow());
  CHECK(ask(SYS_socketpair, {30 /* AF_TIPC */, SOCK_STREAM, 0}) == deny(EAFNOSUPPORT));
}

TEST_CASE("S8: TIOCSTI and TIOCLINUX are refused on the low 32 bits") {
  CHECK(ask(SYS_ioctl, {0, 0x5412}) == deny(EPERM));
  CHECK(ask(SYS_ioctl, {0, 0x5412 | 1ull << 32}) == deny(EPERM));  // CVE-2019-10063
  CHECK(ask(SYS_ioctl, {0, 0x541c}) == deny(EPERM));
  CHECK(ask(SYS_ioctl, {0, 0x5413}) == allow());  // TIOCGWINSZ
}

TEST_CASE("S9 and S12: personality and prctl by value") {
  for (const std::uint64_t value : {0ull, 8ull, 0x20000ull, 0xffffffffull}) {
    CHECK(ask(SYS_personality, {value}) == allow());
  }
  CHECK(ask(SYS_personality, {0x40000}) == deny(EPERM));   // ADDR_NO_RANDOMIZE
  CHECK(ask(SYS_personality, {0x400000}) == deny(EPERM));  // READ_IMPLIES_EXEC
  CHECK(ask(SYS_prctl, {PR_SET_MM}) == deny(EPERM));
  CHECK(ask(SYS_prctl, {PR_SET_SECUREBITS}) == deny(EPERM));
  CHECK(ask(SYS_prctl, {PR_SET_NAME}) == allow());
  CHECK(ask(SYS_prctl, {PR_CAPBSET_DROP}) == allow());  // exec children drop theirs
}

TEST_CASE("the filters in the binary are what the policies compile to now") {
  CHECK(same(native_filter(), compile(std::array{native_policy()}).value()));
  CHECK(check_filters().has_value());
#if defined(__x86_64__)
  CHECK(same(compat32_filter().value(),
             compile(std::array{native_policy(), compat32_policy()}).value()));
#else
  CHECK(compat32_filter().error().code == Code::unenforceable);
#endif
}

TEST_CASE("S13: the self-check finds a filter that disagrees with the policy") {
  const std::array policies{native_policy()};
  Program program = compile(policies).value();
  CHECK(self_check(program, policies).has_value());
  for (auto& instruction : program) {  // one EPERM becomes allowed
    if (instruction.code == (BPF_RET | BPF_K) && instruction.k == deny(EPERM)) {
      instruction.k = allow();
      break;
    }
  }
  CHECK_FALSE(self_check(program, policies).has_value());
}

TEST_CASE("the search keeps paths short: cost follows the path, not the size") {
  // Counted by interpreting with a step budget: cut the program's reach instead of timing it.
  const std::span<const sock_filter> program = native();
  CHECK(program.size() < 400);
  std::size_t longest = 0;
  for (std::uint32_t number = 0; number < 512; ++number) {
    std::size_t steps = 0;
    std::size_t pc = 0;
    while ((program[pc].code & 0x07) != BPF_RET && steps < 1000) {
      const auto& in = program[pc];
      std::size_t skip = 0;
      if (in.code == (BPF_JMP | BPF_JA)) {
        skip = in.k;
      } else if (in.code == (BPF_JMP | BPF_JGE | BPF_K)) {
        skip = number >= in.k ? in.jt : in.jf;
      } else if (in.code == (BPF_JMP | BPF_JEQ | BPF_K)) {
        skip = in.k == kArch ? in.jt : in.jf;
      }
      pc += 1 + skip;
      ++steps;
    }
    longest = std::max(longest, steps);
  }
  CHECK(longest < 40);
}
