// `talond doctor`: each fact of the host with what follows from it and the exact fix.

#include <fmt/format.h>
#include <linux/magic.h>

#include <algorithm>
#include <cstring>

#include "base/limits.h"
#include "isolate/host.h"

namespace talon::isolate {

using Status = Finding::Status;

namespace {

constexpr std::int64_t kYear2025 = 1'735'689'600;
constexpr std::uint64_t kFewPids = 1 << 16;

Finding ok(std::string name, std::string value, std::string effect) {
  return {std::move(name), Status::ok, std::move(value), std::move(effect), {}};
}

Finding root_row(const HostFacts& facts) {
  if (facts.root) {
    return ok("root", "yes", "Sandboxes can be made.");
  }
  return {"root", Status::missing, "no",
          "No sandbox can be made, and rows that need a try are judged as if it had failed.",
          "sudo talond doctor"};
}

Finding kernel_row(const HostFacts& facts) {
  const std::string value = facts.kernel + " " + facts.machine;
  if (facts.at_least(6, 1)) {
    return ok("kernel", value, "Supported (6.1 or newer).");
  }
  return {"kernel", Status::missing, value, "No sandbox can be made: Linux 6.1 is needed.",
          "apt-get install linux-image-amd64 && reboot (Debian 12)"};
}

Finding userns_row(const Survey& survey) {
  if (!survey.facts.user_namespaces) {
    return {"user namespaces", Status::missing, "switched off",
            "No sandbox can be made: root inside would be root outside.",
            "sysctl -w user.max_user_namespaces=15000"};
  }
  const std::string value = fmt::format("{} may exist", survey.max_user_namespaces);
  if (survey.max_user_namespaces < limits::kIdLeases) {
    return {"user namespaces", Status::degraded, value,
            "Each sandbox takes one, so no more than that many can live.",
            "sysctl -w user.max_user_namespaces=15000"};
  }
  return ok("user namespaces", value, "Each sandbox has an id range of its own.");
}

Finding apparmor_row(const Survey& survey) {
  return ok("AppArmor user namespaces",
            survey.apparmor_restricts ? "restricted for unprivileged programs" : "not restricted",
            "No effect: talond makes user namespaces as root.");
}

Finding cgroup_row(const Survey& survey) {
  const HostFacts& facts = survey.facts;
  if (facts.cgroup_problem.empty()) {
    return ok("cgroup v2", survey.cgroup_place,
              "Groups are made there; sandboxes and execs are ended by their group.");
  }
  return {"cgroup v2", Status::missing, facts.cgroup_problem,
          "No sandbox can be made: ending one safely needs a cgroup.",
          facts.cgroup_mount.empty()
              ? "mount -t cgroup2 none /sys/fs/cgroup"
              : "systemctl edit talond, [Service] Delegate=yes; or talond serve --cgroup PATH"};
}

void add_controllers(std::vector<Finding>& out, const HostFacts& facts) {
  struct Row {
    const char* name;
    const char* limit;
  };
  static constexpr Row kRows[] = {{"memory", "resources.memory"},
                                  {"cpu", "resources.cpu"},
                                  {"pids", "resources.pids"},
                                  {"io", "resources.io"}};
  for (const auto& [name, limit] : kRows) {
    const std::string title = fmt::format("controller {}", name);
    if (facts.has_controller(name)) {
      out.push_back(ok(title, "available", fmt::format("It holds: {}.", limit)));
      continue;
    }
    out.push_back({title, Status::degraded, "not available",
                   fmt::format("Asked for, this is refused with 422: {}; a default is recorded as "
                               "not enforced.",
                               limit),
                   "boot with systemd.unified_cgroup_hierarchy=1 cgroup_no_v1=all (a v1 mount "
                   "holds the controller), or delegate it: Delegate=yes in talond's unit"});
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
  return {"idmapped tmpfs", Status::degraded, "not available",
          "/dev and /sys show as owned by nobody inside; nothing else differs.",
          "install a kernel of 6.3 or newer"};
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
          "boot with lsm=landlock,… (the list in /sys/kernel/security/lsm after it)"};
}

Finding pressure_row(const Survey& survey) {
  if (survey.pressure) {
    return ok("pressure (PSI)", "available", "How long a sandbox waits for memory is measured.");
  }
  return {"pressure (PSI)", Status::degraded, "not available",
          "How long a sandbox waits for memory is not measured; limits hold.", "boot with psi=1"};
}

Finding tproxy_row(const Survey& survey) {
  if (survey.tproxy_error == 0) {
    return ok("nft tproxy", "available",
              "Not used yet: network policies of a later release steer by it.");
  }
  return {"nft tproxy", Status::degraded, std::strerror(survey.tproxy_error),
          "Only network: deny will be possible; this release knows no other.",
          "modprobe nf_tables nft_tproxy"};
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

Finding data_row(const Survey::Data& data) {
  constexpr const char* kName = "data directory";
  if (data.error != 0) {
    return {kName, Status::missing, data.dir + ": " + std::strerror(data.error),
            "No sandbox can be made.", "talond serve --data-dir DIR"};
  }
  const std::string value = fmt::format("{} on {}, {} MiB free", data.dir,
                                        file_system_name(data.magic), data.free_bytes >> 20);
  if (data.magic == OVERLAYFS_SUPER_MAGIC) {
    // overlayfs refuses another overlay as its upper layer.
    return {kName, Status::missing, value, "No sandbox with storage: disk can be made here.",
            "talond serve --data-dir DIR, on a real file system (in a container: a volume)"};
  }
  if (data.free_bytes < 2 * limits::kReserveBytes) {
    return {kName, Status::missing, value, "Creating calls answer 507.",
            "free space: du -xh --max-depth=2 " + data.found + " | sort -h"};
  }
  if (data.free_bytes < (std::uint64_t{1} << 30)) {
    return {kName, Status::degraded, value, "Less than 1 GiB is left for images and root layers.",
            "free space: du -xh --max-depth=2 " + data.found + " | sort -h"};
  }
  return ok(kName, value, "Root layers, workspaces and logs go here.");
}

Finding idmap_row(const Survey::Data& data) {
  if (data.idmap_error == 0) {
    return ok("idmapped mounts", "available", "Files on disk have the same owners for everyone.");
  }
  return {"idmapped mounts", Status::missing, std::strerror(data.idmap_error),
          "No sandbox can be made with its files there.",
          "talond serve --data-dir DIR, on ext4, xfs or btrfs"};
}

Finding reflink_row(const Survey::Data& data) {
  if (data.reflink) {
    return ok("reflink", "available", "Copies share blocks.");
  }
  return {"reflink", Status::degraded, "not available",
          "Copies of trees copy every byte; image `host` needs none where /usr is on the same "
          "file system.",
          "talond serve --data-dir DIR, on xfs or btrfs"};
}

Finding quota_row(const Survey::Data& data) {
  if (data.project_quota) {
    return ok("project quota", "switched on", "Files stop at a size at no cost.");
  }
  std::string fix = "talond serve --data-dir DIR, on ext4 or xfs with project quota";
  if (data.magic == EXT4_SUPER_MAGIC) {
    fix = "umount the file system, tune2fs -O project,quota DEVICE, mount -o prjquota";
  } else if (data.magic == XFS_SUPER_MAGIC) {
    fix = "mount -o prjquota (for /: rootflags=prjquota on the kernel's command line)";
  }
  return {"project quota", Status::degraded, "switched off",
          "A size for files, asked for, takes an image on a loop device, 5 ms a create.", fix};
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

Finding pids_row(const Survey& survey) {
  const std::string value = std::to_string(survey.max_pids);
  if (survey.max_pids >= kFewPids) {
    return ok("process limit", value, "So many processes and threads can live on this host.");
  }
  return {"process limit", Status::degraded, value,
          "All sandboxes and the host share so many processes and threads.",
          "sysctl -w kernel.pid_max=4194304 kernel.threads-max=4194304"};
}

Finding clock_row(const Survey& survey) {
  if (survey.clock_s < kYear2025) {
    return {"clock", Status::degraded, "set before 2025",
            "Certificates are refused, and times in logs and audit are wrong.",
            "timedatectl set-ntp true"};
  }
  if (!survey.clock_synchronized) {
    return {"clock", Status::degraded, "not synchronised",
            "Times in logs and audit may differ from those of other machines.",
            "timedatectl set-ntp true"};
  }
  return ok("clock", "synchronised", "Times in logs and audit can be compared.");
}

Finding listen_row(const Survey::Listen& listen) {
  const std::string name = "listen " + listen.address;
  switch (listen.port) {
    case Survey::Port::free: return ok(name, "free", "talond can serve there.");
    case Survey::Port::ours: return ok(name, "talond", "A running talond serves there.");
    case Survey::Port::taken:
      return {name, Status::missing, "in use", "talond cannot serve there.",
              "talond serve --listen 127.0.0.1:0, or end what `ss -ltnp` shows"};
    case Survey::Port::refused: break;
  }
  return {name, Status::missing, std::strerror(listen.error), "talond cannot serve there.",
          "talond serve --listen ADDRESS:PORT, an address of `ip addr`"};
}

Finding chromium_row(const Survey& survey) {
  if (!survey.chromium.empty()) {
    return ok("chromium", survey.chromium,
              "Not used yet: the browser of a later release runs it inside.");
  }
  return {"chromium", Status::degraded, "not installed",
          "The browser of a later release will not run in image `host`; nothing else needs it.",
          "apt-get install chromium && talond image refresh host"};
}

Finding ids_row(const Survey& survey) {
  const std::string range = fmt::format("{}-{}", survey.ids_first, survey.ids_last);
  if (survey.subid_clash.empty()) {
    return ok("id ranges", range, "No range of /etc/subuid or /etc/subgid overlaps.");
  }
  return {"id ranges", Status::degraded, range + " meets " + survey.subid_clash,
          "A user's container could have the ids of a sandbox.",
          "talond serve --ids-base N, above every range of /etc/subuid and /etc/subgid"};
}

}  // namespace

std::vector<Finding> diagnose(const Survey& survey) {
  std::vector<Finding> out;
  out.push_back(root_row(survey.facts));
  out.push_back(kernel_row(survey.facts));
  out.push_back(userns_row(survey));
  out.push_back(apparmor_row(survey));
  out.push_back(cgroup_row(survey));
  add_controllers(out, survey.facts);
  out.push_back(overlay_row(survey.facts));
  out.push_back(tmpfs_row(survey.facts));
  out.push_back(seccomp_row(survey.facts));
  out.push_back(landlock_row(survey.facts));
  out.push_back(pressure_row(survey));
  out.push_back(tproxy_row(survey));
  out.push_back(data_row(survey.data));
  out.push_back(idmap_row(survey.data));
  out.push_back(reflink_row(survey.data));
  out.push_back(quota_row(survey.data));
  out.push_back(files_row(survey.facts));
  out.push_back(pids_row(survey));
  out.push_back(clock_row(survey));
  for (const Survey::Listen& listen : survey.listen) {
    out.push_back(listen_row(listen));
  }
  out.push_back(ids_row(survey));
  out.push_back(chromium_row(survey));
  return out;
}

Finding::Status worst(const std::vector<Finding>& findings) {
  Status out = Status::ok;
  for (const Finding& finding : findings) {
    out = std::max(out, finding.status);
  }
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
