#pragma once
// Writes archive entries into a new root tree and nowhere else. An archive is hostile: names may
// be absolute, hold `..`, go through symlinks that earlier entries made, or replace a directory by
// a link (CVE-2021-29136, CVE-2019-19921, CVE-2018-15664). Each entry's parent is resolved by the
// kernel against the new root (openat2, RESOLVE_IN_ROOT: an absolute link or `..` in a link's
// target stays inside); the entry itself is made in that directory by its last component with
// calls that never follow a link. `..` in a name is refused.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/fd.h"
#include "isolate/image/tree.h"

namespace talon::isolate::image {

struct Attributes {
  unsigned mode = 0;  // 07777
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::int64_t mtime = 0;
  long mtime_ns = 0;
};

// "/a/./b/" -> "a/b"; "", "." and "/" -> "" (the root itself). invalid_request for `..`, for a
// component above 255 bytes and for more than kMaxDepth components.
Result<std::string> clean_path(std::string_view path);

class Unpacker {
 public:
  explicit Unpacker(int root) : root_(root) {}

  // All paths are clean_path()'s. "" is the root and only a directory may be it.
  Result<> directory(const std::string& path, const Attributes& a);
  // The new file, open for writing, mode 0600 and empty; finish() sets the attributes.
  Result<UniqueFd> file(const std::string& path);
  Result<> finish(int fd, const Attributes& a);
  Result<> symlink(const std::string& path, const std::string& target, const Attributes& a);
  // `target` is a clean path inside the tree and is not followed if it is a symlink.
  Result<> hard_link(const std::string& path, const std::string& target);

 private:
  struct At {
    int dir;
    std::string name;
  };
  // The directory that holds `path`, made (0755) where it is missing. The descriptor is kept
  // until the next call.
  Result<At> parent(const std::string& path);
  Result<UniqueFd> resolve(const std::string& dir) const;
  Result<> clear(const At& at, bool keep_directory);

  int root_;
  std::string cached_path_;
  UniqueFd cached_;
};

// Makes dev, proc, sys, tmp and workspace where they are missing; the error names one that is a
// symlink or no directory (the mounts of a sandbox go there: CVE-2019-19921, CVE-2021-30465).
Result<> make_mount_points(int root);

}  // namespace talon::isolate::image
