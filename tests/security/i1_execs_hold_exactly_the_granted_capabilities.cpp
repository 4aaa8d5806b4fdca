// I1 (CVE-2022-29162): five capability sets, exactly, in every exec and in init.

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("I1: an exec holds exactly the granted capabilities, as user none") {
  TALON_NEED_SANDBOXES();
  const std::string none = "0000000000000000";
  const std::string workload = "00000000000000fb";  // decision 3
  from_every_side([&](Attacker& a) {
    const Finding caps = a.look({"caps"});
    CHECK(caps["permitted"] == (a.root() ? workload : none));
    CHECK(caps["effective"] == (a.root() ? workload : none));
    CHECK(caps["bounding"] == workload);
    CHECK(caps["inheritable"] == none);
    CHECK(caps["ambient"] == none);
    CHECK(caps["no_new_privs"] == "1");
    CHECK(caps["securebits"] == "0");
    const Finding init = a.look({"status", "1"});
    CHECK(init["CapPrm"] == "00000000000001fb");
    CHECK(init["CapEff"] == "00000000000001fb");
    CHECK(init["CapBnd"] == "00000000000001fb");
    CHECK(init["CapInh"] == none);
    CHECK(init["CapAmb"] == none);
    CHECK(init["NoNewPrivs"] == "1");
    CHECK(init["Seccomp"] == "2");
  });
  // The control: the same words of a process on the host say something else.
  CHECK(outside({"caps"}).at(0)["bounding"] != workload);
}
