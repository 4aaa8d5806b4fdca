// N10: a fresh, writable mount of cgroup2. Nobody inside can make one, not even with every
// capability of the sandbox's namespace; and one that is there all the same takes no write, because
// its files belong to ids that are in no map.

#include <sched.h>
#include <sys/mount.h>

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("N10: a fresh cgroup2 mount is refused, and takes no write where it is given") {
  TALON_NEED_SANDBOXES();
  from_every_side([](Attacker& a) {
    CHECK(a.attempt({"mount-cgroup"}) == "EPERM");
    const pid_t init = a.box->identity().host_pid;
    CHECK(outcome(inside_with_all(init, {"try", "mount-cgroup"})) == "EPERM");

    const auto given = [] {
      return unshare(CLONE_NEWNS) == 0 && mount("cgroup2", "/tmp", "cgroup2", 0, nullptr) == 0;
    };
    const auto open = inside_with_all(init, {"writable-below", "/tmp"}, given);
    for (const Finding& file : open) {
      CHECK(file["path"] == "");
    }
    REQUIRE(open.size() == 1);
    CHECK(Attacker::number(open[0], "files") > 10);
    for (const char* dir : {"/tmp", "/tmp/init", "/tmp/x"}) {
      CHECK(outcome(inside_with_all(init, {"try", "clone3-into", dir}, given)) == "EACCES");
    }
  });
  // The control: on the host the same sweep finds files.
  Lab lab;
  Box box = lab.create();
  CHECK(outside({"writable-below", box->identity().cgroup}).size() > 5);
  lab.destroy(box);
}
