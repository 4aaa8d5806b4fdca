// Disk traffic: the kernel's own counters and its pace.

#include "isolate/cgroup_tree.h"
#include "vm/vm_support.h"

using namespace talon;
using namespace talon::testing;

TEST_CASE("8 MiB past the page cache at 4 MiB/s take their time, and are counted") {
  TALON_NEED_CONTROLLERS("io");
  VmLab lab;
  if (!lab.launcher().check_limits({.io_write = kMiB})) {
    WARN("SKIP: the tests' directory is on no block device that is known");
    return;
  }
  Box box = lab.create(lab.spec_with({.io_read = 16 * kMiB, .io_write = 4 * kMiB}));
  CHECK(box->limits().io_write.enforced);
  CHECK(box->limits().io_write.value == 4 * kMiB);
  CHECK(box->limits().io_read.value == 16 * kMiB);
  CHECK_FALSE(group_file(box, "io.max").find(" rbps=16777216 wbps=4194304 ") == std::string::npos);
  const auto begin = std::chrono::steady_clock::now();
  const Ran ran = lab.sh(box, "dd if=/dev/zero of=/workspace/f bs=1M count=8 oflag=direct 2>&1");
  const double took =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  CHECK(ran.code == 0);
  INFO(ran.out);
  const std::string stat = group_file(box, "io.stat");
  INFO(stat);
  const auto at = stat.find("wbytes=");
  REQUIRE(at != std::string::npos);
  CHECK(std::stoull(stat.substr(at + 7)) >= 8 * kMiB);
  // A slow machine can only make it longer, so this holds everywhere; the control tells that the
  // limit is what took the time.
  CHECK(took > 1.5);
  Box control = lab.create(lab.spec_with({.io_write = 400 * kMiB}));
  const auto free_begin = std::chrono::steady_clock::now();
  lab.sh(control, "dd if=/dev/zero of=/workspace/f bs=1M count=8 oflag=direct 2>&1");
  const double free_took =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - free_begin).count();
  WARN("observed: 8 MiB at 4 MiB/s: " << took << " s; at 400 MiB/s: " << free_took << " s");
  lab.destroy(control);
  lab.destroy(box);
}

TEST_CASE("an adopted sandbox keeps its limits of disk traffic") {
  TALON_NEED_CONTROLLERS("io");
  VmLab lab;
  if (!lab.launcher().check_limits({.io_write = kMiB})) {
    WARN("SKIP: the tests' directory is on no block device that is known");
    return;
  }
  Box box = lab.create(lab.spec_with({.io_write = 4 * kMiB}));
  const auto tree = isolate::CgroupTree::open(box->identity().cgroup);
  REQUIRE(tree);
  CHECK(tree->applied().io_write.value == 4 * kMiB);
  CHECK_FALSE(tree->applied().io_read.asked);
  lab.destroy(box);
}

TEST_CASE("disk_of names the whole disk, and nothing for what is on none") {
  CHECK(isolate::disk_of("/proc").empty());
  CHECK(isolate::disk_of("/no/such/path").empty());
  const std::string disk = isolate::disk_of("/");
  if (disk.empty()) {
    WARN("SKIP: the root is on no block device");
    return;
  }
  CHECK(std::filesystem::exists("/sys/dev/block/" + disk));
  CHECK_FALSE(std::filesystem::exists("/sys/dev/block/" + disk + "/partition"));
}
