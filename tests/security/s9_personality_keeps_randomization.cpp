// S9: personalities that weaken the address space, or ask for another system's behaviour.

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("S9: personality takes 0, 0x8, 0x20000 and the question, nothing else") {
  TALON_NEED_SANDBOXES();
  from_every_side([](Attacker& a) {
    for (const char* good : {"0", "0x8", "0x20000", "0xffffffff"}) {
      INFO(good);
      CHECK(a.attempt({"personality", good}) == "OK");
    }
    CHECK(a.attempt({"addr-no-randomize"}) == "EPERM");
    CHECK(a.attempt({"read-implies-exec"}) == "EPERM");
    // MMAP_PAGE_ZERO, ADDR_COMPAT_LAYOUT, ADDR_LIMIT_3GB, SHORT_INODE, bits above 32.
    for (const char* bad :
         {"0x0100000", "0x0200000", "0x8000000", "0x1000000", "0x40008", "0x7f00000000040000"}) {
      INFO(bad);
      CHECK(a.attempt({"personality", bad}) == "EPERM");
    }
  });
  from_every_side([](Attacker& a) { CHECK(a.attempt({"addr-no-randomize"}) == "OK"); },
                  {.spec = without_filter});  // the control
}
