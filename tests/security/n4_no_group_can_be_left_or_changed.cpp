// N4: from inside no process can be moved to another group, no group made, no limit changed, no
// group ended or frozen: by the files of cgroup2, or by clone3(CLONE_INTO_CGROUP), which looks at
// their owners and not at the read-only mount.

#include "security/attack.h"

using namespace talon;
using namespace talon::testing;
using namespace std::chrono_literals;

namespace {

// The sleeper's group as it is seen inside.
std::string start_sleeper(Attacker& a) {
  isolate::ExecSpec sleeper;
  sleeper.id = a.root() ? "pxvictimofroot" : "pxvictimofuser";
  sleeper.argv = {"/bin/sleep", "1000"};
  sleeper.user = a.user;
  REQUIRE(a.box->exec(sleeper).has_value());
  for (;;) {
    auto event = a.box->wait_event(10s);
    REQUIRE(event.has_value());
    if (const auto* started = std::get_if<isolate::event::Started>(&*event)) {
      const std::string file = "/proc/" + std::to_string(started->pid) + "/cgroup";
      const std::string text = a.run({"/bin/cat", file}).out;
      const auto at = text.find("0::/x/");
      REQUIRE(at != std::string::npos);
      return "/sys/fs/cgroup" + trim(text.substr(at + 3));
    }
  }
}

}  // namespace

TEST_CASE("N4: no move between cgroups, no change of one") {
  TALON_NEED_SANDBOXES();
  from_every_side([](Attacker& a) {
    for (const std::string& dir :
         {std::string{"/sys/fs/cgroup"}, std::string{"/sys/fs/cgroup/init"},
          std::string{"/sys/fs/cgroup/x"}, start_sleeper(a)}) {
      for (const char* file : {"cgroup.procs", "cgroup.threads", "cgroup.freeze", "cgroup.kill",
                               "cgroup.subtree_control", "cgroup.max.depth"}) {
        const Finding got = a.look({"write-to", dir + "/" + file, "1"});
        INFO(dir << "/" << file);
        CHECK((got["name"] == "EROFS" || got["name"] == "EACCES"));
        CHECK(got["opened"] == "false");
      }
      CHECK(a.attempt({"clone3-into", dir}) == "EACCES");
      CHECK(a.run({"/bin/mkdir", dir + "/made"}).code == 1);
    }
    const auto open = a.probe({"writable-below", "/sys/fs/cgroup"});
    REQUIRE(open.size() == 1);  // the count alone
    CHECK(Attacker::number(open[0], "files") > 10);
  });
  // The control: who may, can.
  Lab lab;
  Box box = lab.create();
  CHECK(attempt_outside({"clone3-into", box->identity().cgroup + "/init"}) == "OK");
  lab.destroy(box);
}
