#pragma once
// Directory trees by directory descriptors: mirrored (by hard link, reflink or copy) and removed.
// No path is ever built for the kernel: a name is looked up in the directory that was opened, so
// neither a renamed parent nor a symlink can lead out of the two trees, and a nested mount is
// seen (openat2, RESOLVE_NO_XDEV) and not crossed.

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fd.h"

namespace talon::isolate::image {

// Deeper trees are refused by mirror() (two descriptors a level); remove_tree has no such limit.
inline constexpr int kMaxDepth = 256;

struct TreeCounts {
  std::uint64_t files = 0;
  std::uint64_t dirs = 0;
  std::uint64_t symlinks = 0;
  std::uint64_t bytes = 0;       // sum of file sizes, each hard link counted
  std::uint64_t linked = 0;      // files by how they came: shared inode,
  std::uint64_t reflinked = 0;   //   shared extents,
  std::uint64_t copied = 0;      //   bytes
  std::uint64_t unreadable = 0;  // left out: not readable by others
  std::uint64_t special = 0;     // left out: devices, FIFOs, sockets
  std::uint64_t mounts = 0;      // left out: something is mounted there
  std::uint64_t xattrs = 0;      // left out: extended attributes that an image may not hold
  TreeCounts& operator+=(const TreeCounts& other);
};

struct TreeRules {
  bool hard_link = false;    // share inodes where the kernel lets us; else everything is copied
  bool others_only = false;  // only what others may read (directories: read and search)
  bool squash_ids = false;   // ids above 65535 become 65534 (copies only)
  bool xattrs = false;       // copy user.* and security.capability
  bool keep_links = false;   // hard links within the tree stay hard links (copies only)
};

using TreeProgress = std::function<void(const TreeCounts&)>;  // every 2000 files

// What `src` holds into the empty directory `dst`; modes, owners and times are kept. The error
// names the entry relative to `src`. A file that stops being what it was seen as is skipped.
Result<TreeCounts> mirror(int src, int dst, const TreeRules& rules,
                          const TreeProgress& progress = {});

// Copies one regular file's content by FICLONE, else copy_file_range, else read and write; holes
// stay holes. `reflinked` tells which.
Result<> copy_content(int from, int to, std::uint64_t size, bool& reflinked);

struct Entry {
  std::string name;
  unsigned char type;  // DT_*; DT_UNKNOWN where the file system does not tell
};
// All names but "." and "..", in the file system's order.
Result<std::vector<Entry>> list_dir(int dir);

// Removes `name` in `dir` and all beneath it; nothing there is success. Links are removed, never
// followed; files are unlinked, never opened (they may share inodes with the host).
Result<> remove_tree(int dir, const std::string& name);

// openat2 of one entry of `dir`: never through a symlink or into another mount (sys EXDEV).
Result<UniqueFd> open_beneath(int dir, const std::string& name, std::uint64_t flags);
// The same of an entry that is itself a directory.
Result<UniqueFd> open_subdir(int dir, const std::string& name);

// Kept in an image: user.* and security.capability, but never *.overlay.* (decision 28).
bool xattr_allowed(std::string_view name);

std::uint32_t squash_id(std::uint64_t id);  // above 65535 -> 65534

}  // namespace talon::isolate::image
