// Mounting, by the old calls and by the new ones (S7, R9).
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "probe.h"

#define UNUSED (void)argc, (void)argv

static long mount_tmpfs(int argc, char** argv) {
  UNUSED;
  return mount("tmpfs", "/tmp", "tmpfs", 0, "");
}
static long mount_proc(int argc, char** argv) {
  UNUSED;
  return mount("proc", "/tmp", "proc", 0, "");
}
static long mount_sysfs(int argc, char** argv) {
  UNUSED;
  return mount("sysfs", "/tmp", "sysfs", 0, "");
}
static long mount_cgroup(int argc, char** argv) {
  UNUSED;
  return mount("cgroup2", "/tmp", "cgroup2", 0, "");
}
static long mount_bind(int argc, char** argv) {
  UNUSED;
  return mount("/tmp", "/proc/sys", NULL, MS_BIND, NULL);
}
static long mount_move(int argc, char** argv) {
  UNUSED;
  return mount("/proc", "/tmp", NULL, MS_MOVE, NULL);
}
static long remount_root(int argc, char** argv) {
  UNUSED;
  return mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL);
}
static long remount(int argc, char** argv) {
  return mount(NULL, argc > 1 ? argv[1] : "/proc/sys", NULL, MS_REMOUNT | MS_BIND, NULL);
}
static long propagation(int argc, char** argv) {
  UNUSED;
  return mount(NULL, "/", NULL, MS_REC | MS_SHARED, NULL);
}
static long try_umount(int argc, char** argv) {
  return umount2(argc > 1 ? argv[1] : "/proc", MNT_DETACH);
}
static long umount_proc(int argc, char** argv) {
  UNUSED;
  return umount2("/proc", MNT_DETACH);
}
static long pivot(int argc, char** argv) {
  UNUSED;
  return syscall(SYS_pivot_root, "/", "/tmp");
}
static long try_chroot(int argc, char** argv) {
  UNUSED;
  return chroot("/tmp");
}
// The classic way out: chroot deeper, then climb from a directory that is above it.
static long chroot_escape(int argc, char** argv) {
  UNUSED;
  const int above = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  mkdir("/tmp/probe-chroot", 0755);
  const long r = chroot("/tmp/probe-chroot");
  if (r == 0 && fchdir(above) == 0) {
    for (int i = 0; i < 64; ++i) {
      if (chdir("..") != 0) {
        break;
      }
    }
    return chroot(".");
  }
  rmdir("/tmp/probe-chroot");
  return r;
}
static long try_fsopen(int argc, char** argv) {
  UNUSED;
  return syscall(SYS_fsopen, "tmpfs", 0);
}
static long try_fspick(int argc, char** argv) {
  UNUSED;
  return syscall(SYS_fspick, AT_FDCWD, "/", 0);
}
static long try_open_tree(int argc, char** argv) {
  UNUSED;
  return syscall(SYS_open_tree, AT_FDCWD, "/", OPEN_TREE_CLONE);
}
static long try_move_mount(int argc, char** argv) {
  UNUSED;
  return syscall(SYS_move_mount, AT_FDCWD, "/proc", AT_FDCWD, "/tmp", 0);
}
static long try_mount_setattr(int argc, char** argv) {
  UNUSED;
  struct mount_attr attr;
  memset(&attr, 0, sizeof attr);
  attr.attr_clr = MOUNT_ATTR_RDONLY;
  return syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, &attr, sizeof attr);
}
static long mknod_device(int argc, char** argv) {
  UNUSED;
  const long r = mknod("/tmp/probe-node", S_IFBLK | 0666, makedev(8, 0));
  if (r == 0) {
    unlink("/tmp/probe-node");
  }
  return r;
}
static long mknod_null(int argc, char** argv) {
  UNUSED;
  const long r = mknod("/tmp/probe-null", S_IFCHR | 0666, makedev(1, 3));
  if (r == 0) {
    unlink("/tmp/probe-null");
  }
  return r;
}
static long create_in_dev(int argc, char** argv) {
  UNUSED;
  return open("/dev/probe-file", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
}
static long handle_at(int argc, char** argv) {
  UNUSED;
  struct {
    struct file_handle head;
    unsigned char bytes[MAX_HANDLE_SZ];
  } h;
  memset(&h, 0, sizeof h);
  h.head.handle_bytes = 8;
  h.head.handle_type = 1;
  h.bytes[0] = 2;  // an ext4 root directory is inode 2 (the "shocker" of 2014)
  return syscall(SYS_open_by_handle_at, AT_FDCWD, &h, O_RDONLY);
}

const struct attempt mount_attempts[] = {
    {"mount", "a tmpfs on /tmp", mount_tmpfs},
    {"mount-proc", "a new proc", mount_proc},
    {"mount-sysfs", "a sysfs", mount_sysfs},
    {"mount-cgroup", "a cgroup2", mount_cgroup},
    {"mount-bind", "a bind over /proc/sys", mount_bind},
    {"mount-move", "MS_MOVE of /proc", mount_move},
    {"mount-shared", "propagation of / to shared", propagation},
    {"remount-root", "/ read-write and without flags", remount_root},
    {"remount", "[PATH]: that mount read-write and without flags", remount},
    {"umount", "[PATH]: that mount", try_umount},
    {"umount-proc", "/proc", umount_proc},
    {"pivot_root", "pivot_root", pivot},
    {"chroot", "chroot", try_chroot},
    {"chroot-escape", "chroot, fchdir, climb", chroot_escape},
    {"fsopen", "fsopen", try_fsopen},
    {"fspick", "fspick", try_fspick},
    {"open_tree", "open_tree(OPEN_TREE_CLONE)", try_open_tree},
    {"move_mount", "move_mount", try_move_mount},
    {"mount_setattr", "mount_setattr", try_mount_setattr},
    {"mknod", "a block device", mknod_device},
    {"mknod-null", "a second null device", mknod_null},
    {"create-in-dev", "a file in /dev", create_in_dev},
    {"open_by_handle_at", "the root inode by handle", handle_at},
    {NULL, NULL, NULL},
};
