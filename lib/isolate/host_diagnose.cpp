// `talond doctor`: each fact of the host with its effect and the exact fix.

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>

#include "base/fd.h"
#include "base/limits.h"
#include "base/units.h"
#include "isolate/host.h"

namespace talon::isolate {

using Status = Finding::Status;

namespace {

Finding ok(std::string name, std::string value, std::string effect) {
  return {std::move(name), Status::ok, std::move(value), std::move(effect), {}};
}

Finding root_row(const HostFacts& facts) {
  if (facts.root) {
    return ok("root", "yes", "Sandboxes can be made.");
  }
  return {"root", Status::missing, "no", "talond needs root to make sandboxes.",
          "sudo talond serve"};
}

Finding kernel_row(const HostFacts& facts) {
  const std::string value = facts.kernel + " " + facts.machine;
  if (facts.at_least(6, 1)) {
    return ok("kernel", value, "Supported (6.1 or newer).");
  }
  return {"kernel", Status::missing, value, "Needs Linux 6.1 or newer.",
          "install a newer kernel (Debian 12: apt-get install linux-image-amd64), then reboot"};
}

Finding userns_row(const HostFacts& facts) {
  if (facts.user_namespaces) {
    return ok("user namespaces", "available", "Each sandbox has an id range of its own.");
  }
  return {"user namespaces", Status::missing, "switched off",
          "No sandbox can be made: root inside would be root outside.",
          "sysctl -w user.max_user_namespaces=15000"};
}

void add_apparmor(std::vector<Finding>& out) {
  const auto text =
      read_file_at(AT_FDCWD, "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", 64);
  if (text && text->starts_with("1")) {
    out.push_back(ok("AppArmor user namespaces", "restricted for unprivileged programs",
                     "No effect: talond makes user namespaces as root."));
  }
}

Finding cgroup_row(const HostFacts& facts) {
  if (!facts.cgroup_problem.empty()) {
    return {"cgroup v2", Status::missing, facts.cgroup_problem,
            "No sandbox can be made: ending one safely needs a cgroup.",
            facts.cgroup_mount.empty()
                ? "mount -t cgroup2 none /sys/fs/cgroup"
                : "run talond with Delegate=yes (systemd), or give --cgroup PATH"};
  }
  return ok("cgroup v2", facts.cgroup_mount, "Sandboxes and execs are ended by their group.");
}

void add_controllers(std::vector<Finding>& out, const HostFacts& facts) {
  struct Row {
    const char* name;
    const char* limit;
  };
  static constexpr Row kRows[] = {
      {"memory", "resources.memory"}, {"cpu", "resources.cpu"}, {"pids", "resources.pids"}};
  for (const auto& [name, limit] : kRows) {
    const std::string title = fmt::format("controller {}", name);
    if (facts.has_controller(name)) {
      out.push_back(ok(title, "available", fmt::format("{} is enforced.", limit)));
      continue;
    }
    out.push_back(
        {title, Status::degraded, "missing",
         fmt::format("{} is refused with 422; defaults are recorded as not enforced.", limit),
         "boot with systemd.unified_cgroup_hierarchy=1 cgroup_no_v1=all (a v1 mount holds the "
         "controller), or delegate it to talond's group"});
  }
}

Finding overlay_row(const HostFacts& facts) {
  if (facts.overlayfs) {
    return ok("overlayfs", "available", "Sandboxes share an image and have writable roots.");
  }
  return {"overlayfs", Status::missing, "not available", "No sandbox can be made.",
          "modprobe overlay"};
}

Finding tmpfs_row(const HostFacts& facts) {
  if (facts.idmapped_tmpfs) {
    return ok("idmapped tmpfs", "available", "/dev and /sys belong to root inside.");
  }
  return {"idmapped tmpfs",
          Status::degraded,
          "needs 6.3",
          "/dev and /sys show as owned by nobody inside; nothing else differs.",
          {}};
}

Finding seccomp_row(const HostFacts& facts) {
  if (facts.seccomp) {
    return ok("seccomp", "available", "Dangerous system calls are refused.");
  }
  return {"seccomp", Status::missing, "not available",
          "No sandbox can be made unless the node opts out of the filter.",
          "use a kernel with CONFIG_SECCOMP_FILTER=y"};
}

Finding landlock_row(const HostFacts& facts) {
  if (facts.landlock_abi > 0) {
    return ok("landlock", fmt::format("version {}", facts.landlock_abi),
              "Not used yet: it will confine the file workers of a later release.");
  }
  return {"landlock", Status::degraded, "not available",
          "Nothing is lost yet: it will confine the file workers of a later release.",
          "boot with lsm=landlock,…"};
}

Finding files_row(const HostFacts& facts) {
  const auto budget = limits::descriptor_budget(facts.nofile_hard);
  const std::string effect = fmt::format("Room for {} live sandboxes and {} connections.",
                                         budget.sandboxes, budget.connections);
  const std::string value = std::to_string(facts.nofile_hard);
  if (facts.nofile_hard >= 16384) {
    return ok("open files limit", value, effect);
  }
  return {"open files limit", Status::degraded, value, effect,
          "LimitNOFILE=1048576 in the unit, or ulimit -Hn 1048576 before talond"};
}

bool can_reflink(const std::filesystem::path& dir) {
  const UniqueFd from{open(dir.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)};
  const UniqueFd to{open(dir.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)};
  return from && to && write_all(from.get(), std::string(4096, 'x')) &&
         ioctl(to.get(), FICLONE, from.get()) == 0;
}

std::string file_system_name(std::uint64_t magic) {
  switch (magic) {
    case EXT4_SUPER_MAGIC: return "ext4";
    case XFS_SUPER_MAGIC: return "xfs";
    case BTRFS_SUPER_MAGIC: return "btrfs";
    case TMPFS_MAGIC: return "tmpfs";
    case OVERLAYFS_SUPER_MAGIC: return "overlay";
    default: return fmt::format("type {:#x}", magic);
  }
}

void add_disk(std::vector<Finding>& out, const std::string& data_dir) {
  std::error_code error;
  std::filesystem::path dir{data_dir};
  while (!std::filesystem::is_directory(dir, error) && dir.has_relative_path()) {
    dir = dir.parent_path();
  }
  struct statfs facts{};
  if (statfs(dir.c_str(), &facts) != 0) {
    out.push_back({"data directory", Status::missing, data_dir, "It cannot be looked at.", {}});
    return;
  }
  const auto magic = static_cast<std::uint64_t>(facts.f_type);
  const std::uint64_t free = facts.f_bavail * static_cast<std::uint64_t>(facts.f_bsize);
  const std::string value =
      fmt::format("{} on {}, {} MiB free", data_dir, file_system_name(magic), free >> 20);
  if (magic == OVERLAYFS_SUPER_MAGIC) {
    // overlayfs refuses another overlay as its upper layer.
    out.push_back({"data directory", Status::missing, value,
                   "storage: disk cannot be made on an overlay.",
                   "put --data-dir on a real file system (in a container: a volume)"});
  } else if (free < 2 * limits::kReserveBytes) {
    out.push_back({"data directory", Status::missing, value, "Creating calls answer 507.",
                   "free space on " + dir.string()});
  } else {
    out.push_back(ok("data directory", value, "Root layers, workspaces and logs go here."));
  }
  if (can_reflink(dir)) {
    out.push_back(ok("reflink", "available", "Copies share blocks."));
  } else {
    out.push_back({"reflink", Status::degraded, "not available",
                   "Copies of trees copy every byte; image `host` needs none where /usr is on the "
                   "same file system.",
                   "put --data-dir on xfs or btrfs for cheap copies"});
  }
}

// Ranges of /etc/subuid and /etc/subgid ("name:first:count") that reach into talon's ids.
void add_subids(std::vector<Finding>& out) {
  constexpr std::uint64_t kFirst = limits::kIdBase;
  constexpr std::uint64_t kLast = kFirst + std::uint64_t{limits::kIdLeases} * limits::kIdRange - 1;
  for (const char* path : {"/etc/subuid", "/etc/subgid"}) {
    const auto text = read_file_at(AT_FDCWD, path, 1 << 20);
    std::string_view rest = text ? std::string_view{*text} : std::string_view{};
    while (!rest.empty()) {
      const auto end = rest.find('\n');
      const std::string_view line = rest.substr(0, end);
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
      const auto colon = line.find(':');
      std::uint64_t first = 0;
      std::uint64_t count = 0;
      if (colon == std::string_view::npos) {
        continue;
      }
      const char* stop = line.data() + line.size();
      const auto got = std::from_chars(line.data() + colon + 1, stop, first);
      if (got.ec != std::errc{} || got.ptr == stop ||
          std::from_chars(got.ptr + 1, stop, count).ec != std::errc{} || count == 0) {
        continue;
      }
      if (first <= kLast && first + count > kFirst) {
        out.push_back({"id ranges", Status::degraded, fmt::format("{}: {}", path, line),
                       "Its ids could meet a sandbox's.",
                       fmt::format("move this range, or set ids.base in talond's config")});
        return;
      }
    }
  }
  out.push_back(ok("id ranges", fmt::format("{}-{}", kFirst, kLast),
                   "No range of /etc/subuid or /etc/subgid overlaps."));
}

}  // namespace

std::vector<Finding> diagnose(const HostFacts& facts, const std::string& data_dir) {
  std::vector<Finding> out;
  out.push_back(root_row(facts));
  out.push_back(kernel_row(facts));
  out.push_back(userns_row(facts));
  add_apparmor(out);
  out.push_back(cgroup_row(facts));
  add_controllers(out, facts);
  out.push_back(overlay_row(facts));
  out.push_back(tmpfs_row(facts));
  out.push_back(seccomp_row(facts));
  out.push_back(landlock_row(facts));
  out.push_back(files_row(facts));
  add_disk(out, data_dir);
  add_subids(out);
  return out;
}

std::string_view to_string(Finding::Status status) {
  switch (status) {
    case Status::ok: return "ok";
    case Status::degraded: return "degraded";
    case Status::missing: return "missing";
  }
  return "missing";
}

}  // namespace talon::isolate
