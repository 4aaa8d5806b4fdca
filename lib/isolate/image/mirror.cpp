#include "isolate/image/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>

namespace talon::isolate::image {

namespace {

// True where a lookup failed because of a mount or because the entry changed under us.
bool is_mount(const Error& error) { return error.sys == EXDEV; }
bool is_gone(const Error& error) {
  return error.sys == ENOENT || error.sys == ELOOP || error.sys == ENOTDIR || error.sys == ENXIO;
}

class Mirror {
 public:
  Mirror(const TreeRules& rules, const TreeProgress& progress, int root)
      : rules_(rules), progress_(progress), root_(root) {
    struct stat st;
    if (fstat(root, &st) == 0) {
      root_dev_ = st.st_dev;
      root_ino_ = st.st_ino;
    }
  }

  Result<> dir(int src, int dst, int depth);
  TreeCounts counts;

 private:
  Result<> entry(int src, int dst, const Entry& e, std::vector<std::string>& subdirs);
  Result<> link_entry(int src, int dst, const Entry& e, bool& done);
  Result<> copy_file(int src, int dst, const std::string& name);
  Result<> copy_symlink(int src, int dst, const std::string& name);
  Result<> subdir(int src, int dst, const std::string& name, int depth);
  Result<> owner(int fd, const struct stat& st);
  Result<> copy_xattrs(int from, int to);
  std::string at(const std::string& name) const { return rel_.empty() ? name : rel_ + "/" + name; }
  void tick() {
    if (progress_ && (counts.files + counts.symlinks) % 2000 == 0) {
      progress_(counts);
    }
  }

  const TreeRules rules_;
  const TreeProgress& progress_;
  int root_;
  dev_t root_dev_ = 0;
  ino_t root_ino_ = 0;
  std::string rel_;
  // inode in the source -> its first name in the copy
  std::map<std::pair<dev_t, ino_t>, std::string> seen_;
};

Result<> Mirror::dir(int src, int dst, int depth) {
  if (depth > kMaxDepth) {
    return fail(Code::too_large, rel_ + ": deeper than " + std::to_string(kMaxDepth) + " levels");
  }
  std::vector<std::string> subdirs;
  {
    auto entries = list_dir(src);
    if (!entries) {
      return std::unexpected(std::move(entries).error().in(rel_));
    }
    for (const Entry& e : *entries) {
      if (auto r = entry(src, dst, e, subdirs); !r) {
        return std::unexpected(std::move(r).error().in(at(e.name)));
      }
    }
  }
  for (const std::string& name : subdirs) {
    TALON_CHECK(subdir(src, dst, name, depth));
  }
  return {};
}

Result<> Mirror::entry(int src, int dst, const Entry& e, std::vector<std::string>& subdirs) {
  unsigned char type = e.type;
  if (type == DT_UNKNOWN) {
    struct stat st;
    if (fstatat(src, e.name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
      return {};
    }
    type = IFTODT(st.st_mode);
  }
  if (type == DT_DIR) {
    subdirs.push_back(e.name);
    return {};
  }
  if (type != DT_REG && type != DT_LNK) {
    ++counts.special;
    return {};
  }
  if (rules_.hard_link) {
    bool done = false;
    TALON_CHECK(link_entry(src, dst, {e.name, type}, done));
    if (done) {
      return {};
    }
  }
  return type == DT_LNK ? copy_symlink(src, dst, e.name) : copy_file(src, dst, e.name);
}

// Links first and looks afterwards, at the new name, which nobody else can change: so a file
// that is swapped between look and link cannot slip in, and it is one call less than open,
// fstat, link, close.
Result<> Mirror::link_entry(int src, int dst, const Entry& e, bool& done) {
  if (linkat(src, e.name.c_str(), dst, e.name.c_str(), 0) != 0) {
    switch (errno) {
      case ENOENT: done = true; return {};
      case EXDEV:  // another file system, a mounted file, a project quota: a copy tells
      case EMLINK:
      case EPERM:
      case EOPNOTSUPP: return {};
      default: return fail_sys(errno, "link");
    }
  }
  struct stat st;
  if (fstatat(dst, e.name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
    return fail_sys(errno, "stat");
  }
  done = true;
  const bool regular = S_ISREG(st.st_mode);
  const bool readable = !rules_.others_only || S_ISLNK(st.st_mode) || (st.st_mode & S_IROTH) != 0;
  if ((!regular && !S_ISLNK(st.st_mode)) || !readable) {
    if (unlinkat(dst, e.name.c_str(), 0) != 0) {
      return fail_sys(errno, "unlink");
    }
    ++(readable ? counts.special : counts.unreadable);
    return {};
  }
  if (regular) {
    ++counts.files;
    ++counts.linked;
    counts.bytes += static_cast<std::uint64_t>(st.st_size);
  } else {
    ++counts.symlinks;
  }
  tick();
  return {};
}

Result<> Mirror::owner(int fd, const struct stat& st) {
  uid_t uid = st.st_uid;
  gid_t gid = st.st_gid;
  if (rules_.squash_ids) {
    uid = squash_id(uid);
    gid = squash_id(gid);
  }
  // chown first: it clears set-id bits
  if (fchown(fd, uid, gid) != 0 || fchmod(fd, st.st_mode & 07777) != 0) {
    return fail_sys(errno, "owner and mode");
  }
  const std::array<timespec, 2> times{st.st_atim, st.st_mtim};
  if (futimens(fd, times.data()) != 0) {
    return fail_sys(errno, "times");
  }
  return {};
}

Result<> Mirror::copy_xattrs(int from, int to) {
  std::array<char, 65536> names;
  const ssize_t n = flistxattr(from, names.data(), names.size());
  if (n < 0) {
    return errno == ENOTSUP ? Result<>{} : Result<>{fail_sys(errno, "list xattrs")};
  }
  std::vector<char> value;
  for (ssize_t i = 0; i < n;) {
    const std::string_view name{names.data() + i};
    i += static_cast<ssize_t>(name.size()) + 1;
    if (!xattr_allowed(name)) {
      ++counts.xattrs;
      continue;
    }
    value.resize(65536);
    const ssize_t size = fgetxattr(from, name.data(), value.data(), value.size());
    if (size < 0 ||
        fsetxattr(to, name.data(), value.data(), static_cast<std::size_t>(size), 0) != 0) {
      return fail_sys(errno, std::string{"xattr "} + std::string{name});
    }
  }
  return {};
}

Result<> Mirror::copy_file(int src, int dst, const std::string& name) {
  auto from = open_beneath(src, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  if (!from) {
    if (is_mount(from.error())) {
      ++counts.mounts;
      return {};
    }
    return is_gone(from.error()) ? Result<>{} : Result<>{std::unexpected(from.error())};
  }
  struct stat st;
  if (fstat(from->get(), &st) != 0) {
    return fail_sys(errno, "stat");
  }
  if (!S_ISREG(st.st_mode)) {
    ++counts.special;
    return {};
  }
  if (rules_.others_only && (st.st_mode & S_IROTH) == 0) {
    ++counts.unreadable;
    return {};
  }
  counts.bytes += static_cast<std::uint64_t>(st.st_size);
  ++counts.files;
  if (rules_.keep_links && st.st_nlink > 1) {
    const auto [it, fresh] = seen_.try_emplace({st.st_dev, st.st_ino}, at(name));
    if (!fresh && linkat(root_, it->second.c_str(), dst, name.c_str(), 0) == 0) {
      ++counts.linked;
      return {};
    }
  }
  auto to = open_at(dst, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
  if (!to) {
    return std::unexpected(std::move(to).error());
  }
  bool reflinked = false;
  TALON_CHECK(
      copy_content(from->get(), to->get(), static_cast<std::uint64_t>(st.st_size), reflinked));
  ++(reflinked ? counts.reflinked : counts.copied);
  TALON_CHECK(owner(to->get(), st));
  if (rules_.xattrs) {
    TALON_CHECK(copy_xattrs(from->get(), to->get()));
  }
  tick();
  return {};
}

Result<> Mirror::copy_symlink(int src, int dst, const std::string& name) {
  std::array<char, 4097> target;
  const ssize_t n = readlinkat(src, name.c_str(), target.data(), target.size() - 1);
  if (n < 0) {
    return errno == ENOENT || errno == EINVAL ? Result<>{} : Result<>{fail_sys(errno, "readlink")};
  }
  target[static_cast<std::size_t>(n)] = '\0';
  if (symlinkat(target.data(), dst, name.c_str()) != 0) {
    return fail_sys(errno, "symlink");
  }
  struct stat st;
  if (fstatat(src, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0) {
    const uid_t uid = rules_.squash_ids ? squash_id(st.st_uid) : st.st_uid;
    const gid_t gid = rules_.squash_ids ? squash_id(st.st_gid) : st.st_gid;
    if (fchownat(dst, name.c_str(), uid, gid, AT_SYMLINK_NOFOLLOW) != 0) {
      return fail_sys(errno, "owner");
    }
  }
  ++counts.symlinks;
  tick();
  return {};
}

Result<> Mirror::subdir(int src, int dst, const std::string& name, int depth) {
  auto from = open_subdir(src, name);
  struct stat st{};
  const bool mounted = !from && is_mount(from.error());
  if (!from && !mounted) {
    return is_gone(from.error()) ? Result<>{}
                                 : Result<>{std::unexpected(std::move(from).error().in(at(name)))};
  }
  if (from && fstat(from->get(), &st) != 0) {
    return fail_sys(errno, at(name));
  }
  if (from && st.st_dev == root_dev_ && st.st_ino == root_ino_) {
    ++counts.special;  // the copy itself, when <data> lies in what is copied
    return {};
  }
  constexpr mode_t kOthers = S_IROTH | S_IXOTH;
  if (from && rules_.others_only && (st.st_mode & kOthers) != kOthers) {
    ++counts.unreadable;
    return {};
  }
  if (mkdirat(dst, name.c_str(), mounted ? 0755 : 0700) != 0) {
    return fail_sys(errno, "make " + at(name));
  }
  if (mounted) {  // the empty directory beneath the mount is all that is ours to show
    ++counts.mounts;
    return {};
  }
  auto to = open_subdir(dst, name);
  if (!to) {
    return std::unexpected(std::move(to).error().in(at(name)));
  }
  const std::size_t length = rel_.size();
  rel_ = at(name);
  TALON_CHECK(dir(from->get(), to->get(), depth + 1));
  ++counts.dirs;
  if (rules_.xattrs) {
    TALON_CHECK(copy_xattrs(from->get(), to->get()));
  }
  if (auto r = owner(to->get(), st); !r) {
    return std::unexpected(std::move(r).error().in(rel_));
  }
  rel_.resize(length);
  return {};
}

}  // namespace

TreeCounts& TreeCounts::operator+=(const TreeCounts& other) {
  files += other.files;
  dirs += other.dirs;
  symlinks += other.symlinks;
  bytes += other.bytes;
  linked += other.linked;
  reflinked += other.reflinked;
  copied += other.copied;
  unreadable += other.unreadable;
  special += other.special;
  mounts += other.mounts;
  xattrs += other.xattrs;
  return *this;
}

bool xattr_allowed(std::string_view name) {
  if (name.find(".overlay.") != std::string_view::npos) {
    return false;
  }
  return name.starts_with("user.") || name == "security.capability";
}

std::uint32_t squash_id(std::uint64_t id) {
  return id > 65535 ? 65534 : static_cast<std::uint32_t>(id);
}

Result<TreeCounts> mirror(int src, int dst, const TreeRules& rules, const TreeProgress& progress) {
  Mirror work{rules, progress, dst};
  TALON_CHECK(work.dir(src, dst, 0));
  return work.counts;
}

}  // namespace talon::isolate::image
