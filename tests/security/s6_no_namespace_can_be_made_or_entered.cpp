// S6: a user namespace would give every capability over whatever it owns, and with it the kernel's
// widest attack surface.

#include <sched.h>
#include <sys/syscall.h>

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("S6: unshare, clone and setns are EPERM for every kind of namespace") {
  TALON_NEED_SANDBOXES();
  const char* kinds[] = {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"};
  from_every_side([&](Attacker& a) {
    for (const char* kind : kinds) {
      INFO(kind);
      CHECK(a.attempt({"unshare", kind}) == "EPERM");
      CHECK(a.attempt({"clone", kind}) == "EPERM");
      CHECK(a.attempt({"setns", kind}) == "EPERM");
    }
    CHECK(a.attempt({"unshare", "time"}) == "EPERM");
    CHECK(a.attempt({"unshare-user-mount"}) == "EPERM");
    CHECK(a.attempt({"clone", "none"}) == "OK");
    // The kernel looks at 32 bits of unshare's argument and at all of clone's; high bits hide none.
    CHECK(a.attempt({"syscall", std::to_string(SYS_unshare),
                     std::to_string(0x7f00000000000000 | CLONE_NEWUSER)}) == "EPERM");
  });
  // The second line, without the filter: none left, and no SYS_ADMIN for the rest.
  from_every_side(
      [&](Attacker& a) {
        for (const char* kind : kinds) {
          INFO(kind);
          const std::string want = std::string{kind} == "user" ? "ENOSPC" : "EPERM";
          CHECK(a.attempt({"unshare", kind}) == want);
          CHECK(a.attempt({"clone", kind}) == want);
        }
      },
      {.spec = without_filter});
  for (const char* kind : kinds) {
    INFO(kind);
    CHECK(attempt_outside({"unshare", kind}) == "OK");  // the control
  }
}
