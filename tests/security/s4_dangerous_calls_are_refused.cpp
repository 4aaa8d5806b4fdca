// S4: calls with a history of kernel bugs or with power over the host, each EPERM by the filter:
// most have arguments at which the kernel itself would say EFAULT or EINVAL.

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("S4: dangerous calls are EPERM") {
  TALON_NEED_SANDBOXES();
  const char* calls[] = {
      "bpf",
      "perf_event_open",
      "userfaultfd",
      "io_uring_setup",
      "io_uring_enter",
      "io_uring_register",
      "kexec_load",
      "kexec_file_load",
      "init_module",
      "finit_module",
      "delete_module",
      "reboot",
      "swapon",
      "swapoff",
      "acct",
      "settimeofday",
      "clock_settime",
      "quotactl",
      "syslog",
      "sethostname",
      "setdomainname",
      "lookup_dcookie",
      "vhangup",
      "move_pages",
      "migrate_pages",
      "mbind",
      "set_mempolicy",
      "fanotify_init",
      "open_by_handle_at",
#ifdef __x86_64__
      "iopl",
      "ioperm",
      "modify_ldt",
#endif
  };
  from_every_side([&](Attacker& a) {
    for (const char* call : calls) {
      INFO(call);
      CHECK(a.attempt({call}) == "EPERM");
    }
    for (const char* call : {"nfsservctl", "uselib", "ustat", "sysfs"}) {
      INFO(call);
      CHECK(a.attempt({call}) == "ENOSYS");  // of another age
    }
  });
  // The control: what root on the host gets from the kernel is another answer.
  CHECK(attempt_outside({"settimeofday"}) == "OK");
  CHECK(attempt_outside({"clock_settime"}) == "EINVAL");
  CHECK(attempt_outside({"swapoff"}) == "ENOENT");
  CHECK(attempt_outside({"set_mempolicy"}) == "OK");
  CHECK(attempt_outside({"open_by_handle_at"}) != "EPERM");
  // And without the filter these would reach the kernel from inside.
  from_every_side(
      [](Attacker& a) {
        CHECK(a.attempt({"set_mempolicy"}) == "OK");
        CHECK(a.attempt({"modify_ldt"}) != "EPERM");
        CHECK(a.attempt({"io_uring_enter"}) != "EPERM");
      },
      {.spec = without_filter});
}
