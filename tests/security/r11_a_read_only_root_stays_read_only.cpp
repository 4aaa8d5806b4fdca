// R11: storage readonly, against root inside.

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("R11: a read-only root takes no write and no remount") {
  TALON_NEED_SANDBOXES();
  const auto readonly = [](auto& spec) { spec.storage = talon::isolate::Storage::readonly; };
  const auto attack = [](Attacker& a) {
    for (const char* path : {"/x", "/etc/x", "/bin/x"}) {
      INFO(path);
      const Ran ran = a.run({"/bin/touch", path});
      CHECK(ran.code == 1);
      CHECK(ran.err.find("Read-only file system") != std::string::npos);
    }
    CHECK(a.look({"write", "/etc/marker"})["name"] == "EROFS");
    CHECK(a.run({"/bin/rm", "-f", "/etc/marker"}).code == 1);
    CHECK(a.attempt({"remount-root"}) == "EPERM");
    CHECK(a.attempt({"mount_setattr"}) == "EPERM");
    CHECK(a.run({"/bin/cat", "/etc/marker"}).out == "from the image\n");
    CHECK(a.run({"/bin/touch", "/tmp/x"}).code == 0);
    a.lab.sh(a.box, "rm -f /tmp/x");
  };
  const std::vector<LeftOut> no_memory = {{"memory", "a read-only root has no upper layer"}};
  from_every_side(attack, {.spec = readonly, .left_out = no_memory});
  from_every_side(attack, {.spec =
                               [&](auto& spec) {
                                 readonly(spec);
                                 without_filter(spec);
                               },
                           .left_out = no_memory});
}
