// I2: joining a user namespace refills the bounding set; what could be added from it must be gone.

#include <sys/xattr.h>

#include <cerrno>

#include "security/attack.h"

using namespace talon::testing;

namespace {

// A file with every capability, permitted and effective (capabilities(7), VFS_CAP_REVISION_2).
void add_mighty_file(const std::filesystem::path& image) {
  const std::filesystem::path file = image / "bin/mighty";
  std::filesystem::copy_file(probe_path(), file);
  const unsigned char all[20] = {1, 0, 0,    2,    0xff, 0xff, 0xff, 0xff, 0, 0,
                                 0, 0, 0xff, 0x01, 0,    0,    0,    0,    0, 0};
  CHECK(setxattr(file.c_str(), "security.capability", all, sizeof all, 0) == 0);
}

}  // namespace

TEST_CASE("I2: no capability is added by capset, by a file or by the ambient set") {
  TALON_NEED_SANDBOXES();
  from_every_side(
      [](Attacker& a) {
        CHECK(a.attempt({"capset-all"}) == "EPERM");
        CHECK(a.attempt({"capset-inheritable"}) == "EPERM");
        CHECK(a.attempt({"prctl-securebits"}) == "EPERM");
        // Ambient needs inheritable first.
        CHECK(a.attempt({"prctl-ambient"}) == "EPERM");
        const auto caps = parse_findings(a.run({"/bin/mighty", "caps"}).out);
        REQUIRE(caps.size() == 1);
        CHECK(caps[0]["effective"] == (a.root() ? "00000000000000fb" : "0000000000000000"));
        CHECK(caps[0]["permitted"] == caps[0]["effective"]);
      },
      {.image = add_mighty_file});
  // The control: on the host that file works for a user without privilege.
  Lab lab;
  add_mighty_file(lab.image());
  CHECK(attempt_outside({"capset-inheritable"}) == "OK");
}
