// F4 with SYS_PTRACE granted: a process in the sandbox's namespaces that holds every capability of
// the user namespace. Init was executed outside of it, so its memory belongs to the host's.

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("F4: with every capability of its namespace a process still cannot open init") {
  TALON_NEED_SANDBOXES();
  from_every_side(
      [](Attacker& a) {
        const pid_t init = a.box->identity().host_pid;
        const Finding caps = inside_with_all(init, {"caps"}).at(0);
        CHECK(Attacker::number(caps, "no_new_privs") == 0);
        CHECK((std::stoull(caps["effective"], nullptr, 16) >> 19 & 1) == 1);  // SYS_PTRACE is there
        for (const char* name : {"ptrace-init", "ptrace-seize-init", "vm-read-init",
                                 "vm-write-init", "pidfd-getfd-init"}) {
          INFO(name);
          CHECK(outcome(inside_with_all(init, {"try", name})) == "EPERM");
        }
        CHECK(outcome(inside_with_all(init, {"try", "open-init-mem"})) == "EACCES");
        CHECK(outcome(inside_with_all(init, {"try", "ptrace-child"})) == "OK");
      },
      {.left_out = {{"user", "who holds every capability is every user"}}});
}
