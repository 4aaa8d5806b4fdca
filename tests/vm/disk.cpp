// Project quota (decision 32): ext4 with the features quota and project, mounted with prjquota,
// which the VM's disk is.

#include <fcntl.h>
#include <sys/quota.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "isolate/disk.h"
#include "vm/vm_support.h"

using namespace talon;
using namespace talon::isolate;
using namespace talon::testing;
namespace fs = std::filesystem;

namespace {

#define TALON_NEED_QUOTA(lab)                                                     \
  if (!disk::has_project_quota(open_dir((lab).dir()).get())) {                    \
    WARN("SKIP: the tests' directory is on a file system without project quota"); \
    return;                                                                       \
  }

DirFd open_dir(const fs::path& path) { return *open_at(AT_FDCWD, path, O_RDONLY | O_DIRECTORY); }

dqblk quota_of(int dir, std::uint32_t project) {
  dqblk quota{};
  REQUIRE(syscall(SYS_quotactl_fd, dir, QCMD(Q_GETQUOTA, PRJQUOTA), project, &quota) == 0);
  return quota;
}

std::uint32_t project_at(const fs::path& path) {
  return disk::project_of(open_dir(path).get()).value_or(~0u);
}

// The VM, not the machine that somebody works on.
bool has_controllers() { return missing_controllers({"memory", "io"}).empty(); }

std::uint64_t last_number(const std::string& text) {
  const auto end = text.find_last_not_of("\n");
  return std::stoull(text.substr(text.rfind('\n', end) + 1));
}

}  // namespace

TEST_CASE("a project quota stops root changes, and the workspace by its own") {
  VmLab lab;
  TALON_NEED_QUOTA(lab);
  auto spec = lab.spec();
  spec.disk_bytes = 16 * kMiB;
  spec.workspace_bytes = 24 * kMiB;
  Box box = lab.create(spec);
  CHECK(box->disk().root.method == DiskMethod::project_quota);
  CHECK(box->disk().workspace.method == DiskMethod::project_quota);
  const auto root = lab.root_of(spec.id);
  const auto project = project_at(root / "upper");
  CHECK(project >= limits::kProjectBase);
  CHECK(project_at(root / "work") == project);
  CHECK(project_at(root / "workspace") >= limits::kProjectBase);
  CHECK(project_at(root / "workspace") != project);

  const Ran full = lab.sh(box, "dd if=/dev/zero of=/fill bs=64k 2>&1; stat -c %s /fill");
  INFO(full.out << full.err);
  CHECK((full.out.find("Disk quota exceeded") != std::string::npos ||
         full.out.find("No space left") != std::string::npos));
  CHECK(last_number(full.out) > 15 * kMiB);
  CHECK(last_number(full.out) <= 16 * kMiB);
  const Ran work =
      lab.sh(box, "dd if=/dev/zero of=/workspace/fill bs=64k 2>&1; stat -c %s /workspace/fill");
  CHECK(last_number(work.out) > 23 * kMiB);
  CHECK(last_number(work.out) <= 24 * kMiB);
  const auto use = disk_use(box->files_fd(), "");
  REQUIRE(use);
  CHECK(use->size_bytes == 16 * kMiB);
  CHECK(use->used_bytes > 15 * kMiB);
  const auto space = disk_use(box->files_fd(), "workspace");
  REQUIRE(space);
  CHECK(space->size_bytes == 24 * kMiB);
  WARN("observed: project quota of 16 MiB: " << last_number(full.out)
                                             << " bytes; of 24 MiB: " << last_number(work.out));

  // Full, it ends and starts, with the same project; what was moved by overlayfs counts too.
  for (int life = 0; life < 2; ++life) {
    lab.destroy(box);
    box = lab.create(spec);
    CHECK(project_at(root / "upper") == project);
    CHECK(quota_of(open_dir(root).get(), project).dqb_bhardlimit == 16 * kMiB / 1024);
    CHECK(lab.sh(box, "dd if=/dev/zero of=/more bs=64k count=4").code != 0);
  }
  CHECK(lab.sh(box, "rm -f /fill /more && echo x > /x && cat /x").out == "x\n");
  lab.destroy(box);

  // With its files the project is free again.
  const DirFd disk = open_dir(lab.dir());
  CHECK(quota_of(disk.get(), project).dqb_curinodes > 0);
  fs::remove_all(root);
  CHECK(quota_of(disk.get(), project).dqb_curinodes == 0);
}

TEST_CASE("a project quota limits the number of files") {
  VmLab lab;
  TALON_NEED_QUOTA(lab);
  auto spec = lab.spec();
  spec.disk_bytes = 16 * kMiB;
  Box box = lab.create(spec);
  const auto quota =
      quota_of(open_dir(lab.dir()).get(), project_at(lab.root_of(spec.id) / "upper"));
  CHECK(quota.dqb_ihardlimit == 65536);
  CHECK(quota.dqb_curinodes < 100);
  lab.destroy(box);
}

TEST_CASE("more images than a machine has loop devices at first") {
  Lab lab;
  if (const auto missing = disk::missing_for_images(); !missing.empty() || !has_controllers()) {
    WARN("SKIP: devices that are made here stay: " << missing);
    return;
  }
  const DirFd dir = open_dir(lab.dir());
  std::vector<disk::ImageMounts> mounts;
  for (int i = 0; i < 12; ++i) {
    const std::string name = std::to_string(i) + ".img";
    REQUIRE(disk::make_image(dir.get(), name, 16 * kMiB));
    auto mount = disk::mount_image(dir.get(), name);
    REQUIRE(mount);
    mounts.push_back(std::move(*mount));
  }
  for (const auto& mount : mounts) {
    CHECK(disk_use(mount.first.get(), "")->size_bytes > 8 * kMiB);
  }
}
