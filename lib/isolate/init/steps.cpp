#include "isolate/init/steps.h"

#include <linux/filter.h>
#include <linux/keyctl.h>
#include <linux/seccomp.h>

#include "isolate/init/mounts.h"
#include "isolate/init/sys.h"
#include "isolate/init/text.h"

namespace talon::init {
namespace {

using wire::Op;
using wire::PlanHeader;
using wire::PlanStep;

constexpr uint32_t kMaxPlan = 4u << 20;

const char* text_of(const Setup& s, const PlanStep& step) {
  return reinterpret_cast<const char*>(s.base + step.str);
}

long attach_tree(Setup& s, const PlanStep& step) {
  Text path(s.tree, sizeof s.tree);
  path.add(text_of(s, step));
  if (path.cut() || s.tree[0] != '/') {
    s.tree[0] = 0;
    return -EINVAL;
  }
  return sys(__NR_move_mount, slot_fd(step.slot), "", kAtFdcwd, s.tree, MOVE_MOUNT_F_EMPTY_PATH);
}

long join_net_ns() {
  struct {
    CmsgHdr head;
    int fd;
  } control = {};
  char byte = 0;
  IoVec iov = {&byte, 1};
  MsgHdr msg = {};
  msg.iov = &iov;
  msg.iov_count = 1;
  msg.control = &control;
  msg.control_size = sizeof control;
  long n = sys(__NR_recvmsg, slot_fd(wire::Slot::conn), &msg, kMsgCmsgCloexec);
  if (n <= 0) {
    return n < 0 ? n : -ECONNRESET;  // talond has given up
  }
  if (msg.control_size < sizeof(CmsgHdr) + sizeof(int) || control.head.level != kSolSocket ||
      control.head.type != kScmRights) {
    return -EBADMSG;
  }
  long err = sys(__NR_setns, control.fd, CLONE_NEWNET);
  close(control.fd);
  return err;
}

// MS_MOVE over the spawner's empty root: nothing lies under it that `..` could reach.
long enter_root(const Setup& s) {
  long err = sys(__NR_chdir, s.tree);
  err = err < 0 ? err : sys(__NR_mount, ".", "/", nullptr, MS_MOVE, nullptr);
  err = err < 0 ? err : sys(__NR_chroot, ".");
  return err < 0 ? err : sys(__NR_chdir, "/");
}

long pivot(const Setup& s) {
  long err = sys(__NR_chdir, s.tree);
  err = err < 0 ? err : sys(__NR_pivot_root, ".", ".");
  err = err < 0 ? err : sys(__NR_umount2, ".", 2 /* MNT_DETACH, umount(2) */);
  return err < 0 ? err : sys(__NR_chdir, "/");
}

long write_oom_score(const Setup& s, int64_t value) {
  long fd = s.proc >= 0 ? openat(s.proc, "self/oom_score_adj", O_WRONLY)
                        : openat(kAtFdcwd, "/proc/self/oom_score_adj", O_WRONLY);
  if (fd < 0) {
    return fd;
  }
  char buffer[24];
  Text text(buffer, sizeof buffer);
  if (value < 0) {
    text.add("-");
  }
  text.add((uint64_t)(value < 0 ? -value : value));
  long err = write((int)fd, buffer, text.size());
  close((int)fd);
  return err < 0 ? err : 0;
}

long set_limit(int resource, uint64_t soft, uint64_t hard) {
  struct rlimit64 limit = {soft, hard};
  return sys(__NR_prlimit64, 0, resource, &limit, nullptr);
}

long drop_bounding(uint64_t keep) {
  for (unsigned cap = 0; cap < 64; ++cap) {
    if ((keep >> cap & 1) != 0) {
      continue;
    }
    long err = sys(__NR_prctl, PR_CAPBSET_DROP, cap, 0, 0, 0);
    if (err == -EINVAL) {
      return 0;  // past the kernel's last capability
    }
    if (err < 0) {
      return err;
    }
  }
  return 0;
}

long set_own_caps(uint64_t caps) {
  long err = set_caps(caps, caps, 0);
  if (err < 0) {
    return err;
  }
  err = sys(__NR_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  return err == -EINVAL ? 0 : err;
}

long load_filter(const Setup& s, const PlanStep& step) {
  struct sock_fprog program = {};
  program.len = (uint16_t)step.a;
  program.filter = (struct sock_filter*)(s.base + step.str);
  return sys(__NR_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
}

long run_step(Setup& s, const PlanStep& step) {
  const char* text = step.str != 0 ? text_of(s, step) : "";
  switch ((Op)step.op) {
    case Op::join_cgroup_ns: return sys(__NR_setns, slot_fd(step.slot), CLONE_NEWCGROUP);
    case Op::join_net_ns: return join_net_ns();
    case Op::attach_tree: return attach_tree(s, step);
    case Op::mount_proc: {
      long fd = mount_new(s, "proc", step.a == 1 ? "subset" : nullptr, "pid",
                          MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, "proc");
      s.proc = (int)fd;
      return fd;
    }
    case Op::mask_file: return mask_file(s, text);
    case Op::mask_dir: return mask_dir(s, text);
    case Op::proc_readonly: return proc_readonly(s, text);
    case Op::mount_cgroup: {
      long fd = mount_new(
          s, "cgroup2", nullptr, nullptr,
          MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, text);
      return fd < 0 ? fd : close((int)fd);
    }
    case Op::enter_root: return enter_root(s);
    case Op::pivot_root: return pivot(s);
    case Op::hostname: return sys(__NR_sethostname, text, step.length);
    case Op::umask: return sys(__NR_umask, step.a);
    case Op::rlimit: return set_limit((int)step.a, step.b, step.b);
    case Op::rlimit_nofile: return set_limit(RLIMIT_NOFILE, step.a, step.b);
    case Op::oom_score_adj: return write_oom_score(s, (int64_t)step.a);
    case Op::new_session: return sys(__NR_setsid);
    case Op::clear_groups: return sys(__NR_setgroups, 0, nullptr);
    case Op::keep_caps: return sys(__NR_prctl, PR_SET_KEEPCAPS, 1, 0, 0, 0);
    case Op::set_ids: {
      long err = sys(__NR_setresgid, step.a, step.a, step.a);
      return err < 0 ? err : sys(__NR_setresuid, step.b, step.b, step.b);
    }
    case Op::set_caps: return set_own_caps(step.a);
    case Op::join_user_ns: return sys(__NR_setns, slot_fd(step.slot), CLONE_NEWUSER);
    case Op::session_keyring: return sys(__NR_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr);
    case Op::drop_bounding: return drop_bounding(step.a);
    case Op::no_new_privs: return sys(__NR_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    case Op::seccomp: return load_filter(s, step);
    case Op::not_dumpable: return sys(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
    case Op::listen: return sys(__NR_listen, slot_fd(wire::Slot::listener), step.a);
  }
  return -ENOSYS;
}

bool step_ok(const PlanHeader& plan, const PlanStep& step) {
  if (step.slot > (uint32_t)wire::Slot::count) {
    return false;
  }
  if (step.str == 0) {
    return true;
  }
  if (step.str >= plan.size) {
    return false;
  }
  if ((Op)step.op == Op::seccomp) {
    return step.a != 0 && step.a <= BPF_MAXINSNS && step.str % 4 == 0 &&
           step.a * sizeof(struct sock_filter) <= plan.size - step.str;
  }
  if (step.length >= plan.size - step.str) {
    return false;
  }
  const auto* base = reinterpret_cast<const unsigned char*>(&plan);
  return base[step.str + step.length] == 0;
}

const PlanHeader* map_plan() {
  struct stat st = {};
  if (sys(__NR_fstat, wire::kPlanFd, &st) < 0 || st.st_size < (long)sizeof(PlanHeader) ||
      st.st_size > (long)kMaxPlan) {
    return nullptr;
  }
  void* p = map((size_t)st.st_size, PROT_READ, MAP_PRIVATE, wire::kPlanFd);
  if (is_err(p)) {
    return nullptr;
  }
  const auto* plan = static_cast<const PlanHeader*>(p);
  bool good = plan->magic == wire::kPlanMagic && plan->version == wire::kVersion &&
              plan->size == (uint64_t)st.st_size && plan->step_count <= wire::kMaxSteps &&
              sizeof(PlanHeader) + plan->step_count * sizeof(PlanStep) <= plan->size &&
              plan->default_cwd[sizeof plan->default_cwd - 1] == 0;
  const auto* steps = reinterpret_cast<const PlanStep*>(plan + 1);
  for (uint32_t i = 0; good && i < plan->step_count; ++i) {
    good = step_ok(*plan, steps[i]);
  }
  return good ? plan : nullptr;
}

}  // namespace

void run_plan(StepsResult& result) {
  result.ready.start_ns = clock_ns(CLOCK_MONOTONIC);
  result.plan = map_plan();
  if (result.plan == nullptr) {
    result.step = 0xffffffffu;
    result.error = EINVAL;
    return;
  }
  const PlanHeader& plan = *result.plan;
  Setup s = {};
  s.proc = -1;
  s.base = reinterpret_cast<const unsigned char*>(&plan);
  const auto* steps = reinterpret_cast<const PlanStep*>(&plan + 1);
  for (uint32_t i = 0; i < plan.step_count; ++i) {
    long err = run_step(s, steps[i]);
    if (err < 0) {
      result.step = i;
      result.op = steps[i].op;
      result.error = (int)-err;
      return;
    }
    result.ready.step_ns[i] = clock_ns(CLOCK_MONOTONIC);
  }
  if (s.proc >= 0) {
    close(s.proc);
  }
  result.ready.version = wire::kVersion;
  result.ready.step_count = plan.step_count;
  memcpy(result.ready.nonce, plan.nonce, sizeof plan.nonce);
}

}  // namespace talon::init
