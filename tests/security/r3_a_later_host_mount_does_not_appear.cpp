// R3: mounts that the host makes on the image, the layers or the workspace after the creation do
// not propagate inside, even where the host's mounts are shared (as systemd makes them).

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include "security/attack.h"

using namespace talon::testing;
namespace fs = std::filesystem;

namespace {

// A mount namespace for this test alone, its mounts shared; left again at the end.
class SharedMounts {
 public:
  SharedMounts() : back_(open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC)) {
    ok_ = unshare(CLONE_NEWNS) == 0 &&
          mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
          mount(nullptr, "/", nullptr, MS_REC | MS_SHARED, nullptr) == 0;
  }
  ~SharedMounts() {
    setns(back_, CLONE_NEWNS);
    close(back_);
  }
  SharedMounts(const SharedMounts&) = delete;
  SharedMounts& operator=(const SharedMounts&) = delete;
  bool ok() const { return ok_; }

 private:
  int back_;
  bool ok_ = false;
};

bool mount_over(const fs::path& path) {
  fs::create_directories(path);
  return mount("late", path.c_str(), "tmpfs", 0, "size=64k") == 0;
}

}  // namespace

TEST_CASE("R3: what the host mounts later stays outside") {
  TALON_NEED_SANDBOXES();
  const SharedMounts shared;
  REQUIRE(shared.ok());
  in_every_column([](Field& field) {
    Lab& lab = field.lab;
    Box box = field.create();
    const fs::path own = lab.root_of(box->identity().id);
    fs::create_directories(own / "workspace/late");
    const std::string before = lab.run(box, {"/bin/cat", "/proc/self/mountinfo"}).out;
    const fs::path late[] = {own / "workspace/late", lab.image() / "etc", own / "upper/tmp"};
    for (const fs::path& path : late) {
      REQUIRE(mount_over(path));
    }
    CHECK(read_text("/proc/self/mountinfo").find(" - tmpfs late ") != std::string::npos);
    CHECK(lab.run(box, {"/bin/cat", "/proc/self/mountinfo"}).out == before);
    CHECK(lab.run(box, {"/bin/cat", "/etc/marker"}).out == "from the image\n");
    // And not in a sandbox's peers: what was cloned is private from the start.
    CHECK(before.find("shared:") == std::string::npos);
    CHECK(before.find("master:") == std::string::npos);
    for (const fs::path& path : late) {
      REQUIRE(umount2(path.c_str(), MNT_DETACH) == 0);
    }
    lab.destroy(box);
  });
}
