#include "isolate/image/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace talon::isolate::image {

Result<std::string> clean_path(std::string_view path) {
  std::string out;
  int depth = 0;
  while (!path.empty()) {
    const std::size_t slash = std::min(path.find('/'), path.size());
    const std::string_view part = path.substr(0, slash);
    path.remove_prefix(std::min(slash + 1, path.size()));
    if (part.empty() || part == ".") {
      continue;
    }
    if (part == "..") {
      return fail(Code::invalid_request, "the name goes up (`..`)");
    }
    if (part.find('\0') != part.npos) {
      return fail(Code::invalid_request, "the name holds a NUL byte");
    }
    if (part.size() > 255) {
      return fail(Code::invalid_request, "a component of the name is longer than 255 bytes");
    }
    if (++depth > kMaxDepth) {
      return fail(Code::too_large, "deeper than " + std::to_string(kMaxDepth) + " levels");
    }
    out += out.empty() ? "" : "/";
    out += part;
  }
  return out;
}

Result<UniqueFd> Unpacker::resolve(const std::string& dir) const {
  open_how how{};
  how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
  for (;;) {
    const long fd = syscall(SYS_openat2, root_, dir.c_str(), &how, sizeof how);
    if (fd >= 0) {
      return UniqueFd{static_cast<int>(fd)};
    }
    if (errno != EINTR && errno != EAGAIN) {
      return fail_sys(errno, "directory " + dir);
    }
  }
}

Result<Unpacker::At> Unpacker::parent(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) {
    return At{root_, path};
  }
  std::string dir = path.substr(0, slash);
  if (cached_ && cached_path_ == dir) {
    return At{cached_.get(), path.substr(slash + 1)};
  }
  auto fd = resolve(dir);
  if (!fd && fd.error().sys == ENOENT) {
    // Make what is missing, one component at a time. mkdirat follows no link at the end, so a
    // dangling symlink in the middle ends here with an error.
    for (std::size_t at = dir.find('/');; at = dir.find('/', at + 1)) {
      const std::string prefix = dir.substr(0, at);
      auto have = resolve(prefix);
      if (!have && have.error().sys == ENOENT) {
        const std::size_t last = prefix.rfind('/');
        UniqueFd up;
        if (last != std::string::npos) {
          TALON_TRY(opened, resolve(prefix.substr(0, last)));
          up = std::move(opened);
        }
        const std::string name = last == std::string::npos ? prefix : prefix.substr(last + 1);
        if (mkdirat(up ? up.get() : root_, name.c_str(), 0755) != 0) {
          return errno == EEXIST ? fail(Code::invalid_request,
                                        "its directory " + prefix + " is a dangling symlink")
                                 : fail_sys(errno, "make directory " + prefix);
        }
      } else if (!have) {
        return std::unexpected(std::move(have).error());
      }
      if (at == std::string::npos) {
        break;
      }
    }
    fd = resolve(dir);
  }
  if (!fd) {
    return std::unexpected(std::move(fd).error());
  }
  cached_ = std::move(*fd);
  cached_path_ = std::move(dir);
  return At{cached_.get(), path.substr(slash + 1)};
}

// Later entries win, as tar has it; a directory that holds something is not thrown away for a
// file of the same name.
Result<> Unpacker::clear(const At& at, bool keep_directory) {
  struct stat st;
  if (fstatat(at.dir, at.name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
    return errno == ENOENT ? Result<>{} : Result<>{fail_sys(errno, "look up")};
  }
  const bool directory = S_ISDIR(st.st_mode);
  if (directory && keep_directory) {
    return {};
  }
  if (unlinkat(at.dir, at.name.c_str(), directory ? AT_REMOVEDIR : 0) != 0) {
    return fail_sys(errno, "replace");
  }
  if (directory) {
    cached_path_.clear();  // it may be the cached one; the descriptor stays for `at`
  }
  return {};
}

Result<> Unpacker::finish(int fd, const Attributes& a) {
  // chown first: it clears set-id bits
  if (fchown(fd, a.uid, a.gid) != 0 || fchmod(fd, a.mode & 07777) != 0) {
    return fail_sys(errno, "owner and mode");
  }
  const std::array<timespec, 2> times{timespec{0, UTIME_OMIT}, timespec{a.mtime, a.mtime_ns}};
  (void)futimens(fd,
                 times.data());  // a time beyond what the file system holds is no reason to fail
  return {};
}

Result<> Unpacker::directory(const std::string& path, const Attributes& a) {
  if (path.empty()) {
    return finish(root_, a);
  }
  TALON_TRY(at, parent(path));
  TALON_CHECK(clear(at, true));
  if (mkdirat(at.dir, at.name.c_str(), 0700) != 0 && errno != EEXIST) {
    return fail_sys(errno, "make directory");
  }
  TALON_TRY(fd, open_subdir(at.dir, at.name));
  return finish(fd.get(), a);
}

Result<UniqueFd> Unpacker::file(const std::string& path) {
  if (path.empty()) {
    return fail(Code::invalid_request, "the root of the tree must be a directory");
  }
  TALON_TRY(at, parent(path));
  TALON_CHECK(clear(at, false));
  return open_at(at.dir, at.name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
}

Result<> Unpacker::symlink(const std::string& path, const std::string& target,
                           const Attributes& a) {
  if (path.empty()) {
    return fail(Code::invalid_request, "the root of the tree must be a directory, not a symlink");
  }
  TALON_TRY(at, parent(path));
  TALON_CHECK(clear(at, false));
  if (symlinkat(target.c_str(), at.dir, at.name.c_str()) != 0) {
    return fail_sys(errno, "symlink");
  }
  if (fchownat(at.dir, at.name.c_str(), a.uid, a.gid, AT_SYMLINK_NOFOLLOW) != 0) {
    return fail_sys(errno, "owner");
  }
  return {};
}

Result<> Unpacker::hard_link(const std::string& path, const std::string& target) {
  if (path.empty() || target.empty()) {
    return fail(Code::invalid_request, "a hard link to or as the root of the tree");
  }
  if (path == target) {
    return {};
  }
  const std::size_t slash = target.rfind('/');
  UniqueFd from;
  if (slash != std::string::npos) {
    auto opened = resolve(target.substr(0, slash));
    if (!opened) {
      return std::unexpected(std::move(opened).error().in("hard link to " + target));
    }
    from = std::move(*opened);
  }
  const std::string name = slash == std::string::npos ? target : target.substr(slash + 1);
  TALON_TRY(at, parent(path));
  struct stat st;
  if (fstatat(from ? from.get() : root_, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
    return fail_sys(errno, "hard link to " + target);
  }
  TALON_CHECK(clear(at, false));
  // No AT_SYMLINK_FOLLOW: a link to a symlink is a second name of the symlink.
  if (linkat(from ? from.get() : root_, name.c_str(), at.dir, at.name.c_str(), 0) != 0) {
    return fail_sys(errno, "hard link to " + target);
  }
  return {};
}

Result<> make_mount_points(int root) {
  struct Point {
    const char* name;
    mode_t mode;
    unsigned id;
  };
  for (const auto& [name, mode, id] : std::to_array<Point>({{"dev", 0755, 0},
                                                            {"proc", 0555, 0},
                                                            {"sys", 0555, 0},
                                                            {"tmp", 01777, 0},
                                                            {"workspace", 0755, 1000}})) {
    if (mkdirat(root, name, 0700) == 0) {
      TALON_TRY(fd, open_subdir(root, name));
      if (fchown(fd.get(), id, id) != 0 || fchmod(fd.get(), mode) != 0) {
        return fail_sys(errno, std::string{"mode of /"} + name);
      }
      continue;
    }
    if (errno != EEXIST) {
      return fail_sys(errno, std::string{"make /"} + name);
    }
    struct stat st;
    if (fstatat(root, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
      return fail_sys(errno, std::string{"/"} + name);
    }
    if (!S_ISDIR(st.st_mode)) {
      return fail(Code::invalid_request, std::string{"/"} + name + " is " +
                                             (S_ISLNK(st.st_mode) ? "a symlink" : "no directory") +
                                             "; a sandbox mounts there");
    }
  }
  return {};
}

}  // namespace talon::isolate::image
