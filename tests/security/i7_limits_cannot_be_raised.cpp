// I7: hard limits hold, no core files, and the kernel prefers the sandbox as its OOM victim.

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("I7: hard limits cannot be raised and the OOM score cannot be lowered") {
  TALON_NEED_SANDBOXES();
  from_every_side(
      [](Attacker& a) {
        std::map<std::string, Finding> limits;
        for (const Finding& line : a.probe({"limits"})) {
          limits[line["limit"]] = line;
          INFO(line["limit"]);
          CHECK((line["raise"] == "EPERM" || line["raise"] == "unlimited"));
        }
        CHECK(limits["core"]["hard"] == "0");
        CHECK(limits["nice"]["hard"] == "0");
        CHECK(limits["rtprio"]["hard"] == "0");
        CHECK(limits["nofile"]["hard"] == "700");
        CHECK(limits["nofile"]["raise"] == "EPERM");
        CHECK(a.run({"/bin/cat", "/proc/self/oom_score_adj"}).out == "500\n");
        CHECK(std::stoi(read_text("/proc/self/oom_score_adj")) <= 500);
        CHECK(a.attempt({"oom-lower"}) == "EACCES");
        if (a.lab.launcher().host().cap_sys_resource) {
          // The kernel keeps a floor only where one with SYS_RESOURCE set the value (proc(5)).
          CHECK(a.look({"write-to", "/proc/self/oom_score_adj", "499"})["name"] == "EACCES");
        }
        // And not init's either: a high score would have the kernel end the whole sandbox first.
        CHECK(a.look({"write-to", "/proc/1/oom_score_adj", "1000"})["name"] == "EACCES");
        CHECK(a.attempt({"prlimit-init"}) == "EPERM");
        CHECK(a.attempt({"renice-init"}) == "EPERM");
      },
      {.spec = [](auto& spec) { spec.open_files = 700; }});
  // Outside it is a matter of SYS_RESOURCE.
  CHECK(attempt_outside({"oom-lower"}) ==
        (isolate::probe_host("")->cap_sys_resource ? "OK" : "EACCES"));
}
