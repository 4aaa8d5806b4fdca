// F4: init's memory, descriptors and environment.

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("F4: ptrace, process_vm, pidfd_getfd and /proc/1 refuse") {
  TALON_NEED_SANDBOXES();
  const auto attack = [](Attacker& a) {
    for (const char* name : {"ptrace-init", "ptrace-seize-init", "vm-read-init", "vm-write-init",
                             "pidfd-getfd-init", "kcmp", "setns-init"}) {
      INFO(name);
      CHECK(a.attempt({name}) == "EPERM");
    }
    CHECK(a.attempt({"open-init-mem"}) == "EACCES");
    CHECK(a.attempt({"madvise-init"}) == "EACCES");
    CHECK(a.attempt({"ptrace-child"}) == "OK");  // the control: tracing as such works
    for (const Finding& file : a.probe({"init-files"})) {
      INFO(file["path"] << " " << file["name"] << " " << file["read_error"]);
      CHECK((file["name"] != "OK" || file["read"] == "0" || file["read_error"] != "OK"));
    }
  };
  from_every_side(attack);
  from_every_side(attack, {.spec = without_filter});
}
