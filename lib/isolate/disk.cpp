#include "isolate/disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "isolate/kernel/mount.h"

namespace talon::isolate {

std::string_view to_string(DiskMethod method) {
  switch (method) {
    case DiskMethod::none: return "none";
    case DiskMethod::project_quota: return "project_quota";
    case DiskMethod::loop_image: return "loop_image";
    case DiskMethod::tmpfs: return "tmpfs";
  }
  return "none";
}

Result<DiskUse> disk_use(int dir, const std::string& path) {
  TALON_TRY(at, open_at(dir, path.empty() ? "." : path, O_PATH | O_DIRECTORY | O_NOFOLLOW));
  struct statvfs facts{};
  if (fstatvfs(at.get(), &facts) != 0) {
    return fail_sys(errno, "ask how full a file system is");
  }
  return DiskUse{.used_bytes = (facts.f_blocks - facts.f_bfree) * facts.f_frsize,
                 .size_bytes = facts.f_blocks * facts.f_frsize};
}

namespace disk {

Result<DiskMethod> method_for(int dir) {
  if (has_project_quota(dir)) {
    return DiskMethod::project_quota;
  }
  const std::string missing = missing_for_images();
  if (missing.empty()) {
    return DiskMethod::loop_image;
  }
  return fail(Code::unenforceable,
              "the size of files on disk cannot be limited: the file system of the data directory "
              "has no project quota (mount it with prjquota; see `talond doctor`), and an image "
              "cannot stand in: " +
                  missing);
}

namespace {

Result<std::vector<UniqueFd>> open_trees(const Place& place) {
  std::vector<UniqueFd> out;
  for (const char* name : place.trees) {
    TALON_TRY(tree, open_at(place.dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    out.push_back(std::move(tree));
  }
  if (out.empty()) {
    TALON_TRY(tree, open_at(place.dir, ".", O_RDONLY | O_DIRECTORY));
    out.push_back(std::move(tree));
  }
  return out;
}

// An image as the place it stands for, when it is new: lost+found is still there, and goes last, so
// that a kill -9 in between is made good. A workload may have made a lost+found of its own since;
// that keeps no sandbox from its start.
Result<> furnish(int mount, const Place& place) {
  if (faccessat(mount, "lost+found", F_OK, AT_SYMLINK_NOFOLLOW) != 0) {
    return {};
  }
  if (place.trees.size() == 0) {
    struct stat owner{};
    TALON_TRY(root, open_at(mount, ".", O_RDONLY | O_DIRECTORY));
    if (fstat(place.dir, &owner) != 0 || fchown(root.get(), owner.st_uid, owner.st_gid) != 0 ||
        fchmod(root.get(), owner.st_mode & 07777) != 0) {
      return fail_sys(errno, "give a disk image to its owner");
    }
  }
  if (unlinkat(mount, "lost+found", AT_REMOVEDIR) != 0 && errno != ENOENT && errno != ENOTEMPTY &&
      errno != ENOTDIR) {
    return fail_sys(errno, "empty a disk image");
  }
  return {};
}

// What an image keeps for the moment in which it is mounted: files beside the trees.
constexpr int kSpareFiles = 16;
constexpr off_t kSpareBytes = 128 * 1024;
constexpr std::uint64_t kQuotaRoom = 1ull << 20;

std::string spare(int number) { return "spare/" + std::to_string(number); }

Result<> give_room(int base) {
  for (int i = 0; i < kSpareFiles; ++i) {
    if (unlinkat(base, spare(i).c_str(), 0) != 0 && errno != ENOENT) {
      return fail_sys(errno, "make room in a disk image");
    }
  }
  return {};
}

Result<> take_room(int base) {
  if (mkdirat(base, "spare", 0700) != 0 && errno != EEXIST) {
    return fail_sys(errno, "keep room in a disk image");
  }
  for (int i = 0; i < kSpareFiles; ++i) {
    TALON_TRY(file, open_at(base, spare(i), O_WRONLY | O_CREAT | O_NOFOLLOW, 0600));
    if (i == 0 && fallocate(file.get(), 0, 0, kSpareBytes) != 0) {
      return fail_sys(errno, "keep room in a disk image");
    }
  }
  return {};
}

}  // namespace

Result<Limited> limit(const Place& place, std::uint64_t bytes) {
  Limited out;
  out.bytes_ = bytes;
  out.room_ = place.trees.size() != 0;
  bool image = has_image(place.image_dir, place.image);
  if (!image) {
    TALON_TRY(trees, open_trees(place));
    TALON_TRY(method, method_for(place.dir));
    TALON_TRY(project, project_of(trees.front().get()));
    if (project != 0 && method != DiskMethod::project_quota) {
      return fail(Code::unenforceable,
                  "its files are limited by a project quota, which the mount of the data directory "
                  "no longer has: mount it with prjquota, then start the sandbox again");
    }
    image = method == DiskMethod::loop_image;
    if (image) {
      TALON_CHECK(make_image(place.image_dir, place.image, bytes));
    } else {
      std::vector<int> numbers;
      for (const UniqueFd& tree : trees) {
        numbers.push_back(tree.get());
      }
      TALON_TRY(limited, limit_by_quota(numbers, bytes + (out.room_ ? kQuotaRoom : 0)));
      out.project_ = limited;
      out.method = DiskMethod::project_quota;
      out.base_ = std::move(trees.front());
      TALON_TRY(mount, kernel::clone_mount(place.dir));
      out.mount = std::move(mount);
      return out;
    }
  }
  TALON_TRY(mounts, mount_image(place.image_dir, place.image));
  out.method = DiskMethod::loop_image;
  out.mount = std::move(mounts.first);
  out.base_ = std::move(mounts.second);
  TALON_CHECK(furnish(out.base_.get(), place));
  if (out.room_) {
    TALON_CHECK(give_room(out.base_.get()));
  }
  for (const char* name : place.trees) {
    if (mkdirat(out.base_.get(), name, 0755) != 0 && errno != EEXIST) {
      return fail_sys(errno, std::string{"make "} + name + " in a disk image");
    }
  }
  return out;
}

Result<> Limited::settle() {
  if (!room_) {
    return {};
  }
  return method == DiskMethod::loop_image ? take_room(base_.get())
                                          : set_quota(base_.get(), project_, bytes_);
}

}  // namespace disk

}  // namespace talon::isolate
