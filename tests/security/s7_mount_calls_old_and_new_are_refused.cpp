// S7: both mount interfaces, and chroot.

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("S7: mount calls, old and new, and chroot are EPERM") {
  TALON_NEED_SANDBOXES();
  const char* calls[] = {"fsopen", "fspick", "move_mount", "open_tree", "mount_setattr",
                         "mount",  "umount", "pivot_root", "chroot",    "mount-bind"};
  const auto attack = [&](Attacker& a) {
    for (const char* call : calls) {
      INFO(call);
      CHECK(a.attempt({call}) == "EPERM");
    }
    // open_tree without CLONE needs no capability; as O_PATH it would be harmless, yet it is out.
  };
  from_every_side(attack);
  from_every_side(attack, {.spec = without_filter});
  for (const char* call : {"fsopen", "open_tree", "chroot"}) {
    INFO(call);
    CHECK(attempt_outside({call}) == "OK");  // the control
  }
}
