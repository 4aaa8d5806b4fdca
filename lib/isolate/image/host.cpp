#include "isolate/image/host.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

#include "base/id.h"

namespace talon::isolate::image {

namespace {

// Writes into the new tree. A parent is opened without following any symlink: the tree's own
// links (bin -> usr/bin, or one that came with /etc) must never carry a write to the host.
class Builder {
 public:
  explicit Builder(int root) : root_(root) {}

  Result<> dir(const std::string& path, mode_t mode, uid_t uid = 0, gid_t gid = 0);
  Result<> file(const std::string& path, std::string_view text, mode_t mode = 0644, uid_t uid = 0,
                gid_t gid = 0);
  Result<> link(const std::string& path, const std::string& target);
  bool is_dir(const std::string& path) const {
    return open_beneath(root_, path, O_PATH | O_DIRECTORY | O_NOFOLLOW).has_value();
  }
  Result<UniqueFd> open(const std::string& path) const {
    return open_beneath(root_, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  }

 private:
  struct At {
    UniqueFd owned;
    int dir;
    std::string name;
  };
  Result<At> parent(const std::string& path) const;
  int root_;
};

Result<Builder::At> Builder::parent(const std::string& path) const {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) {
    return At{UniqueFd{}, root_, path};
  }
  auto up = open_beneath(root_, path.substr(0, slash), O_PATH | O_DIRECTORY | O_NOFOLLOW);
  if (!up) {
    return std::unexpected(std::move(up).error().in("parent of /" + path));
  }
  const int fd = up->get();
  return At{std::move(*up), fd, path.substr(slash + 1)};
}

Result<> Builder::dir(const std::string& path, mode_t mode, uid_t uid, gid_t gid) {
  TALON_TRY(at, parent(path));
  if (mkdirat(at.dir, at.name.c_str(), 0700) != 0 && errno != EEXIST) {
    return fail_sys(errno, "make /" + path);
  }
  TALON_TRY(fd, open_subdir(at.dir, at.name));
  if (fchown(fd.get(), uid, gid) != 0 || fchmod(fd.get(), mode) != 0) {
    return fail_sys(errno, "mode of /" + path);
  }
  return {};
}

Result<> Builder::file(const std::string& path, std::string_view text, mode_t mode, uid_t uid,
                       gid_t gid) {
  TALON_TRY(at, parent(path));
  if (unlinkat(at.dir, at.name.c_str(), 0) != 0 && errno != ENOENT) {
    return fail_sys(errno, "replace /" + path);
  }
  TALON_TRY(fd, open_at(at.dir, at.name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
  TALON_CHECK(write_all(fd.get(), text));
  if (fchown(fd.get(), uid, gid) != 0 || fchmod(fd.get(), mode) != 0) {
    return fail_sys(errno, "mode of /" + path);
  }
  return {};
}

Result<> Builder::link(const std::string& path, const std::string& target) {
  TALON_TRY(at, parent(path));
  if (unlinkat(at.dir, at.name.c_str(), 0) != 0 && errno != ENOENT) {
    return fail_sys(errno, "replace /" + path);
  }
  if (symlinkat(target.c_str(), at.dir, at.name.c_str()) != 0) {
    return fail_sys(errno, "link /" + path);
  }
  return {};
}

// A directory of the host, linked in under the same name.
Result<TreeCounts> link_tree(int host_root, int root, const std::string& name,
                             const ImageProgress& progress, std::uint64_t before) {
  TALON_TRY(from, open_at(host_root, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  struct stat st;
  if (fstat(from.get(), &st) != 0) {
    return fail_sys(errno, "/" + name);
  }
  Builder build{root};
  TALON_CHECK(build.dir(name, st.st_mode & 07777, st.st_uid, st.st_gid));
  TALON_TRY(to, build.open(name));
  auto counts = mirror(from.get(), to.get(), {.hard_link = true, .others_only = true},
                       [&](const TreeCounts& c) {
                         if (progress) {
                           progress(before + c.files + c.symlinks, name);
                         }
                       });
  if (!counts) {
    return std::unexpected(std::move(counts).error().in("/" + name));
  }
  return counts;
}

// /bin, /lib, …: links into /usr as on the host, or (no merged /usr) trees like /usr.
Result<> top_level(int host_root, int root, const ImageProgress& progress, TreeCounts& counts) {
  Builder build{root};
  for (const std::string name : {"bin", "sbin", "lib", "lib32", "lib64", "libx32"}) {
    struct stat st;
    if (fstatat(host_root, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
      continue;
    }
    if (S_ISDIR(st.st_mode)) {
      TALON_TRY(more, link_tree(host_root, root, name, progress, counts.files + counts.symlinks));
      counts += more;
      continue;
    }
    std::array<char, 256> target{};
    const ssize_t n = S_ISLNK(st.st_mode)
                          ? readlinkat(host_root, name.c_str(), target.data(), target.size() - 1)
                          : -1;
    const std::string_view to{target.data()};
    if (n > 0 && (to.starts_with("usr/") || to.starts_with("/usr/"))) {
      TALON_CHECK(build.link(name, std::string{to}));
    }
  }
  return {};
}

// PAM as a plain Debian has it: the host's policy (directory services, limits that would be
// refused inside) has no meaning here.
Result<> plain_pam(Builder& build) {
  if (!build.is_dir("etc/pam.d")) {
    return {};
  }
  TALON_CHECK(build.file("etc/pam.d/common-auth", "auth required pam_unix.so\n"));
  TALON_CHECK(build.file("etc/pam.d/common-account", "account required pam_unix.so\n"));
  TALON_CHECK(build.file("etc/pam.d/common-password", "password required pam_unix.so\n"));
  TALON_CHECK(build.file("etc/pam.d/common-session", "session required pam_unix.so\n"));
  TALON_CHECK(
      build.file("etc/pam.d/common-session-noninteractive", "session required pam_unix.so\n"));
  TALON_CHECK(build.dir("etc/security", 0755));
  for (const char* name : {"access.conf", "capability.conf", "group.conf", "limits.conf",
                           "namespace.conf", "pam_env.conf", "time.conf"}) {
    TALON_CHECK(build.file(std::string{"etc/security/"} + name, ""));
  }
  return {};
}

Result<EtcCounts> make_etc(int host_root, int root) {
  Builder build{root};
  TALON_CHECK(build.dir("etc", 0755));
  TALON_TRY(from, open_at(host_root, "etc", O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  TALON_TRY(to, build.open("etc"));
  TALON_TRY(counts, copy_etc(from.get(), to.get()));

  const bool bash = open_beneath(root, "usr/bin/bash", O_PATH).has_value();
  const std::string shell = bash ? "/bin/bash" : "/bin/sh";
  TALON_CHECK(build.file("etc/passwd", passwd_text(shell)));
  TALON_CHECK(build.file("etc/group", group_text()));
  TALON_CHECK(build.file("etc/hosts", hosts_text()));
  TALON_CHECK(build.file("etc/hostname", "sandbox\n"));
  TALON_CHECK(build.file("etc/resolv.conf", resolv_conf_text()));
  TALON_CHECK(build.file("etc/nsswitch.conf", nsswitch_text()));
  TALON_CHECK(build.file("etc/machine-id", random_hex(16) + "\n", 0444));
  TALON_CHECK(build.file("etc/environment", ""));
  TALON_CHECK(build.file("etc/fstab", ""));
  TALON_CHECK(build.link("etc/mtab", "/proc/self/mounts"));
  TALON_CHECK(plain_pam(build));
  return counts;
}

struct Dir {
  const char* path;
  mode_t mode;
  unsigned uid;
  unsigned gid;
};
// In order: a parent stands before what it holds. 42 is _apt, 8 mail, 50 staff.
constexpr std::array kDirs = std::to_array<Dir>({
    {"dev", 0755, 0, 0},
    {"proc", 0555, 0, 0},
    {"sys", 0555, 0, 0},
    {"tmp", 01777, 0, 0},
    {"workspace", 0755, 1000, 1000},
    {"root", 0700, 0, 0},
    {"home", 0755, 0, 0},
    {"home/user", 0755, 1000, 1000},
    {"run", 0755, 0, 0},
    {"run/lock", 01777, 0, 0},
    {"srv", 0755, 0, 0},
    {"opt", 0755, 0, 0},
    {"mnt", 0755, 0, 0},
    {"media", 0755, 0, 0},
    {"var", 0755, 0, 0},
    {"var/tmp", 01777, 0, 0},
    {"var/backups", 0755, 0, 0},
    {"var/log", 0755, 0, 0},
    {"var/log/apt", 0755, 0, 0},
    {"var/local", 02775, 0, 50},
    {"var/mail", 02775, 0, 8},
    {"var/opt", 0755, 0, 0},
    {"var/spool", 0755, 0, 0},
    {"var/cache", 0755, 0, 0},
    {"var/cache/apt", 0755, 0, 0},
    {"var/cache/apt/archives", 0755, 0, 0},
    {"var/cache/apt/archives/partial", 0700, 42, 0},
    {"var/cache/debconf", 0755, 0, 0},
    {"var/cache/ldconfig", 0700, 0, 0},
    {"var/lib", 0755, 0, 0},
    {"var/lib/apt", 0755, 0, 0},
    {"var/lib/apt/lists", 0755, 0, 0},
    {"var/lib/apt/lists/partial", 0700, 42, 0},
    {"var/lib/apt/mirrors", 0755, 0, 0},
    {"var/lib/apt/mirrors/partial", 0755, 0, 0},
    {"var/lib/apt/periodic", 0755, 0, 0},
    {"var/lib/misc", 0755, 0, 0},
    {"var/lib/pam", 0755, 0, 0},
});

Result<> make_dirs(int root) {
  Builder build{root};
  for (const Dir& d : kDirs) {
    TALON_CHECK(build.dir(d.path, d.mode, d.uid, d.gid));
  }
  TALON_CHECK(build.link("var/run", "/run"));
  TALON_CHECK(build.link("var/lock", "/run/lock"));
  TALON_CHECK(build.link("var/spool/mail", "../mail"));
  // Start-up files from the copied skeleton, which has been looked at for secrets already.
  for (const std::string name : {".bashrc", ".profile", ".bash_logout"}) {
    auto text = open_beneath(root, "etc/skel/" + name, O_RDONLY | O_NOFOLLOW);
    if (!text) {
      continue;
    }
    TALON_TRY(content, read_file_at(root, "etc/skel/" + name));
    TALON_CHECK(build.file("home/user/" + name, content, 0644, 1000, 1000));
    TALON_CHECK(build.file("root/" + name, content, 0644));
  }
  return {};
}

// dpkg's database, so that apt-get and dpkg -l work inside. Copied: unlike /usr it is written in
// place by the host.
Result<TreeCounts> copy_dpkg(int host_root, int root) {
  // Not open_beneath: /var may well be a mount of its own on the host.
  auto from = open_at(host_root, "var/lib/dpkg", O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!from) {
    return TreeCounts{};  // not a Debian host, or not where it would be
  }
  Builder build{root};
  TALON_CHECK(build.dir("var/lib/dpkg", 0755));
  TALON_TRY(to, build.open("var/lib/dpkg"));
  auto counts = mirror(from->get(), to.get(), {.others_only = true});
  if (!counts) {
    return std::unexpected(std::move(counts).error().in("/var/lib/dpkg"));
  }
  for (const std::string name : {"var/lib/dpkg/statoverride", "var/lib/dpkg/statoverride-old"}) {
    if (open_beneath(root, name, O_PATH | O_NOFOLLOW)) {
      TALON_TRY(text, read_file_at(root, name));
      TALON_CHECK(build.file(name, filter_statoverride(text)));
    }
  }
  return counts;
}

}  // namespace

Result<HostTree> make_host_tree(int host_root, int root, const ImageProgress& progress) {
  HostTree tree;
  TALON_TRY(usr, link_tree(host_root, root, "usr", progress, 0));
  tree.usr = usr;
  TALON_CHECK(top_level(host_root, root, progress, tree.usr));
  if (progress) {
    progress(tree.usr.files + tree.usr.symlinks, "etc");
  }
  TALON_TRY(etc, make_etc(host_root, root));
  tree.etc = etc;
  TALON_CHECK(make_dirs(root));
  if (progress) {
    progress(tree.usr.files + tree.usr.symlinks + etc.files, "dpkg");
  }
  TALON_TRY(dpkg, copy_dpkg(host_root, root));
  tree.dpkg = dpkg;
  return tree;
}

}  // namespace talon::isolate::image
