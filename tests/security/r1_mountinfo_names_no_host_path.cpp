// R1: what the kernel tells a sandbox of its mounts names no layer and no directory of the host.
// One exception, which no bind can avoid (proc(5), fields 4 and 10): the workspace shows its place
// within its file system and that file system's device.

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("R1: mountinfo lists the sandbox's tree only and names no host path") {
  TALON_NEED_SANDBOXES();
  from_every_side([](Attacker& a) {
    const std::string lab = a.lab.dir().filename();
    int roots = 0;
    for (const Finding& mount : a.probe({"mounts"})) {
      INFO(mount["point"] << " " << mount["root"] << " " << mount["super"]);
      roots += mount["point"] == "/" ? 1 : 0;
      CHECK(mount["super"].find(lab) == std::string::npos);
      if (mount["point"] == "/workspace") {
        CHECK(mount["root"].ends_with("/" + a.box->identity().id + "/workspace"));
      } else {
        CHECK(mount["source"].find('/') == std::string::npos);
        CHECK(mount["root"].find(lab) == std::string::npos);
      }
      CHECK(mount["point"].find(lab) == std::string::npos);
      CHECK(mount["propagation"] == "");
      for (const char* layer : {"lowerdir", "upperdir", "workdir"}) {
        const auto at = mount["super"].find(std::string{layer} + "=/");
        CHECK(at == std::string::npos);  // by neutral relative names only
      }
    }
    CHECK(roots == 1);
    for (const char* file : {"/proc/self/mounts", "/proc/self/mountstats", "/proc/1/mounts"}) {
      CHECK(a.run({"/bin/cat", file}).out.find(lab) == std::string::npos);
    }
    // Init sees what an exec sees: nothing of the spawner's mounts was left in its namespace.
    const std::string text = a.run({"/bin/cat", "/proc/self/mountinfo"}).out;
    CHECK(a.run({"/bin/cat", "/proc/1/mountinfo"}).out == text);
  });
}
