// S8 (CVE-2019-10063): TIOCSTI types into whatever reads the terminal next; TIOCLINUX pastes.

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("S8: TIOCSTI and TIOCLINUX are EPERM, and each exec has a session of its own") {
  TALON_NEED_SANDBOXES();
  from_every_side([](Attacker& a) {
    CHECK(a.attempt({"ioctl-tiocsti"}) == "EPERM");
    CHECK(a.attempt({"ioctl-tiocsti-wide"}) == "EPERM");
    CHECK(a.attempt({"ioctl-tioclinux"}) == "EPERM");
    CHECK(a.attempt({"ioctl-tiocsctty"}) == "OK");  // the control: other requests pass
    CHECK(a.attempt({"tty"}) == "ENXIO");           // no terminal came along
    const Finding ids = a.look({"ids"});
    CHECK(ids["sid"] == ids["pid"]);
    CHECK(ids["pgid"] == ids["pid"]);
    CHECK(ids["ppid"] == "1");
  });
  // The control: without the filter the kernel itself is asked (EIO where its switch is off).
  from_every_side(
      [](Attacker& a) {
        const std::string got = a.attempt({"ioctl-tiocsti"});
        CHECK((got == "EIO" || got == "OK" || got == "EPERM"));
        CHECK(a.attempt({"ioctl-tioclinux"}) != "EPERM");
      },
      {.spec = without_filter});
}
