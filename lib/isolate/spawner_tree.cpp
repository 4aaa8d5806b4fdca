// A sandbox's root tree, put together the portable way (decisions 28, 29): idmapped clones are
// attached below /b of the builder's own mount namespace, the overlay is mounted by relative
// names (no host path shows inside), the rest is attached, and the whole is cloned; then /b goes.
//
// The image is hostile: every mount target is opened without following links and mounts are
// attached by descriptor (CVE-2025-31133, CVE-2021-30465).

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "isolate/kernel/mount.h"
#include "isolate/spawner.h"

namespace talon::isolate::spawner {

using kernel::attach;
using kernel::change_mount;
using kernel::clone_tree;
using kernel::make_mount;
using kernel::open_target;

Result<> raise_capabilities(const Spawner& s) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  const auto low = static_cast<std::uint32_t>(s.capabilities);
  const auto high = static_cast<std::uint32_t>(s.capabilities >> 32);
  data[0] = {.effective = low, .permitted = low, .inheritable = 0};
  data[1] = {.effective = high, .permitted = high, .inheritable = 0};
  if (syscall(SYS_capset, &header, data) != 0) {
    return fail_sys(errno, "raise capabilities");
  }
  return {};
}

Result<> Bench::open() {
  TALON_TRY(mount, clone_tree(kBenchTemplate));
  TALON_CHECK(attach(mount.get(), AT_FDCWD, kBench));
  attached_ = true;
  if (chdir(kBench) != 0) {
    return fail_sys(errno, "enter the bench");
  }
  return {};
}

Bench::~Bench() {
  if (attached_) {
    TALON_ASSERT(chdir("/") == 0);
    // What one sandbox's tree was made of must not be there for the next one's.
    TALON_ASSERT(umount2(kBench, MNT_DETACH) == 0);
  }
}

namespace {

constexpr std::uint64_t kPlain = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
constexpr std::uint64_t kInert = kPlain | MOUNT_ATTR_NOEXEC;
// Files of a tmpfs: one a page, the kernel's own rule for a whole machine, and no fewer than a
// build needs. A million empty files would be a gigabyte of the kernel's memory in a small tmpfs.
constexpr std::uint64_t inodes_for(std::uint64_t bytes) {
  return std::max<std::uint64_t>(65536, bytes / 4096);
}

// Files made from here on are owned by the sandbox's root: on an idmapped mount an id outside
// the map cannot own anything (EOVERFLOW), and the overlay would be read-only.
class ActAs {
 public:
  ActAs(const Spawner& s, std::uint32_t id) {
    setfsgid(id);
    setfsuid(id);
    result_ = raise_capabilities(s);  // a non-zero fsuid drops CHOWN, DAC_OVERRIDE, …
  }
  ~ActAs() {
    setfsuid(0);
    setfsgid(0);
  }
  ActAs(const ActAs&) = delete;
  ActAs& operator=(const ActAs&) = delete;
  const Result<>& result() const { return result_; }

 private:
  Result<> result_;
};

class Builder {
 public:
  Builder(const wire::Tree& request, std::span<const int> fds, wire::SpawnDetail& detail)
      : request_(request),
        detail_(detail),
        userns_(fds[0]),
        image_(fds[1]),
        upper_(fds[2]),
        workspace_(fds[3]) {}

  Result<BuiltTree> run() {
    TALON_CHECK(mount_root());
    TALON_TRY(root, open_at(AT_FDCWD, "t", O_PATH | O_DIRECTORY));
    root_ = std::move(root);
    TALON_CHECK(add_tmp());
    TALON_CHECK(add_workspace());
    BuiltTree out;
    // Before proc, sys and dev: what serves files never sees those (decision 31).
    TALON_TRY(files, clone_tree("t"));
    TALON_CHECK(change_mount(files.get(), {.set = kInert, .recursive = true}));
    out.files = std::move(files);
    TALON_CHECK(add_dev());
    TALON_CHECK(add_sys());
    TALON_TRY(proc, target("proc", 0555));
    TALON_TRY(tree, clone_tree("t"));
    out.tree = std::move(tree);
    return out;
  }

 private:
  bool readonly() const {
    return request_.storage == static_cast<std::uint32_t>(wire::TreeStorage::readonly);
  }
  bool idmapped_tmpfs() const { return request_.idmapped_tmpfs != 0; }

  static Result<> map_mount(int mount, const kernel::MountChange& change, const char* what) {
    auto done = change_mount(mount, change);
    return done ? std::move(done) : std::unexpected(std::move(done).error().in(what));
  }

  Result<> mount_root() {
    TALON_CHECK(map_mount(image_, {.set = MOUNT_ATTR_RDONLY | kPlain, .userns = userns_}, "image"));
    TALON_CHECK(attach(image_, AT_FDCWD, "l"));
    if (readonly()) {
      TALON_CHECK(attach_skeleton());
      TALON_TRY(root, make_mount("overlay", {{"source", "root"}, {"lowerdir", "l:u"}},
                                 kPlain | MOUNT_ATTR_RDONLY));
      return attach(root.get(), AT_FDCWD, "t");
    }
    TALON_CHECK(request_.storage == static_cast<std::uint32_t>(wire::TreeStorage::disk)
                    ? attach_disk_upper()
                    : attach_memory_upper());
    TALON_TRY(root, make_mount("overlay",
                               {{"source", "root"},
                                {"lowerdir", "l"},
                                {"upperdir", "u/upper"},
                                {"workdir", "u/work"},
                                {"redirect_dir", "on"},
                                {"index", "off"},
                                {"metacopy", "off"},
                                {"xino", "auto"}},
                               kPlain));
    TALON_CHECK(attach(root.get(), AT_FDCWD, "t"));
    // The kernel falls back to read-only without an error when it cannot write to the upper.
    struct statvfs facts{};
    if (statvfs("t", &facts) != 0) {
      return fail_sys(errno, "look at the root");
    }
    if ((facts.f_flag & ST_RDONLY) != 0) {
      return fail(Code::io, "the kernel made the root read-only: upper or work cannot be written");
    }
    return {};
  }

  Result<> attach_disk_upper() {
    TALON_CHECK(map_mount(upper_, {.set = kPlain, .userns = userns_}, "upper layer"));
    return attach(upper_, AT_FDCWD, "u");
  }

  Result<> attach_memory_upper() {
    TALON_TRY(mount, sized_tmpfs(request_.upper_bytes, request_.upper_inodes, "0755", kPlain));
    TALON_CHECK(attach(mount.get(), AT_FDCWD, "u"));
    if (mkdir("u/upper", 0755) != 0 || mkdir("u/work", 0755) != 0) {
      return fail_sys(errno, "make the upper layer in memory");
    }
    return {};
  }

  // Mount points for a read-only root whose image lacks them: a second, lower layer.
  Result<> attach_skeleton() {
    TALON_TRY(mount, sized_tmpfs(64 * 1024, 16, "0755", kPlain));
    TALON_CHECK(attach(mount.get(), AT_FDCWD, "u"));
    for (const char* name : {"u/dev", "u/proc", "u/sys", "u/tmp", "u/workspace"}) {
      if (mkdir(name, 0755) != 0) {
        return fail_sys(errno, "make mount points");
      }
    }
    return {};
  }

  // A tmpfs whose ids are 0-based inside: idmapped, or (before 6.3) owned by the range itself.
  Result<MountFd> sized_tmpfs(std::uint64_t bytes, std::uint64_t inodes, const char* mode,
                              std::uint64_t attributes) {
    const std::string owner = idmapped_tmpfs() ? "0" : std::to_string(request_.id_base);
    TALON_TRY(mount, make_mount("tmpfs",
                                {{"size", std::to_string(bytes)},
                                 {"nr_inodes", std::to_string(inodes)},
                                 {"mode", mode},
                                 {"uid", owner},
                                 {"gid", owner}},
                                attributes));
    if (idmapped_tmpfs()) {
      TALON_CHECK(change_mount(mount.get(), {.set = attributes, .userns = userns_}));
    }
    return mount;
  }

  // A directory of the root as a mount point, made where the root is writable.
  Result<DirFd> target(const char* path, unsigned mode) {
    auto fd = open_target(root_.get(), path, !readonly(), mode);
    if (!fd) {
      detail_ = wire::SpawnDetail::image;
    }
    return fd;
  }

  Result<> add_tmp() {
    TALON_TRY(dir, target("tmp", 01777));
    if (request_.tmp_bytes == 0) {
      return {};
    }
    TALON_TRY(mount,
              sized_tmpfs(request_.tmp_bytes, inodes_for(request_.tmp_bytes), "1777", kPlain));
    return attach(mount.get(), dir.get(), "");
  }

  Result<> add_workspace() {
    TALON_TRY(dir, target("workspace", 0755));
    if (request_.has_workspace == 0) {
      return {};
    }
    TALON_CHECK(map_mount(workspace_, {.set = kPlain, .userns = userns_}, "workspace"));
    return attach(workspace_, dir.get(), "");
  }

  // A read-only clone of a template; `attributes` besides RDONLY and NOSUID.
  Result<> add_template(const char* path, const char* name, std::uint64_t attributes) {
    TALON_TRY(dir, target(name, 0755));
    TALON_TRY(mount, clone_tree(path));
    TALON_CHECK(
        change_mount(mount.get(), {.set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | attributes,
                                   .userns = idmapped_tmpfs() ? userns_ : -1}));
    return attach(mount.get(), dir.get(), "");
  }

  Result<> add_dev() {
    TALON_CHECK(add_template(kDevTemplate, "dev", MOUNT_ATTR_NOEXEC));
    TALON_TRY(pts, make_mount("devpts",
                              {{"newinstance", ""},
                               {"ptmxmode", "0666"},
                               {"mode", "0620"},
                               {"gid", std::to_string(request_.id_base + 5)}},
                              MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC));
    TALON_CHECK(attach(pts.get(), AT_FDCWD, "t/dev/pts"));  // below our own template: no links
    TALON_TRY(shm, sized_tmpfs(request_.shm_bytes, inodes_for(request_.shm_bytes), "1777", kInert));
    return attach(shm.get(), AT_FDCWD, "t/dev/shm");
  }

  Result<> add_sys() { return add_template(kSysTemplate, "sys", kInert); }

  const wire::Tree& request_;
  wire::SpawnDetail& detail_;
  int userns_;
  int image_;
  int upper_;
  int workspace_;
  DirFd root_;
};

}  // namespace

Result<BuiltTree> build_tree(const Spawner& s, Bench& bench, const wire::Tree& request,
                             std::span<const int> fds, wire::SpawnDetail& detail) {
  TALON_CHECK(bench.open());
  const ActAs ids{s, request.id_base};
  TALON_CHECK(ids.result());
  return Builder{request, fds, detail}.run();
}

namespace {

Result<> make_bench_template() {
  TALON_TRY(mount, make_mount("tmpfs", {{"size", "64k"}, {"mode", "0755"}}, kPlain));
  for (const char* name : {"l", "u", "t"}) {
    if (mkdirat(mount.get(), name, 0755) != 0) {
      return fail_sys(errno, "make a directory on the bench");
    }
  }
  return attach(mount.get(), AT_FDCWD, kBenchTemplate);
}

Result<> make_dev_template() {
  TALON_TRY(mount, make_mount("tmpfs", {{"size", "64k"}, {"mode", "0755"}}, MOUNT_ATTR_NOSUID));
  struct Node {
    const char* name;
    unsigned minor;
    unsigned major = 1;
  };
  static constexpr Node kNodes[] = {{"null", 3},   {"zero", 5},    {"full", 7},
                                    {"random", 8}, {"urandom", 9}, {"tty", 0, 5}};
  for (const Node& node : kNodes) {
    if (mknodat(mount.get(), node.name, S_IFCHR | 0666, makedev(node.major, node.minor)) != 0) {
      return fail_sys(errno, std::string{"make device node "} + node.name);
    }
  }
  static constexpr const char* kLinks[][2] = {{"ptmx", "pts/ptmx"},
                                              {"fd", "/proc/self/fd"},
                                              {"stdin", "/proc/self/fd/0"},
                                              {"stdout", "/proc/self/fd/1"},
                                              {"stderr", "/proc/self/fd/2"}};
  for (const auto& [name, to] : kLinks) {
    if (symlinkat(to, mount.get(), name) != 0) {
      return fail_sys(errno, std::string{"make link "} + name);
    }
  }
  for (const char* name : {"pts", "shm"}) {
    if (mkdirat(mount.get(), name, 0755) != 0) {
      return fail_sys(errno, std::string{"make directory "} + name);
    }
  }
  return attach(mount.get(), AT_FDCWD, kDevTemplate);
}

}  // namespace

Result<> make_templates(std::span<const std::string, 3> cpus) {
  TALON_CHECK(make_bench_template());
  TALON_CHECK(make_dev_template());
  TALON_TRY(mount, make_mount("tmpfs", {{"size", "64k"}, {"mode", "0755"}}, kInert));
  for (const char* name : {"fs", "fs/cgroup", "devices", "devices/system", "devices/system/cpu"}) {
    if (mkdirat(mount.get(), name, 0755) != 0) {
      return fail_sys(errno, std::string{"make /sys/"} + name);
    }
  }
  static constexpr const char* kNames[] = {"possible", "present", "online"};
  for (std::size_t i = 0; i < 3; ++i) {
    if (cpus[i].empty()) {
      continue;
    }
    TALON_TRY(file, open_at(mount.get(), std::string{"devices/system/cpu/"} + kNames[i],
                            O_WRONLY | O_CREAT | O_EXCL, 0444));
    TALON_CHECK(write_all(file.get(), cpus[i]));
  }
  return attach(mount.get(), AT_FDCWD, kSysTemplate);
}

}  // namespace talon::isolate::spawner
