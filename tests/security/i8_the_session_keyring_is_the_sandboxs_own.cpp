// I8: a keyring of the daemon would hand its keys to every sandbox. The filter refuses keyctl; what
// lies behind it is looked at without the filter.

#include <linux/keyctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("I8: the daemon's session keyring is out of reach") {
  TALON_NEED_SANDBOXES();
  const long ours = syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr, 0, 0, 0);
  if (ours < 0) {
    WARN("SKIP: this host refuses keyctl");
    return;
  }
  REQUIRE(syscall(SYS_add_key, "user", "talon-canary", "secret", 6, KEY_SPEC_SESSION_KEYRING) > 0);
  from_every_side([](Attacker& a) {
    CHECK(a.attempt({"keyctl-id"}) == "EPERM");
    CHECK(a.look({"read", "/proc/keys"})["name"] == "EACCES");
  });
  from_every_side(
      [&](Attacker& a) {
        const Finding inside = a.look({"keyring"});
        CHECK(inside["name"] == "OK");
        CHECK(inside["result"] != std::to_string(ours));
        CHECK(a.attempt({"syscall", std::to_string(SYS_keyctl), std::to_string(KEYCTL_DESCRIBE),
                         std::to_string(ours), "0", "0"}) == "EACCES");
      },
      {.spec = without_filter});
  CHECK(outside({"keyring"}).at(0)["result"] == std::to_string(ours));  // the control
}
