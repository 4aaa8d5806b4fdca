// R8, all of it: every file of /proc that is no process's own, and of /sys, is tried. A kernel with
// a new file, or a set-up with a forgotten one, shows here.

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("R8: no file of /proc and /sys opens for writing") {
  TALON_NEED_SANDBOXES();
  const auto attack = [](Attacker& a) {
    int directories = 0;
    for (const Finding& found : a.probe({"writable-below", "/proc", "/sys"})) {
      INFO(found["path"]);
      CHECK(found["path"] == "");
      if (found["directory"] == "/proc") {
        CHECK(Attacker::number(found, "files") > 500);  // it did look
      }
      directories += found["directory"].empty() ? 0 : 1;
    }
    CHECK(directories == 2);
  };
  from_every_side(attack);
  from_every_side(attack, {.spec = without_filter});
  CHECK(outside({"writable-below", "/proc/sys"}).size() > 100);  // the control
}
