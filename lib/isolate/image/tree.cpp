#include "isolate/image/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace talon::isolate::image {

namespace {

Result<> copy_range(int from, int to, off_t offset, off_t end) {
  bool in_kernel = true;
  std::vector<char> buffer;
  while (offset < end) {
    const std::size_t want = static_cast<std::size_t>(std::min<off_t>(end - offset, 16 << 20));
    if (in_kernel) {
      loff_t in = offset;
      loff_t out = offset;
      const ssize_t n = copy_file_range(from, &in, to, &out, want, 0);
      if (n > 0) {
        offset += n;
        continue;
      }
      if (n == 0) {
        return {};  // the file shrank
      }
      if (errno == EINTR) {
        continue;
      }
      if (errno != EXDEV && errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) {
        return fail_sys(errno, "copy");
      }
      in_kernel = false;
      buffer.resize(1 << 18);
    }
    const ssize_t n = pread(from, buffer.data(), std::min(want, buffer.size()), offset);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      return fail_sys(errno, "read");
    }
    if (n == 0) {
      return {};
    }
    for (ssize_t done = 0; done < n;) {
      const ssize_t w =
          pwrite(to, buffer.data() + done, static_cast<std::size_t>(n - done), offset + done);
      if (w < 0 && errno != EINTR) {
        return fail_sys(errno, "write");
      }
      done += std::max<ssize_t>(w, 0);
    }
    offset += n;
  }
  return {};
}

// Empties `dir`. Below `kKeep` levels a directory is first moved up next to the tree's top, so
// that a tree of any depth needs few descriptors.
Result<> empty_dir(int dir, int top, int depth, bool& moved, std::uint64_t& serial) {
  constexpr int kKeep = 48;
  TALON_TRY(entries, list_dir(dir));
  for (const Entry& e : entries) {
    if (unlinkat(dir, e.name.c_str(), 0) == 0 || errno == ENOENT) {
      continue;
    }
    if (errno != EISDIR && errno != EPERM) {
      return fail_sys(errno, "remove " + e.name);
    }
    if (unlinkat(dir, e.name.c_str(), AT_REMOVEDIR) == 0) {
      continue;
    }
    if (depth >= kKeep) {
      int failed = EEXIST;
      while (failed == EEXIST) {
        const std::string up = ".deep-" + std::to_string(++serial);
        failed = renameat2(dir, e.name.c_str(), top, up.c_str(), RENAME_NOREPLACE) == 0 ? 0 : errno;
      }
      if (failed != 0) {
        return fail_sys(failed, "move " + e.name);
      }
      moved = true;
      continue;
    }
    auto sub = open_subdir(dir, e.name);
    if (!sub) {
      return std::unexpected(std::move(sub).error().in("remove " + e.name));
    }
    TALON_CHECK(empty_dir(sub->get(), top, depth + 1, moved, serial));
    if (unlinkat(dir, e.name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) {
      return fail_sys(errno, "remove " + e.name);
    }
  }
  return {};
}

}  // namespace

Result<UniqueFd> open_beneath(int dir, const std::string& name, std::uint64_t flags) {
  open_how how{};
  how.flags = flags | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  for (;;) {
    const long fd = syscall(SYS_openat2, dir, name.c_str(), &how, sizeof how);
    if (fd >= 0) {
      return UniqueFd{static_cast<int>(fd)};
    }
    if (errno != EINTR && errno != EAGAIN) {  // EAGAIN: a rename raced with RESOLVE_BENEATH
      return fail_sys(errno, "open");
    }
  }
}

Result<UniqueFd> open_subdir(int dir, const std::string& name) {
  return open_beneath(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

Result<std::vector<Entry>> list_dir(int dir) {
  alignas(dirent64) std::array<char, 32768> buffer;
  std::vector<Entry> entries;
  if (lseek(dir, 0, SEEK_SET) < 0) {
    return fail_sys(errno, "rewind");
  }
  for (;;) {
    const ssize_t n = getdents64(dir, buffer.data(), buffer.size());
    if (n < 0) {
      return fail_sys(errno, "list");
    }
    if (n == 0) {
      return entries;
    }
    for (ssize_t i = 0; i < n;) {
      const auto* e = reinterpret_cast<const dirent64*>(buffer.data() + i);
      i += e->d_reclen;
      const std::string_view name{e->d_name};
      if (name != "." && name != "..") {
        entries.push_back({std::string{name}, e->d_type});
      }
    }
  }
}

Result<> copy_content(int from, int to, std::uint64_t size, bool& reflinked) {
  reflinked = size > 0 && ioctl(to, FICLONE, from) == 0;
  if (reflinked || size == 0) {
    return {};
  }
  const auto end = static_cast<off_t>(size);
  for (off_t at = 0; at < end;) {
    const off_t data = lseek(from, at, SEEK_DATA);
    if (data < 0) {
      if (errno == ENXIO) {
        break;  // only a hole is left
      }
      TALON_CHECK(copy_range(from, to, at, end));
      break;
    }
    off_t hole = lseek(from, data, SEEK_HOLE);
    hole = hole < 0 ? end : std::min(hole, end);
    TALON_CHECK(copy_range(from, to, data, hole));
    at = std::max(hole, at + 1);
  }
  if (ftruncate(to, end) != 0) {
    return fail_sys(errno, "set size");
  }
  return {};
}

Result<> remove_tree(int dir, const std::string& name) {
  if (unlinkat(dir, name.c_str(), 0) == 0 || errno == ENOENT) {
    return {};
  }
  auto top = open_at(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!top) {
    return std::unexpected(std::move(top).error().in("remove " + name));
  }
  std::uint64_t serial = 0;
  for (bool moved = true; moved;) {
    moved = false;
    TALON_CHECK(empty_dir(top->get(), top->get(), 0, moved, serial));
  }
  if (unlinkat(dir, name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) {
    return fail_sys(errno, "remove " + name);
  }
  return {};
}

}  // namespace talon::isolate::image
