// S10: ptrace and process_vm_* work among a sandbox's own processes, never on init, and no number
// names a process of the host.

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("S10: ptrace works on own children only; a user cannot trace root") {
  TALON_NEED_SANDBOXES();
  from_every_side([](Attacker& a) {
    CHECK(a.attempt({"ptrace-child"}) == "OK");
    CHECK(a.attempt({"ptrace-init"}) == "EPERM");
    CHECK(a.attempt({"ptrace-seize-init"}) == "EPERM");
    CHECK(a.attempt({"vm-read-init"}) == "EPERM");
    CHECK(a.attempt({"vm-write-init"}) == "EPERM");
    const std::string host = std::to_string(a.box->identity().host_pid);
    CHECK(a.attempt({"kill", host}) == "ESRCH");
    CHECK(a.attempt({"kill", std::to_string(getpid())}) == "ESRCH");
  });
}
