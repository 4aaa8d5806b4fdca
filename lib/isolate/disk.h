#pragma once
// How far the files of one place may grow (decision 32, docs/adr/0018): a project quota of the file
// system they lie on, or an ext4 image of that size, a sparse file on a loop device. The kernel
// holds both; who writes too much gets EDQUOT or ENOSPC.
//
// Neither needs a sweep, whatever dies when. A loop device is given back by the kernel with the
// last mount of it (LO_FLAGS_AUTOCLEAR, loop(4)), and the image is a file like any other in the
// sandbox's directory. A project id is free when no file bears it, so the file system itself is the
// record.

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/fd.h"

namespace talon::isolate {

enum class DiskMethod { none, project_quota, loop_image, tmpfs };
std::string_view to_string(DiskMethod method);  // as on the wire

// A limit that holds; DiskMethod::none = there is none.
struct DiskLimit {
  std::uint64_t bytes = 0;
  DiskMethod method = DiskMethod::none;
};
struct DiskApplied {
  DiskLimit root;  // root changes
  DiskLimit workspace;
};

// What the file systems say themselves, as df inside does; of an image without its own tables.
struct DiskUse {
  std::uint64_t used_bytes = 0;
  std::uint64_t size_bytes = 0;
};
// Of the file system at `path` below `dir` ("" = of `dir` itself), or of the project there.
// May wait for the disk.
Result<DiskUse> disk_use(int dir, const std::string& path);

namespace disk {

// What can limit files that are made below the directory `dir` (a file system of the host's).
// unenforceable, with what is missing and its remedy, when nothing can.
Result<DiskMethod> method_for(int dir);

struct Place {
  int dir;  // its files; in the caller's mount namespace
  // What lies in it and is limited together, made in an image as in `dir` (0755, root's); none =
  // all of it, and an image's root has the owner and mode of `dir`.
  std::initializer_list<const char*> trees;
  // Where the image lies: out of reach of whoever writes in the place.
  int image_dir;
  std::string image;
};
// A limited place. An overlay must be mountable on one that is full to the brim, and that takes
// some inodes and blocks for a moment: there is room for them until settle().
class Limited {
 public:
  MountFd mount;  // detached; shows `dir`, or the root of the image in its stead
  DiskMethod method = DiskMethod::none;

  // From here on the limit is exact. Before anything else writes in the place.
  Result<> settle();

 private:
  friend Result<Limited> limit(const Place& place, std::uint64_t bytes);
  UniqueFd base_;  // the same place, without the ids that `mount` may be mapped to
  std::uint32_t project_ = 0;
  std::uint64_t bytes_ = 0;
  bool room_ = false;
};
// The place with at most `bytes` in it. What a place was limited by first it keeps. The image may
// still be mounted by an earlier life: waits for its end, at most 10 s (busy). Thread-safe.
Result<Limited> limit(const Place& place, std::uint64_t bytes);

// ---- the two methods

// disk_quota.cpp. quotactl(2), ioctl_iflags(2); Linux 5.14 and newer (quotactl_fd).
bool has_project_quota(int dir);
// The project of a directory, 0 = none of ours: the data directory may be in one of the host's.
Result<std::uint32_t> project_of(int dir);
// At most `bytes`, and a number of files that goes with it.
Result<> set_quota(int dir, std::uint32_t project, std::uint64_t bytes);
// One project for `trees`, directories of one file system that are empty or bear it already; new
// files and directories inherit it. Its quota is `bytes`.
Result<std::uint32_t> limit_by_quota(std::span<const int> trees, std::uint64_t bytes);

// disk_image.cpp. What loop devices and mkfs.ext4 lack here, and the remedy; "" = nothing.
std::string missing_for_images();
// Whether there is one; it is whole then.
bool has_image(int dir, const std::string& name);
// A sparse file with an empty ext4 of `bytes` in all.
Result<> make_image(int dir, const std::string& name, std::uint64_t bytes);
// Its file system as two detached mounts, of which each may be changed without the other.
struct ImageMounts {
  MountFd first;
  MountFd second;
};
Result<ImageMounts> mount_image(int dir, const std::string& name);

}  // namespace disk

}  // namespace talon::isolate
