// R6 (CVE-2019-19921, CVE-2025-52881): /proc is a procfs root and nothing lies over it.

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("R6: /proc is one procfs, not overmounted, and masks differ from what they hide") {
  TALON_NEED_SANDBOXES();
  from_every_side([](Attacker& a) {
    const Finding proc = a.look({"stat", "/proc"});
    CHECK(proc["fs_type"] == "0000000000009fa0");  // PROC_SUPER_MAGIC
    CHECK(proc["ino"] == "1");
    std::map<std::string, int> at;
    for (const Finding& mount : a.probe({"mounts"})) {
      ++at[mount["point"]];
    }
    for (const auto& [point, count] : at) {
      INFO(point);
      CHECK(count == 1);
    }
    CHECK(at.contains("/proc"));
    for (const char* name : {"/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/kallsyms"}) {
      const Finding mask = a.look({"stat", name});
      if (mask["name"] != "ENOENT") {
        INFO(name);
        CHECK(mask["dev"] != proc["dev"]);
      }
    }
    CHECK(a.look({"stat", "/proc/uptime"})["dev"] == proc["dev"]);  // the control
    // A process of the host is in no procfs of ours.
    CHECK(a.run({"/bin/test", "-e",
                 "/proc/" + std::to_string(a.box->identity().host_pid) + "/status"})
              .code == 1);
  });
}
