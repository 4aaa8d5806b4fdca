// talon-init: PID 1 of a sandbox. Started by the spawner with a plan at kPlanFd and the sandbox's
// descriptors at kFdBase + slot; runs the plan, then serves talond (see loop.cpp).

#include "isolate/init/state.h"
#include "isolate/init/steps.h"

namespace talon::init {

State g;
unsigned char g_io[kIoSize];
unsigned char g_scratch[256 * 1024];

namespace {

void report_failure(const StepsResult& result) {
  struct {
    wire::Header head;
    wire::Failed body;
  } message = {};
  message.head = {wire::kVersion, (uint16_t)wire::Type::failed, sizeof message.body, 0};
  message.body = {result.step, result.op, result.error, 0};
  IoVec iov = {&message, sizeof message};
  MsgHdr msg = {};
  msg.iov = &iov;
  msg.iov_count = 1;
  sys(__NR_sendmsg, slot_fd(wire::Slot::conn), &msg, kMsgNosignal);
}

int kept(wire::Slot slot) {
  int fd = slot_fd(slot);
  return sys(__NR_fcntl, fd, F_GETFD) < 0 ? -1 : fd;
}

// 0-2 become the sandbox's own null device; the plan and every slot not kept are closed, and
// whatever else came along with the execve.
long settle_descriptors() {
  long null = openat(kAtFdcwd, "/dev/null", O_RDWR | O_NOFOLLOW);
  if (null < 0) {
    return null;
  }
  for (int fd = 0; fd < 3; ++fd) {
    if (null != fd) {
      long err = sys(__NR_dup3, null, fd, O_CLOEXEC);
      if (err < 0) {
        return err;
      }
    }
  }
  sys(__NR_close_range, 3, wire::kPlanFd, 0);
  for (uint32_t slot = 0; slot < (uint32_t)wire::Slot::count; ++slot) {
    if ((wire::kKeptSlots >> slot & 1) == 0) {
      close(slot_fd(slot));
    } else {
      sys(__NR_fcntl, slot_fd(slot), F_SETFD, 1);
    }
  }
  sys(__NR_close_range, slot_fd(wire::Slot::count), ~0u, 0);
  return 0;
}

// What init really holds; setfsuid to a workload's user and back changes the effective set.
uint64_t own_caps() {
  __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  sys(__NR_capget, &head, data);
  return (uint64_t)data[1].permitted << 32 | data[0].permitted;
}

void take_limits() {
  struct rlimit64 limit = {};
  sys(__NR_prlimit64, 0, RLIMIT_NOFILE, nullptr, &limit);
  g.child_nofile_soft = limit.rlim_cur;
  g.child_nofile_hard = limit.rlim_max;
  limit.rlim_cur = limit.rlim_max;
  sys(__NR_prlimit64, 0, RLIMIT_NOFILE, &limit, nullptr);
}

}  // namespace

extern "C" [[noreturn]] void talon_init_main() {
  static StepsResult result;
  run_plan(result);
  if (result.error == 0) {
    long err = settle_descriptors();
    if (err < 0) {
      result.step = result.plan->step_count;
      result.error = (int)-err;
    }
  }
  if (result.error != 0) {
    report_failure(result);
    exit_group(1);
  }
  g.plan = result.plan;
  g.init_caps = own_caps();
  g.workload_caps = g.plan->workload_caps & g.init_caps;
  g.listener = kept(wire::Slot::listener);
  g.event = kept(wire::Slot::event);
  g.logs = kept(wire::Slot::logs);
  g.journal = kept(wire::Slot::journal);
  g.execs = kept(wire::Slot::execs);
  for (Conn& conn : g.conns) {
    conn.fd = -1;
  }
  g.conns[0].fd = kept(wire::Slot::conn);
  g.conns[0].authed = true;
  take_limits();
  sys(__NR_umask, 022);  // the execs' too; init names the mode of all that it makes
  run_loop(result.ready);
}

}  // namespace talon::init
