#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "isolate/kernel/clone.h"
#include "isolate/spawner.h"

namespace talon::isolate::spawner {

using kernel::raw_call;

namespace {

// A helper shares memory and descriptors with the spawner, lives for some microseconds and
// opens its own namespace into the shared table. One at a time (reap_helper), so one stack is
// enough.
alignas(64) unsigned char helper_stack[16 * 1024];
pid_t leaving = -1;

struct Helper {
  int proc = -1;
  int ready = 0;    // futex: 1 once the helper has done its part
  int release = 0;  // futex: 1 when the helper may end
  int fd = -1;
  long error = 0;
};

TALON_CHILD_CODE void post(int* word) {
  __atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
  raw_call(SYS_futex, reinterpret_cast<long>(word), FUTEX_WAKE, 1);
}

TALON_CHILD_CODE void await(int* word) {
  while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == 0) {
    raw_call(SYS_futex, reinterpret_cast<long>(word), FUTEX_WAIT, 0);
  }
}

// Raw calls only: errno belongs to the spawner, which runs at the same time.
TALON_CHILD_CODE void in_user_ns(void* argument) {
  auto& h = *static_cast<Helper*>(argument);
  // Nothing below may nest further (decision 4): NEWUSER inside is ENOSPC.
  const long file =
      raw_call(SYS_openat, h.proc, reinterpret_cast<long>("sys/user/max_user_namespaces"),
               O_WRONLY | O_CLOEXEC);
  if (file < 0) {
    h.error = file;
  } else {
    const long n = raw_call(SYS_write, file, reinterpret_cast<long>("0"), 1);
    h.error = n < 0 ? n : 0;
    raw_call(SYS_close, file);
  }
  if (h.error == 0) {
    const long ns =
        raw_call(SYS_openat, h.proc, reinterpret_cast<long>("self/ns/user"), O_RDONLY | O_CLOEXEC);
    h.fd = static_cast<int>(ns);
    h.error = ns < 0 ? ns : 0;
  }
  post(&h.ready);
  await(&h.release);
}

TALON_CHILD_CODE void in_cgroup_ns(void* argument) {
  auto& h = *static_cast<Helper*>(argument);
  const long ns =
      raw_call(SYS_openat, h.proc, reinterpret_cast<long>("self/ns/cgroup"), O_RDONLY | O_CLOEXEC);
  h.fd = static_cast<int>(ns);
  h.error = ns < 0 ? ns : 0;
}

void reap(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, __WALL) < 0 && errno == EINTR) {
  }
}

clone_args helper_args(std::uint64_t flags) {
  clone_args args{};
  args.flags = CLONE_VM | CLONE_FILES | CLONE_CLEAR_SIGHAND | flags;
  args.stack = reinterpret_cast<std::uint64_t>(helper_stack);
  args.stack_size = sizeof(helper_stack);
  // No exit signal: the main loop's SIGCHLD is for sandboxes; __WALL reaps it here.
  return args;
}

}  // namespace

namespace {

alignas(64) unsigned char sweeper_stack[4 * 1024];
pid_t sweeper = -1;

TALON_CHILD_CODE void unmount(void* argument) {
  auto& error = *static_cast<long*>(argument);
  error = raw_call(SYS_umount2, reinterpret_cast<long>(kHostRoot), MNT_DETACH);
}

bool has_ended(pid_t pid) { return waitpid(pid, nullptr, __WALL | WNOHANG) != 0; }

}  // namespace

Result<> drop_host_root() {
  static long error = 0;
  clone_args args{};
  args.flags = CLONE_VM | CLONE_FILES | CLONE_CLEAR_SIGHAND;
  args.stack = reinterpret_cast<std::uint64_t>(sweeper_stack);
  args.stack_size = sizeof(sweeper_stack);
  const long pid = kernel::clone_call(&args, unmount, &error);
  if (pid < 0) {
    return fail_sys(static_cast<int>(-pid), "leave the host's mounts");
  }
  sweeper = static_cast<pid_t>(pid);
  // It is gone from the namespace at once, long before the helper's call returns.
  for (;;) {
    struct statx facts{};
    const bool ended = has_ended(sweeper);
    if (statx(AT_FDCWD, kHostRoot, AT_NO_AUTOMOUNT, STATX_TYPE, &facts) != 0 ||
        (ended && error != 0)) {
      return fail_sys(error != 0 ? static_cast<int>(-error) : errno, "leave the host's mounts");
    }
    if (ended) {
      sweeper = -1;
    }
    if ((facts.stx_attributes & STATX_ATTR_MOUNT_ROOT) == 0) {
      return {};
    }
    sched_yield();
  }
}

void reap_helper(bool patient) {
  int status = 0;
  pid_t got = -1;
  do {
    got = leaving > 0 ? waitpid(leaving, &status, __WALL | (patient ? 0 : WNOHANG)) : 0;
  } while (got < 0 && errno == EINTR);
  if (got != 0) {
    leaving = -1;
  }
  if (sweeper > 0 && has_ended(sweeper)) {
    sweeper = -1;
  }
}

Result<UniqueFd> make_user_ns(const Spawner& s, const wire::UserNs& request) {
  reap_helper(true);
  static Helper helper;  // it outlives this call
  helper = {};
  helper.proc = s.proc.get();
  clone_args args = helper_args(CLONE_NEWUSER);
  const long pid = kernel::clone_call(&args, in_user_ns, &helper);
  if (pid < 0) {
    return fail_sys(static_cast<int>(-pid), "clone into a new user namespace");
  }
  const std::string map = fmt::format("0 {} {}\n", request.base, request.count);
  auto maps = [&]() -> Result<> {
    TALON_CHECK(write_file_at(s.proc.get(), fmt::format("{}/uid_map", pid), map));
    return write_file_at(s.proc.get(), fmt::format("{}/gid_map", pid), map);
  }();
  await(&helper.ready);
  leaving = static_cast<pid_t>(pid);
  post(&helper.release);
  UniqueFd fd{helper.fd};
  if (!maps) {
    return std::unexpected(std::move(maps).error().in("map ids of a user namespace"));
  }
  if (helper.error != 0) {
    return fail_sys(static_cast<int>(-helper.error), "close a user namespace to nesting");
  }
  return fd;
}

Result<UniqueFd> make_cgroup_ns(const Spawner& s, int group) {
  reap_helper(true);
  Helper helper;
  helper.proc = s.proc.get();
  // VFORK: the spawner has nothing to do meanwhile.
  clone_args args = helper_args(CLONE_VFORK | CLONE_NEWCGROUP | CLONE_INTO_CGROUP);
  args.cgroup = static_cast<std::uint64_t>(group);
  const long pid = kernel::clone_call(&args, in_cgroup_ns, &helper);
  if (pid < 0) {
    return fail_sys(static_cast<int>(-pid), "clone into the sandbox's cgroup");
  }
  reap(static_cast<pid_t>(pid));
  if (helper.error != 0) {
    return fail_sys(static_cast<int>(-helper.error), "open a cgroup namespace");
  }
  return UniqueFd{helper.fd};
}

namespace {

Result<UniqueFd> prepare_net_ns(const Spawner& s) {
  const UniqueFd sock{socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  if (!sock) {
    return fail_sys(errno, "open a socket in the new network namespace");
  }
  ifreq request{};
  request.ifr_name[0] = 'l';
  request.ifr_name[1] = 'o';
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  if (ioctl(sock.get(), SIOCSIFFLAGS, &request) != 0) {
    return fail_sys(errno, "bring lo up");
  }
  // No CAP_NET_BIND_SERVICE inside (decision 3).
  TALON_CHECK(write_file_at(s.proc.get(), "sys/net/ipv4/ip_unprivileged_port_start", "0"));
  return open_at(s.proc.get(), "self/ns/net", O_RDONLY);
}

}  // namespace

Result<UniqueFd> make_net_ns(const Spawner& s) {
  if (unshare(CLONE_NEWNET) != 0) {
    return fail_sys(errno, "make a network namespace");
  }
  auto made = prepare_net_ns(s);
  // Staying in a sandbox's namespace would give it to the next one: nothing sane can follow.
  TALON_ASSERT(setns(s.own_netns.get(), CLONE_NEWNET) == 0);
  return made;
}

}  // namespace talon::isolate::spawner
