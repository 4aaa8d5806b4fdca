// S1 as decision 4 has it: clone3 is allowed (init needs it, threads use it); no user namespace is
// left to be made, and every other kind needs SYS_ADMIN.

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("S1: clone3 makes processes and threads but no namespace") {
  TALON_NEED_SANDBOXES();
  const auto attack = [](Attacker& a) {
    CHECK(a.attempt({"clone3-plain"}) == "OK");
    CHECK(a.attempt({"clone3", "none"}) == "OK");
    CHECK(a.attempt({"thread"}) == "OK");
    CHECK(a.look({"thread-status"})["made"] == "OK");
    CHECK(a.attempt({"clone3", "user"}) == "ENOSPC");
    for (const char* kind : {"mnt", "pid", "net", "ipc", "uts", "cgroup", "time"}) {
      INFO(kind);
      CHECK(a.attempt({"clone3", kind}) == "EPERM");
    }
    // Into a cgroup that is visible: the mount is read-only and its files are not the workload's.
    CHECK(a.attempt({"clone3-cgroup"}) != "OK");
  };
  from_every_side(attack);
  from_every_side(attack, {.spec = without_filter});
  CHECK(attempt_outside({"clone3", "user"}) == "OK");  // the control
  CHECK(attempt_outside({"clone3", "mnt"}) == "OK");
}
