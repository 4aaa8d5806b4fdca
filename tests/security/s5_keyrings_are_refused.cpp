// S5: the kernel's keyrings are not divided by namespaces.

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("S5: keyctl, add_key and request_key are EPERM") {
  TALON_NEED_SANDBOXES();
  const char* calls[] = {"keyctl-session", "keyctl-id", "add_key", "request_key"};
  from_every_side([&](Attacker& a) {
    for (const char* call : calls) {
      INFO(call);
      CHECK(a.attempt({call}) == "EPERM");
    }
  });
  from_every_side([](Attacker& a) { CHECK(a.attempt({"keyctl-id"}) == "OK"); },
                  {.spec = without_filter});  // the control
}
