// An ext4 image on a loop device: loop(4), mkfs.ext4(8), ext4(5).

#include <fcntl.h>
#include <linux/loop.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <thread>

#include "base/fault.h"
#include "isolate/disk.h"
#include "isolate/kernel/mount.h"

namespace talon::isolate::disk {

namespace {

constexpr const char* kControl = "/dev/loop-control";
constexpr std::array kPrograms = {"/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"};
constexpr std::uint32_t kBlock = 4096;
constexpr int kLoopMajor = 7;  // admin-guide/devices.rst
constexpr int kTries = 256;    // others that take free devices at the same time
constexpr std::chrono::milliseconds kLockDeadline{10'000};
constexpr std::chrono::milliseconds kLockPause{2};

const char* find_mkfs() {
  for (const char* path : kPrograms) {
    if (access(path, X_OK) == 0) {
      return path;
    }
  }
  return nullptr;
}

// Runs mkfs.ext4 on `image`, which it sees as descriptor 3.
Result<> run_mkfs(int image, std::uint64_t bytes) {
  const char* program = find_mkfs();
  if (program == nullptr) {
    return fail(Code::unenforceable, missing_for_images());
  }
  // A journal, small: after a power cut the host's own journal says nothing about the order of
  // blocks in a file, and root changes outlive the boot. No reserved blocks, no room to grow. The
  // tables need no zeros: the file is sparse.
  const char* journal = bytes < (1ull << 30) ? "size=4" : "size=32";
  // clang-format off
  std::array argv = {
      program, "-q", "-F", "-b", "4096", "-I", "256", "-i", "8192", "-m", "0", "-J", journal,
      "-O", "has_journal,extent,^resize_inode", "-E",
      "lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0", "/proc/self/fd/3",
      static_cast<const char*>(nullptr)};
  // clang-format on
  char path[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
  char* const envp[] = {path, nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, image, 3);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  sigfillset(&signals);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, program, &actions, &attributes,
                                const_cast<char* const*>(argv.data()), envp);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    return fail_sys(error, std::string{"start "} + program);
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return fail(Code::io, std::string{program} + " could not make a file system of " +
                              std::to_string(bytes) + " bytes");
  }
  return {};
}

// The lock of an image belongs to the open file that the loop device holds, so it lasts exactly as
// long as the image is in use, whoever is killed. Mounted twice at once it would be destroyed.
Result<> lock_image(int image) {
  const auto until = std::chrono::steady_clock::now() + kLockDeadline;
  while (flock(image, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) {
      return fail_sys(errno, "lock a disk image");
    }
    if (std::chrono::steady_clock::now() >= until) {
      return fail(Code::busy, "the disk image is still in use");
    }
    // The kernel tells nobody when it has let a file system go.
    std::this_thread::sleep_for(kLockPause);
  }
  return {};
}

struct Loop {
  UniqueFd device;
  std::string path;  // of the device, as long as `device` is open
};

// The node is our own: /dev may have too few of them (a container's), and the number is all there
// is to it. `nodes`: a tmpfs that nobody else sees.
Result<Loop> open_loop(int nodes, int number) {
  const std::string name = std::to_string(number);
  if (mknodat(nodes, name.c_str(), S_IFBLK | 0600,
              makedev(kLoopMajor, static_cast<unsigned>(number))) != 0 &&
      errno != EEXIST) {
    return fail_sys(errno, "make a loop device's node");
  }
  TALON_TRY(device, open_at(nodes, name, O_RDWR));
  std::string path = "/proc/self/fd/" + std::to_string(device.get());
  return Loop{.device = std::move(device), .path = std::move(path)};
}

// A free loop device with `image` behind it, until its last opener or mount is gone.
Result<Loop> bind_loop(int image) {
  TALON_TRY(control, open_at(AT_FDCWD, kControl, O_RDWR));
  TALON_TRY(nodes, kernel::make_mount("tmpfs", {{"size", "64k"}, {"mode", "0700"}},
                                      MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC));
  loop_config config{};
  config.fd = static_cast<std::uint32_t>(image);
  config.block_size = kBlock;
  // Direct: each block is cached once, above the device. Where the file system below cannot, the
  // kernel falls back to its cache.
  config.info.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO;
  for (int i = 0; i < kTries; ++i) {
    const int number = ioctl(control.get(), LOOP_CTL_GET_FREE);
    if (number < 0) {
      return fail_sys(errno, "find a free loop device");
    }
    auto opened = open_loop(nodes.get(), number);
    if (!opened && opened.error().sys == ENXIO) {
      continue;  // it has just been removed
    }
    TALON_TRY(loop, std::move(opened));
    if (ioctl(loop.device.get(), LOOP_CONFIGURE, &config) == 0) {
      return loop;
    }
    if (errno != EBUSY) {
      return fail_sys(errno, "set a loop device up");
    }
  }
  return fail(Code::unavailable, "other programs take every free loop device");
}

}  // namespace

std::string missing_for_images() {
  if (find_mkfs() == nullptr) {
    return "mkfs.ext4 is not installed (apt install e2fsprogs)";
  }
  if (access(kControl, R_OK | W_OK) != 0) {
    return std::string{kControl} + " is missing (modprobe loop)";
  }
  return {};
}

bool has_image(int dir, const std::string& name) {
  struct stat facts{};
  return fstatat(dir, name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(facts.st_mode);
}

Result<> make_image(int dir, const std::string& name, std::uint64_t bytes) {
  const std::string unready = name + ".new";
  TALON_TRY(file, open_at(dir, unready, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600));
  if (ftruncate(file.get(), static_cast<off_t>(bytes / kBlock * kBlock)) != 0) {
    return fail_sys(errno, "size a disk image");
  }
  TALON_CHECK(run_mkfs(file.get(), bytes));
  TALON_CHECK(fault::point("disk.image"));
  if (renameat(dir, unready.c_str(), dir, name.c_str()) != 0) {
    return fail_sys(errno, "name a disk image");
  }
  return {};
}

Result<ImageMounts> mount_image(int dir, const std::string& name) {
  TALON_TRY(image, open_at(dir, name, O_RDWR | O_NOFOLLOW));
  TALON_CHECK(lock_image(image.get()));
  TALON_TRY(loop, bind_loop(image.get()));
  fault::stop("disk.loop");
  // discard: what is deleted inside leaves the image. An error (the host's disk is full, or broken)
  // makes it read-only: nobody waits for it, and the journal says what is true.
  const auto mount = [&loop] {
    return kernel::make_mount(
        "ext4",
        {{"source", loop.path}, {"discard", ""}, {"noinit_itable", ""}, {"errors", "remount-ro"}},
        MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
  };
  TALON_TRY(first, mount());
  TALON_TRY(second, mount());  // of the same file system: the kernel finds it by its device
  return ImageMounts{.first = std::move(first), .second = std::move(second)};
}

}  // namespace talon::isolate::disk
