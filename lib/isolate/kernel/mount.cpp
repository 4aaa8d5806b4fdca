#include "isolate/kernel/mount.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace talon::isolate::kernel {

Result<MountFd> clone_mount(int dir) {
  MountFd fd{open_tree(dir, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)};
  if (!fd) {
    return fail_sys(errno, "clone a directory as a mount");
  }
  return fd;
}

Result<MountFd> clone_tree(const char* path) {
  MountFd fd{open_tree(AT_FDCWD, path, AT_RECURSIVE | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)};
  if (!fd) {
    return fail_sys(errno, "clone the tree");
  }
  return fd;
}

Result<> change_mount(int mount, const MountChange& change) {
  mount_attr attr{};
  attr.attr_set = change.set;
  attr.propagation = MS_PRIVATE;
  if (change.userns >= 0) {
    attr.attr_set |= MOUNT_ATTR_IDMAP;
    attr.userns_fd = static_cast<std::uint64_t>(change.userns);
  }
  const unsigned flags = AT_EMPTY_PATH | (change.recursive ? AT_RECURSIVE : 0u);
  if (mount_setattr(mount, "", flags, &attr, sizeof(attr)) != 0) {
    return fail_sys(errno, change.userns >= 0 ? "map the ids of a mount" : "set mount attributes");
  }
  return {};
}

namespace {

// "e message": what the file system logged into its context, without the level.
std::string context_log(int context) {
  char text[256];
  const ssize_t n = read(context, text, sizeof(text));
  if (n <= 2) {
    return {};
  }
  return " (" + std::string{text + 2, static_cast<std::size_t>(n) - 2} + ")";
}

std::unexpected<Error> fail_context(int error, const char* type, const char* what, int context) {
  std::string text = std::string{"mount "} + type + ": " + what;
  text += context_log(context);
  return fail_sys(error, text);
}

}  // namespace

Result<MountFd> make_mount(const char* type, std::initializer_list<FsOption> options,
                           std::uint64_t attributes) {
  const UniqueFd context{fsopen(type, FSOPEN_CLOEXEC)};
  if (!context) {
    return fail_sys(errno, std::string{"open file system type "} + type);
  }
  const auto config = [&context](unsigned command, const char* key, const char* value) {
    return fsconfig(context.get(), static_cast<fsconfig_command>(command), key, value, 0);
  };
  for (const FsOption& option : options) {
    const int rc = option.value.empty()
                       ? config(FSCONFIG_SET_FLAG, option.key, nullptr)
                       : config(FSCONFIG_SET_STRING, option.key, option.value.c_str());
    if (rc != 0) {
      return fail_context(errno, type, option.key, context.get());
    }
  }
  if (config(FSCONFIG_CMD_CREATE, nullptr, nullptr) != 0) {
    return fail_context(errno, type, "create", context.get());
  }
  MountFd mount{fsmount(context.get(), FSMOUNT_CLOEXEC, static_cast<unsigned>(attributes))};
  if (!mount) {
    return fail_context(errno, type, "fsmount", context.get());
  }
  return mount;
}

Result<> attach(int mount, int dir, const char* path) {
  const unsigned flags =
      MOVE_MOUNT_F_EMPTY_PATH | (path[0] == '\0' ? unsigned{MOVE_MOUNT_T_EMPTY_PATH} : 0u);
  if (move_mount(mount, "", dir, path, flags) != 0) {
    return fail_sys(errno, std::string{"attach a mount at "} + (path[0] == '\0' ? "target" : path));
  }
  return {};
}

Result<DirFd> open_target(int root, const char* path, bool create, unsigned mode) {
  const auto open = [&] {
    open_how how{};
    how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
    how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
    return static_cast<int>(syscall(SYS_openat2, root, path, &how, sizeof(how)));
  };
  DirFd fd{open()};
  int error = errno;
  if (!fd && error == ENOENT && create) {
    if (mkdirat(root, path, mode) != 0 || fchmodat(root, path, mode, 0) != 0) {
      return fail_sys(errno, std::string{"make /"} + path + " in the image");
    }
    fd.reset(open());
    error = errno;
  }
  if (fd) {
    return fd;
  }
  const std::string name = std::string{"/"} + path + " in the image";
  switch (error) {
    case ELOOP: return fail_sys(error, name + " is a symbolic link");
    case ENOTDIR: return fail_sys(error, name + " is not a directory");
    default: return fail_sys(error, "open " + name);
  }
}

}  // namespace talon::isolate::kernel
