// R2: the ways up: `..`, /proc/*/root and cwd, chroot with a directory kept open above it.

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("R2: every way up ends at the sandbox's own root") {
  TALON_NEED_SANDBOXES();
  const auto attack = [](Attacker& a) {
    const Canary canary{a.lab};
    const std::string root = a.run({"/bin/ls", "/"}).out;
    CHECK(root == "bin\ndev\netc\nhome\nproc\nroot\nsys\ntmp\nworkspace\n");
    for (const char* up : {"/..", "/../../../..", "/proc/self/root/..", "/proc/self/cwd/../..",
                           "/proc/thread-self/root/../.."}) {
      INFO(up);
      CHECK(a.run({"/bin/ls", up}).out == root);
    }
    for (const char* of_init : {"/proc/1/root/..", "/proc/1/cwd", "/proc/1/root"}) {
      INFO(of_init);
      CHECK(a.look({"read", of_init})["name"] == "EACCES");
    }
    CHECK(a.attempt({"chroot"}) == "EPERM");
    CHECK(a.attempt({"chroot-escape"}) == "EPERM");
    CHECK(a.attempt({"pivot_root"}) == "EPERM");
    CHECK(a.attempt({"open_by_handle_at"}) == "EPERM");
    CHECK(a.look({"stat", canary.file()})["name"] == "ENOENT");
    CHECK(a.look({"stat", "/../../.." + canary.file().string()})["name"] == "ENOENT");
    CHECK(canary.untouched());
  };
  from_every_side(attack);
  from_every_side(attack, {.spec = without_filter});
  from_every_side(attack, {.spec = [](auto& spec) { spec.pivot_root = true; }});
  CHECK(attempt_outside({"chroot-escape"}) == "OK");  // the control: there the way up is open
}
