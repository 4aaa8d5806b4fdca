#pragma once
// The plan as init reads it: one sealed memfd holding PlanHeader, PlanStep[step_count], then
// bytes that steps point into (strings, the seccomp program). make_plan writes it, init's one
// loop with one switch runs it, `talond plan` prints it. Freestanding.
//
// Descriptors: the spawner places slot s at descriptor kFdBase + s before the execve; a slot that
// is not given is closed there. After the last step init closes every slot not in kKeptSlots.

#include <stdint.h>

#include "isolate/wire/frames.h"

namespace talon::wire {

inline constexpr uint32_t kPlanMagic = 0x31504754;  // "TGP1"
inline constexpr int kFdBase = 16;
inline constexpr int kPlanFd = kFdBase - 1;

enum class Slot : uint32_t {
  conn = 0,      // SEQPACKET end whose other end is talond's first connection; see join_net_ns
  listener = 1,  // bound, not yet listening: init.sock
  event = 2,     // eventfd: +1 per batch appended to a log
  lease = 3,     // OFD-locked id lease; init only keeps it open
  logs = 4,      // detached clone of logs/
  journal = 5,   // logs/journal, O_APPEND
  execs = 6,     // detached clone of the cgroup directory x/
  files = 7,     // second clone of the tree, handed over at adoption
  tree = 8,      // the root tree, moved to /
  userns = 9,
  cgroupns = 10,
  count = 11,
};
inline constexpr uint32_t kKeptSlots = 0xff;  // 0..7

enum class Op : uint32_t {
  join_cgroup_ns = 1,  // setns(slot, CLONE_NEWCGROUP)
  join_net_ns = 2,     // waits for the namespace, the one descriptor of the first message on conn,
                       // and joins it: it takes longest to make
  attach_tree = 3,     // move_mount(slot -> str, a directory of the spawner's root)
  mount_proc = 4,      // fsopen/fsmount proc at <tree>/proc; a: 1 = subset=pid
  mask_file = 5,       // bind the tree's /dev/null over proc-relative path str, if it exists
  mask_dir = 6,        // read-only empty tmpfs over proc-relative path str, if it exists
  proc_readonly = 7,   // bind proc-relative path str onto itself, read-only, if it exists
  mount_cgroup = 8,    // cgroup2, read-only, at tree-relative str
  enter_root = 9,      // chdir(tree), mount(MS_MOVE) to /, chroot, chdir /
  pivot_root = 10,     // the fallback switch: pivot_root(".", "."), umount old
  hostname = 11,       // str
  umask = 12,          // a
  rlimit = 13,         // a: resource, b: soft = hard
  oom_score_adj = 14,  // a (as int64)
  new_session = 15,    // setsid
  clear_groups = 16,   // setgroups(0)
  keep_caps = 17,      // PR_SET_KEEPCAPS
  set_ids = 18,        // a: gid, b: uid (setresgid, setresuid)
  set_caps = 19,       // a: permitted = effective, inheritable and ambient empty
  join_user_ns = 20,   // setns(slot, CLONE_NEWUSER)
  session_keyring = 21,
  drop_bounding = 22,  // a: mask that stays
  no_new_privs = 23,
  seccomp = 24,  // str: offset of sock_filter[], a: count
  not_dumpable = 25,
  listen = 26,         // a: backlog
  rlimit_nofile = 27,  // a: soft, b: hard
};

enum PlanFlags : uint32_t {
  kDieWithDaemon = 1,  // on_orphan: die. init ends when its last connection closes
};

struct PlanStep {
  uint32_t op;
  uint32_t slot;
  uint64_t a;
  uint64_t b;
  uint32_t str;     // offset from the start of the plan, 0 = none; NUL-terminated
  uint32_t length;  // bytes at str, without the NUL
};
static_assert(sizeof(PlanStep) == 32);

struct PlanHeader {
  uint32_t magic;
  uint32_t version;
  uint32_t size;  // of the whole plan
  uint32_t step_count;
  uint32_t flags;
  uint32_t live_execs;     // at most this many at a time
  uint64_t workload_caps;  // permitted = effective of an exec that is root inside
  uint64_t init_caps;      // what init itself keeps
  uint64_t log_budget;     // bytes for logs/ as a whole
  uint8_t nonce[16];
  char default_cwd[64];  // NUL-terminated
};

}  // namespace talon::wire
