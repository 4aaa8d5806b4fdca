#include "isolate/init/mounts.h"

#include "isolate/init/text.h"

namespace talon::init {
namespace {

constexpr unsigned long kMaskFlags = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
constexpr unsigned long kNullDevice = 0x103;  // makedev(1, 3)

long open_in_tree(const Setup& s, const char* path, int flags) {
  long tree = openat(kAtFdcwd, s.tree[0] != 0 ? s.tree : "/", O_PATH | O_DIRECTORY);
  if (tree < 0) {
    return tree;
  }
  // The image is hostile: nothing of the path may be a symbolic link (CVE-2025-31133 and kin).
  struct open_how how = {};
  how.flags = (uint64_t)(flags | O_CLOEXEC);
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS;
  long fd = sys(__NR_openat2, tree, path, &how, sizeof how);
  close((int)tree);
  return fd;
}

long enter_proc(Setup& s) {
  if (s.in_proc) {
    return 0;
  }
  if (s.proc < 0) {
    return -EINVAL;
  }
  long err = sys(__NR_fchdir, s.proc);
  s.in_proc = err >= 0;
  return err;
}

bool missing(long err) { return err == -ENOENT || err == -ENOTDIR; }

// The source of file masks: the tree's own null device, looked at once.
long find_null(Setup& s) {
  if (s.null_path[0] != 0) {
    return 0;
  }
  long fd = open_in_tree(s, "dev/null", O_PATH | O_NOFOLLOW);
  if (fd < 0) {
    return fd;
  }
  struct stat st = {};
  long err = sys(__NR_newfstatat, fd, "", &st, kAtEmptyPath);
  close((int)fd);
  if (err < 0) {
    return err;
  }
  if ((st.st_mode & kModeType) != kModeChar || st.st_rdev != kNullDevice) {
    return -ENODEV;
  }
  Text(s.null_path, sizeof s.null_path).add(s.tree).add("/dev/null");
  return 0;
}

}  // namespace

long mount_new(const Setup& s, const char* fs, const char* key, const char* value, unsigned attr,
               const char* where) {
  long ctx = sys(__NR_fsopen, fs, FSOPEN_CLOEXEC);
  if (ctx < 0) {
    return ctx;
  }
  long err = key != nullptr ? sys(__NR_fsconfig, ctx, FSCONFIG_SET_STRING, key, value, 0) : 0;
  if (err >= 0) {
    err = sys(__NR_fsconfig, ctx, FSCONFIG_CMD_CREATE, nullptr, nullptr, 0);
  }
  long mnt = err < 0 ? err : sys(__NR_fsmount, ctx, FSMOUNT_CLOEXEC, attr);
  close((int)ctx);
  if (mnt < 0) {
    return mnt;
  }
  long target = open_in_tree(s, where, O_PATH | O_DIRECTORY);
  err = target < 0 ? target
                   : sys(__NR_move_mount, mnt, "", target, "",
                         MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
  if (target >= 0) {
    close((int)target);
  }
  if (err < 0) {
    close((int)mnt);
    return err;
  }
  return mnt;
}

// Binds an earlier mask of the same kind where there is one: a bind copies the mount's flags, so
// only the first mask needs a remount. After each the target is looked at: it must be the mask.
long mask_file(Setup& s, const char* target) {
  long err = find_null(s);
  err = err < 0 ? err : enter_proc(s);
  if (err < 0) {
    return err;
  }
  const char* source = s.file_mask != nullptr ? s.file_mask : s.null_path;
  err = sys(__NR_mount, source, target, nullptr, MS_BIND, nullptr);
  if (missing(err)) {
    return 0;
  }
  if (err >= 0 && s.file_mask == nullptr) {
    err = sys(__NR_mount, nullptr, target, nullptr, MS_BIND | MS_REMOUNT | kMaskFlags, nullptr);
  }
  if (err < 0) {
    return err;
  }
  struct stat st = {};
  err = sys(__NR_newfstatat, kAtFdcwd, target, &st, kAtSymlinkNofollow);
  if (err < 0) {
    return err;
  }
  if ((st.st_mode & kModeType) != kModeChar || st.st_rdev != kNullDevice) {
    return -EBADE;
  }
  s.file_mask = target;
  return 0;
}

long mask_dir(Setup& s, const char* target) {
  long err = enter_proc(s);
  if (err < 0) {
    return err;
  }
  struct stat before = {};
  err = sys(__NR_newfstatat, kAtFdcwd, target, &before, kAtSymlinkNofollow);
  if (missing(err) || (err >= 0 && (before.st_mode & kModeType) != kModeDir)) {
    return 0;
  }
  if (s.dir_mask != nullptr) {
    err = sys(__NR_mount, s.dir_mask, target, nullptr, MS_BIND, nullptr);
  } else {
    err = sys(__NR_mount, "tmpfs", target, "tmpfs", kMaskFlags, "mode=0555,nr_inodes=2");
  }
  if (err < 0) {
    return err;
  }
  struct stat after = {};
  err = sys(__NR_newfstatat, kAtFdcwd, target, &after, kAtSymlinkNofollow);
  if (err < 0) {
    return err;
  }
  if (after.st_dev == before.st_dev) {
    return -EBADE;
  }
  s.dir_mask = target;
  return 0;
}

long proc_readonly(Setup& s, const char* target) {
  long err = enter_proc(s);
  if (err < 0) {
    return err;
  }
  err = sys(__NR_mount, target, target, nullptr, MS_BIND, nullptr);
  if (missing(err)) {
    return 0;
  }
  if (err < 0) {
    return err;
  }
  return sys(__NR_mount, nullptr, target, nullptr, MS_BIND | MS_REMOUNT | kMaskFlags, nullptr);
}

}  // namespace talon::init
