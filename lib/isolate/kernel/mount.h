#pragma once
// Mounts by descriptor (open_tree, fsopen, mount_setattr, move_mount: Linux 5.2 and newer, man 2
// mount_setattr). Every mount that leaves this module is private: a clone of a shared mount
// would otherwise carry what is mounted on it back to the host.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/fd.h"

namespace talon::isolate::kernel {

// A detached clone of the directory `dir` as a mount of its own. `dir` must lie in the caller's
// mount namespace (EINVAL otherwise), so the daemon clones, not the spawner.
Result<MountFd> clone_mount(int dir);
// The same for the mounted tree at `path`, with everything mounted on it.
Result<MountFd> clone_tree(const char* path);

struct MountChange {
  std::uint64_t set = 0;  // MOUNT_ATTR_*
  int userns = -1;        // >= 0: idmap by this user namespace (MOUNT_ATTR_IDMAP)
  bool recursive = false;
};
Result<> change_mount(int mount, const MountChange& change);

struct FsOption {
  const char* key;
  std::string value;  // "" = a flag
};
// A new file system as a detached mount with MOUNT_ATTR_* `attributes`. The error carries what
// the file system itself logged (man 2 fsopen), where it did.
Result<MountFd> make_mount(const char* type, std::initializer_list<FsOption> options,
                           std::uint64_t attributes);

// move_mount of a detached mount onto `path` below `dir`; "" = onto `dir` itself.
Result<> attach(int mount, int dir, const char* path);

// Opens a directory below `root` as a mount target: no symbolic link, no other mount on the way.
// `create`: made with `mode` when missing. The error names the path (runtime.md R4).
Result<DirFd> open_target(int root, const char* path, bool create, unsigned mode);

}  // namespace talon::isolate::kernel
