// I5: set-user-id files, from the image and made inside.

#include <sys/stat.h>

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("I5: a setuid-root file runs with the caller's ids and no capability") {
  TALON_NEED_SANDBOXES();
  const auto add = [](const std::filesystem::path& image) {
    std::filesystem::copy_file(probe_path(), image / "bin/suid");
    CHECK(chmod((image / "bin/suid").c_str(), 06755) == 0);
  };
  from_every_side(
      [](Attacker& a) {
        a.lab.sh(a.box, "cat /bin/probe > /tmp/suid && chmod 6755 /tmp/suid");
        REQUIRE(a.lab.sh(a.box, "stat -c %a /tmp/suid").out == "6755\n");
        for (const char* file : {"/bin/suid", "/tmp/suid"}) {
          const auto ids = parse_findings(a.run({file, "ids"}).out);
          REQUIRE(ids.size() == 1);
          const std::string own = a.root() ? "0" : "1000";
          for (const char* id : {"uid", "euid", "suid", "gid", "egid", "sgid"}) {
            CHECK(ids[0][id] == own);
          }
          const auto caps = parse_findings(a.run({file, "caps"}).out);
          CHECK(caps.at(0)["effective"] == (a.root() ? "00000000000000fb" : "0000000000000000"));
        }
      },
      {.image = add});
}
