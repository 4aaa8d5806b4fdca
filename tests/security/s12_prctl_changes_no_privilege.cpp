// S12: prctl cannot move the memory map's marks, unlock securebits, raise ambient capabilities or
// take no_new_privs back; the old entry points of time calls are no way around the filter.

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("S12: PR_SET_MM, securebits, ambient and no_new_privs stay; vsyscall is as on the host") {
  TALON_NEED_SANDBOXES();
  from_every_side([](Attacker& a) {
    CHECK(a.attempt({"prctl-set-mm"}) == "EPERM");
    CHECK(a.attempt({"prctl-securebits"}) == "EPERM");
    CHECK(a.attempt({"prctl-ambient"}) == "EPERM");
    CHECK(a.attempt({"prctl-no-new-privs-off"}) == "EINVAL");
    const Finding caps = a.look({"caps"});
    CHECK(caps["no_new_privs"] == "1");
    CHECK(caps["ambient"] == "0000000000000000");
#ifdef __x86_64__
    CHECK(a.attempt({"vsyscall"}) == attempt_outside({"vsyscall"}));
#endif
  });
  // Without the filter it is the missing SETPCAP and SYS_RESOURCE that refuse.
  from_every_side(
      [](Attacker& a) {
        CHECK(a.attempt({"prctl-set-mm"}) == "EPERM");
        CHECK(a.attempt({"prctl-securebits"}) == "EPERM");
        CHECK(a.attempt({"prctl-ambient"}) == "EPERM");
      },
      {.spec = without_filter});
  CHECK(attempt_outside({"prctl-securebits"}) == "OK");  // the control
}
