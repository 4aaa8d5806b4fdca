// N2: the cgroup namespace and the mount of cgroup2 begin at the sandbox's own group.

#include <sstream>

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("N2: /proc/*/cgroup and /sys/fs/cgroup begin at the sandbox's group") {
  TALON_NEED_SANDBOXES();
  from_every_side([](Attacker& a) {
    const std::string group =
        std::filesystem::path{a.box->identity().cgroup}.parent_path().filename();
    for (const char* file : {"/proc/self/cgroup", "/proc/1/cgroup"}) {
      std::istringstream lines{a.run({"/bin/cat", file}).out};
      int unified = 0;
      for (std::string line; std::getline(lines, line);) {
        INFO(file << ": " << line);
        CHECK(line.find(group) == std::string::npos);
        CHECK(line.find("..") == std::string::npos);
        CHECK(line.find(a.box->identity().id) == std::string::npos);
        if (line.starts_with("0::")) {
          ++unified;
          const bool own = std::string{file} == "/proc/1/cgroup" ? line == "0::/init"
                                                                 : line.starts_with("0::/x/");
          CHECK(own);
        }
      }
      CHECK(unified == 1);
    }
    const std::string seen = a.run({"/bin/ls", "/sys/fs/cgroup"}).out;
    CHECK(seen.find("init\n") != std::string::npos);
    CHECK(seen.find(group) == std::string::npos);
    CHECK(a.look({"stat", "/sys/fs/cgroup"})["readonly"] == "true");
    CHECK(a.run({"/bin/ls", "/sys/fs/cgroup/.."}).out == "cgroup\n");
  });
}
