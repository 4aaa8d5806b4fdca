// R4: links where nothing of the image may be looked at: /dev/null, /dev/pts, /dev/console,
// /sys/fs/cgroup, and /etc, which no set-up step touches.

#include <fstream>

#include "security/attack.h"

using namespace talon::testing;
namespace fs = std::filesystem;

TEST_CASE("R4: links below mount points of the image change nothing, inside or outside") {
  TALON_NEED_SANDBOXES();
  in_every_column(
      [](Field& field) {
        Lab& lab = field.lab;
        const Canary canary{lab};
        fs::create_directories(lab.image() / "sys/fs");
        fs::create_symlink(canary.dir(), lab.image() / "sys/fs/cgroup");
        fs::create_symlink(canary.dir(), lab.image() / "dev/pts");
        fs::create_symlink(canary.dir(), lab.image() / "dev/shm");
        for (const char* name : {"dev/null", "dev/console", "dev/ptmx", "proc/keys"}) {
          fs::create_symlink(canary.file(), lab.image() / name);
        }
        fs::remove_all(lab.image() / "etc");
        fs::create_symlink("../host-only", lab.image() / "etc");
        Box box = field.create();
        CHECK(lab.sh(box,
                     "echo x > /dev/null; echo y > /etc/canary; touch /etc/more; echo z > "
                     "/dev/shm/z")
                  .err.find("/etc/canary") != std::string::npos);
        CHECK(lab.run(box, {"/bin/ls", "/dev/pts"}).out == "ptmx\n");
        CHECK(lab.run(box, {"/bin/stat", "-c", "%t:%T", "/dev/null"}).out == "1:3\n");
        CHECK(lab.run(box, {"/bin/stat", "-c", "%t:%T", "/proc/keys"}).out == "1:3\n");
        // As root and by name: init looked at no passwd of the host, and `user` is not known.
        CHECK(lab.run(box, {"/bin/cat", "/etc/canary"}).code == 1);
        CHECK(lab.run(box, {"/bin/true"}, "user").err.find("exec failed: stage 2") == 0);
        CHECK(canary.untouched());
        lab.destroy(box);
        CHECK(canary.untouched());
      },
      {.left_out = {{"user", "its name is looked up in that /etc: no exec as user starts"}}});
}
