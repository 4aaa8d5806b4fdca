// R14: device nodes and file capabilities that lie in an image's tree (or, placed there behind the
// daemon's back, in the upper layer) open nothing and grant nothing.

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "security/attack.h"

using namespace talon::testing;
namespace fs = std::filesystem;

namespace {

const std::map<std::string, dev_t> kCharacter = {
    {"mem", makedev(1, 1)},     {"null", makedev(1, 3)},    {"kmsg", makedev(1, 11)},
    {"console", makedev(5, 1)}, {"fuse", makedev(10, 229)}, {"tun", makedev(10, 200)}};

void add_nodes(const fs::path& root) {
  fs::create_directories(root / "opt");
  for (const auto& [name, device] : kCharacter) {
    REQUIRE(mknod((root / "opt" / name).c_str(), S_IFCHR | 0666, device) == 0);
    chmod((root / "opt" / name).c_str(), 0666);
  }
  struct stat st{};
  REQUIRE(stat("/", &st) == 0);
  REQUIRE(mknod((root / "opt/disk").c_str(), S_IFBLK | 0666, st.st_dev) == 0);
  chmod((root / "opt/disk").c_str(), 0666);
  const unsigned char all[20] = {1, 0, 0,    2,    0xff, 0xff, 0xff, 0xff, 0, 0,
                                 0, 0, 0xff, 0x01, 0,    0,    0,    0,    0, 0};
  fs::copy_file(probe_path(), root / "opt/mighty");
  CHECK(setxattr((root / "opt/mighty").c_str(), "security.capability", all, sizeof all, 0) == 0);
}

void look(Attacker& a, const std::string& dir) {
  for (const char* name : {"mem", "null", "kmsg", "console", "fuse", "tun", "disk"}) {
    INFO(dir << name);
    CHECK(a.look({"read", dir + name})["name"] == "EACCES");
    CHECK(a.look({"write", dir + name})["name"] == "EACCES");
  }
  const auto caps = parse_findings(a.run({dir + "mighty", "caps"}).out);
  REQUIRE(caps.size() == 1);
  CHECK(caps[0]["permitted"] == (a.root() ? "00000000000000fb" : "0000000000000000"));
  CHECK(caps[0]["effective"] == caps[0]["permitted"]);
}

}  // namespace

TEST_CASE("R14: device nodes and file capabilities of image and workspace are inert") {
  TALON_NEED_SANDBOXES();
  from_every_side(
      [](Attacker& a) {
        look(a, "/opt/");
        const fs::path workspace = a.lab.root_of(a.box->identity().id) / "workspace";
        if (!fs::exists(workspace / "opt")) {
          add_nodes(workspace);
        }
        look(a, "/workspace/opt/");
        // A copy that the sandbox makes of the file has lost what it could not have.
        CHECK(a.sh("cat /opt/mighty > /tmp/m-$$ && chmod 755 /tmp/m-$$ && /tmp/m-$$ caps").code ==
              0);
      },
      {.image = add_nodes});
}
