#include "isolate/plan.h"

#include <fmt/format.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace talon::isolate {

using wire::Op;
using wire::Slot;

namespace {

constexpr std::uint64_t bit(int capability) { return 1ull << capability; }

// Files of a full /proc that tell about the host or the kernel and that everybody may read
// (runtime.md R7). What only the host's root may read stays closed without a mask: that id is
// in no map.
constexpr const char* kMaskedFiles[] = {
    "kcore",      "keys", "key-users", "timer_list", "sched_debug", "latency_stats",
    "interrupts", "kmsg", "kallsyms",  "cmdline",    "config.gz",   "modules",
};
constexpr const char* kMaskedDirs[] = {"acpi", "asound", "scsi"};
// R8: writable for uid 0 by mode bits alone in places, so read-only mounts. The files of pressure
// are writable for everybody: a write makes a trigger on the whole host's pressure (psi.rst).
constexpr const char* kReadOnly[] = {"sys", "sysrq-trigger", "irq", "bus", "fs", "pressure"};

constexpr const char* kAttachPoint = "/m";  // a directory of the spawner's root

class Builder {
 public:
  explicit Builder(Plan& plan) : plan_(plan) {}
  void add(Op op, std::uint64_t a = 0, std::uint64_t b = 0, std::string text = {}) {
    plan_.steps.push_back({.op = op, .slot = Slot::count, .a = a, .b = b, .text = std::move(text)});
  }
  void use(Op op, Slot slot, std::string text = {}) {
    plan_.steps.push_back({.op = op, .slot = slot, .a = 0, .b = 0, .text = std::move(text)});
  }

 private:
  Plan& plan_;
};

void add_mounts(Builder& build, const SandboxSpec& spec) {
  build.use(Op::attach_tree, Slot::tree, kAttachPoint);
  const bool full = spec.proc == ProcMode::full;
  build.add(Op::mount_proc, full ? 0 : 1);
  if (full) {  // subset=pid has none of these
    for (const char* path : kMaskedFiles) {
      build.add(Op::mask_file, 0, 0, path);
    }
    for (const char* path : kMaskedDirs) {
      build.add(Op::mask_dir, 0, 0, path);
    }
    for (const char* path : kReadOnly) {
      build.add(Op::proc_readonly, 0, 0, path);
    }
  }
  build.add(Op::mount_cgroup, 0, 0, "sys/fs/cgroup");
  build.add(spec.pivot_root ? Op::pivot_root : Op::enter_root);
}

void add_process_state(Builder& build, const SandboxSpec& spec, const HostFacts& host) {
  build.add(Op::hostname, 0, 0, spec.hostname);
  build.add(Op::umask, 022);
  build.add(Op::oom_score_adj, 500);
  build.add(Op::rlimit, RLIMIT_CORE, 0);
  build.add(Op::rlimit, RLIMIT_NICE, 0);
  build.add(Op::rlimit, RLIMIT_RTPRIO, 0);
  std::uint64_t files = spec.open_files;
  if (host.nofile_hard != 0) {
    files = std::min(files, host.nofile_hard);
  }
  build.add(Op::rlimit_nofile, files, files);
  build.add(Op::new_session);
}

}  // namespace

std::uint64_t workload_capabilities() {
  return bit(CAP_CHOWN) | bit(CAP_DAC_OVERRIDE) | bit(CAP_FOWNER) | bit(CAP_FSETID) |
         bit(CAP_KILL) | bit(CAP_SETUID) | bit(CAP_SETGID);
}

std::uint64_t init_capabilities() {
  // Under no_new_privs an exec child cannot hold what init lacks; SETPCAP lets the child drop
  // its bounding set.
  return workload_capabilities() | bit(CAP_SETPCAP);
}

Plan make_plan(const SandboxSpec& spec, const HostFacts& host, std::uint32_t id_base) {
  Plan plan;
  plan.flags = spec.on_orphan == OnOrphan::die ? wire::kDieWithDaemon : 0u;
  plan.workload_caps = workload_capabilities();
  plan.init_caps = init_capabilities();
  plan.log_budget = limits::kSandboxLogBytes;
  plan.default_cwd = spec.default_cwd;
  plan.id_base = id_base;
  plan.seccomp = !spec.unconfined_seccomp;
  plan.compat32 = spec.compat32 && plan.seccomp;

  Builder build{plan};
  build.use(Op::join_cgroup_ns, Slot::cgroupns);
  add_mounts(build, spec);
  add_process_state(build, spec, host);
  // As late as the host's capabilities allow: it is made beside all of the above.
  build.add(Op::join_net_ns);

  // Init's own id is the lease's last one and in no map (decision 1), so it is taken while
  // still in the host's user namespace.
  const std::uint64_t init_id = std::uint64_t{id_base} + limits::kIdRange - 1;
  build.add(Op::clear_groups);
  build.add(Op::keep_caps);
  build.add(Op::set_ids, init_id, init_id);
  build.add(Op::set_caps, bit(CAP_SYS_ADMIN));
  build.use(Op::join_user_ns, Slot::userns);
  build.add(Op::session_keyring);
  // Only now: a new user namespace refills the bounding set.
  build.add(Op::drop_bounding, plan.init_caps);
  build.add(Op::set_caps, plan.init_caps);
  build.add(Op::no_new_privs);
  if (plan.seccomp) {
    build.add(Op::seccomp);
  }
  build.add(Op::not_dumpable);
  // After the last credential change, so that SO_PEERCRED shows what init is.
  build.add(Op::listen, 8);
  return plan;
}

std::string_view to_string(Op op) {
  switch (op) {
    case Op::join_cgroup_ns: return "join_cgroup_ns";
    case Op::join_net_ns: return "join_net_ns";
    case Op::attach_tree: return "attach_tree";
    case Op::mount_proc: return "mount_proc";
    case Op::mask_file: return "mask_file";
    case Op::mask_dir: return "mask_dir";
    case Op::proc_readonly: return "proc_readonly";
    case Op::mount_cgroup: return "mount_cgroup";
    case Op::enter_root: return "enter_root";
    case Op::pivot_root: return "pivot_root";
    case Op::hostname: return "hostname";
    case Op::umask: return "umask";
    case Op::rlimit: return "rlimit";
    case Op::oom_score_adj: return "oom_score_adj";
    case Op::new_session: return "new_session";
    case Op::clear_groups: return "clear_groups";
    case Op::keep_caps: return "keep_caps";
    case Op::set_ids: return "set_ids";
    case Op::set_caps: return "set_caps";
    case Op::join_user_ns: return "join_user_ns";
    case Op::session_keyring: return "session_keyring";
    case Op::drop_bounding: return "drop_bounding";
    case Op::no_new_privs: return "no_new_privs";
    case Op::seccomp: return "seccomp";
    case Op::not_dumpable: return "not_dumpable";
    case Op::listen: return "listen";
    case Op::rlimit_nofile: return "rlimit_nofile";
  }
  return "unknown";
}

namespace {

std::string_view to_string(Slot slot) {
  static constexpr std::array<std::string_view, static_cast<std::size_t>(Slot::count)> kNames = {
      "conn",  "listener", "event", "lease",  "logs",    "journal",
      "execs", "files",    "tree",  "userns", "cgroupns"};
  const auto index = static_cast<std::size_t>(slot);
  return index < kNames.size() ? kNames[index] : "none";
}

std::string arguments(const Step& step) {
  switch (step.op) {
    case Op::mount_proc: return step.a == 1 ? " subset=pid" : " full";
    case Op::umask: return fmt::format(" {:04o}", step.a);
    case Op::rlimit: return fmt::format(" {}={}", step.a, step.b);
    case Op::rlimit_nofile: return fmt::format(" soft={} hard={}", step.a, step.b);
    case Op::set_ids: return fmt::format(" gid={} uid={}", step.a, step.b);
    case Op::set_caps:
    case Op::drop_bounding: return fmt::format(" {:#x}", step.a);
    case Op::oom_score_adj: return fmt::format(" {}", static_cast<std::int64_t>(step.a));
    case Op::listen: return fmt::format(" backlog={}", step.a);
    default: return {};
  }
}

}  // namespace

std::string print(const Plan& plan) {
  std::string out;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    out += fmt::format("{:>2} {}", i, to_string(step.op));
    if (step.slot != Slot::count) {
      out += fmt::format(" <{}>", to_string(step.slot));
    }
    out += arguments(step);
    if (!step.text.empty()) {
      out += ' ';
      out += step.text;
    }
    if (step.op == Op::seccomp) {
      out += plan.compat32 ? " native+compat32" : " native";
    }
    out += '\n';
  }
  out += fmt::format("id_base {} on_orphan {} workload_caps {:#x} init_caps {:#x} cwd {}\n",
                     plan.id_base, (plan.flags & wire::kDieWithDaemon) != 0 ? "die" : "stay",
                     plan.workload_caps, plan.init_caps, plan.default_cwd);
  return out;
}

std::string encode(const Plan& plan, std::span<const std::byte> filter,
                   std::span<const std::byte> nonce) {
  TALON_ASSERT(plan.steps.size() <= wire::kMaxSteps);
  wire::PlanHeader header{};
  TALON_ASSERT(nonce.size() == sizeof(header.nonce));
  TALON_ASSERT(plan.default_cwd.size() < sizeof(header.default_cwd));
  TALON_ASSERT(filter.size() % sizeof(sock_filter) == 0);

  std::vector<wire::PlanStep> steps(plan.steps.size());
  const std::size_t fixed = sizeof(header) + steps.size() * sizeof(wire::PlanStep);
  std::string tail;
  const auto append = [&tail, fixed](const void* data, std::size_t size) {
    tail.resize((tail.size() + 7) / 8 * 8, '\0');  // sock_filter is read in place
    const auto offset = static_cast<std::uint32_t>(fixed + tail.size());
    tail.append(static_cast<const char*>(data), size);
    tail.push_back('\0');
    return offset;
  };
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = plan.steps[i];
    steps[i] = {.op = static_cast<std::uint32_t>(step.op),
                .slot = static_cast<std::uint32_t>(step.slot),
                .a = step.a,
                .b = step.b,
                .str = 0,
                .length = 0};
    if (step.op == Op::seccomp) {
      TALON_ASSERT(!filter.empty());
      steps[i].a = filter.size() / sizeof(sock_filter);
      steps[i].str = append(filter.data(), filter.size());
      steps[i].length = static_cast<std::uint32_t>(filter.size());
    } else if (!step.text.empty()) {
      steps[i].str = append(step.text.data(), step.text.size());
      steps[i].length = static_cast<std::uint32_t>(step.text.size());
    }
  }
  header.magic = wire::kPlanMagic;
  header.version = wire::kVersion;
  header.size = static_cast<std::uint32_t>(fixed + tail.size());
  header.step_count = static_cast<std::uint32_t>(steps.size());
  header.flags = plan.flags;
  header.live_execs = limits::kLiveExecs;
  header.workload_caps = plan.workload_caps;
  header.init_caps = plan.init_caps;
  header.log_budget = plan.log_budget;
  std::memcpy(header.nonce, nonce.data(), sizeof(header.nonce));
  std::memcpy(header.default_cwd, plan.default_cwd.data(), plan.default_cwd.size());

  std::string out;
  out.reserve(header.size);
  out.append(reinterpret_cast<const char*>(&header), sizeof(header));
  out.append(reinterpret_cast<const char*>(steps.data()), steps.size() * sizeof(wire::PlanStep));
  out += tail;
  return out;
}

}  // namespace talon::isolate
