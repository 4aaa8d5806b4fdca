// R9: mounting again what is masked, and unmounting the masks. The filter refuses; without it
// there is no capability in the namespace that owns the mounts.

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("R9: no mount, unmount, remount, bind or new proc") {
  TALON_NEED_SANDBOXES();
  const char* attempts[] = {"mount",       "mount-proc", "mount-sysfs",       "mount-cgroup",
                            "mount-bind",  "mount-move", "mount-shared",      "remount-root",
                            "umount-proc", "pivot_root", "unshare-user-mount"};
  const auto attack = [&](Attacker& a) {
    const std::string before = a.run({"/bin/cat", "/proc/self/mountinfo"}).out;
    for (const char* name : attempts) {
      INFO(name);
      const std::string got = a.attempt({name});
      // Where the filter does not answer first, no user namespace is left to be made.
      CHECK((got == "EPERM" || (got == "ENOSPC" && std::string{name} == "unshare-user-mount")));
    }
    for (const char* mask : {"/proc/keys", "/proc/kallsyms", "/proc/sys", "/dev", "/sys"}) {
      INFO(mask);
      CHECK(a.attempt({"umount", mask}) == "EPERM");
      CHECK(a.attempt({"remount", mask}) == "EPERM");
    }
    CHECK(a.run({"/bin/cat", "/proc/self/mountinfo"}).out == before);
  };
  from_every_side(attack);
  from_every_side(attack, {.spec = without_filter});
  // The control: the probe's calls are good ones.
  for (const char* name : {"mount", "mount-bind", "mount-move", "mount-shared"}) {
    INFO(name);
    CHECK(attempt_outside({name}) == "OK");
  }
}
