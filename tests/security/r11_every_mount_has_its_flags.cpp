// R11: nosuid everywhere, nodev everywhere but where device nodes must work, noexec where nothing
// is to be executed; what is read-only is so.

#include "security/attack.h"

using namespace talon::testing;

namespace {

bool has(const Finding& mount, const std::string& name) {
  return ("," + mount["options"] + ",").find("," + name + ",") != std::string::npos;
}

}  // namespace

TEST_CASE("R11: mount flags of every mount") {
  TALON_NEED_SANDBOXES();
  from_every_side([](Attacker& a) {
    const auto mounts = a.probe({"mounts"});
    REQUIRE(mounts.size() > 10);
    for (const Finding& mount : mounts) {
      const std::string point = mount["point"];
      const bool device_nodes = point == "/dev" || point == "/dev/pts";
      const bool programs = point == "/" || point == "/workspace" || point == "/tmp";
      INFO(point << " " << mount["type"] << " " << mount["options"]);
      CHECK(has(mount, "nosuid"));
      CHECK((device_nodes || has(mount, "nodev")));
      CHECK((programs || has(mount, "noexec")));
      const bool writable =
          programs || point == "/dev/shm" || point == "/dev/pts" || point == "/proc";
      CHECK(has(mount, "rw") == writable);
    }
    // noexec is felt, not only shown.
    CHECK(a.sh("cat /bin/probe > /dev/shm/p && chmod 755 /dev/shm/p && /dev/shm/p ids").code ==
          126);
    CHECK(a.sh("rm -f /dev/shm/p; cat /bin/probe > /tmp/p && chmod 755 /tmp/p && /tmp/p ids && rm "
               "/tmp/p")
              .code == 0);
  });
}
