// The spawner's main loop: one request, one reply, in order. See spawner.h and
// wire/spawner_format.h. It ends when talond closes the socket; sandboxes live on.

#include "isolate/spawner.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "isolate/harden.h"
#include "isolate/kernel/clone.h"
#include "isolate/kernel/mount.h"
#include "isolate/launch.h"
#include "isolate/spawner_request.h"

extern "C" const std::byte talon_init_begin[];
extern "C" const std::byte talon_init_end[];

namespace talon::isolate {

using namespace spawner;  // NOLINT: this file is the namespace's entry point

namespace {

constexpr int kSocketFd = 3;
constexpr int kBuilderSocketFd = 4;
constexpr int kNetworkerSocketFd = 5;
constexpr int kOwnFds = 64;  // our own descriptors live from here on
constexpr int kSlots = static_cast<int>(wire::Slot::count);
// Numbers below this are filled, so that received descriptors never land on a slot's number.
constexpr int kFilled = wire::kFdBase + kSlots;

Result<> move_up(UniqueFd& fd) {
  const int moved = fcntl(fd.get(), F_DUPFD_CLOEXEC, kOwnFds);
  if (moved < 0) {
    return fail_sys(errno, "move a descriptor");
  }
  fd.reset(moved);
  return {};
}

// Only the sockets came along; 0-2 are closed to children, 3..27 are filled.
Result<> settle_descriptors(Spawner& s) {
  s.socket = UniqueFd{kSocketFd};
  s.builder_socket = UniqueFd{kBuilderSocketFd};
  s.networker_socket = UniqueFd{kNetworkerSocketFd};
  if (close_range(kNetworkerSocketFd + 1, ~0u, 0) != 0) {
    return fail_sys(errno, "close inherited descriptors");
  }
  TALON_CHECK(move_up(s.socket));
  TALON_CHECK(move_up(s.builder_socket));
  TALON_CHECK(move_up(s.networker_socket));
  TALON_TRY(null, open_at(AT_FDCWD, "/dev/null", O_RDWR));
  TALON_CHECK(move_up(null));  // it is 0, 1 or 2 itself where the caller had closed those
  for (const int fd : {0, 1}) {
    if (dup3(null.get(), fd, O_CLOEXEC) < 0) {
      return fail_sys(errno, "settle descriptors");
    }
  }
  // 2 stays for the last words of a broken invariant.
  if (fcntl(2, F_SETFD, FD_CLOEXEC) != 0 && dup3(null.get(), 2, O_CLOEXEC) < 0) {
    return fail_sys(errno, "settle descriptors");
  }
  return {};
}

Result<> fill_low_numbers(Spawner& s) {
  TALON_TRY(root, open_at(AT_FDCWD, "/", O_PATH | O_DIRECTORY));
  TALON_CHECK(move_up(root));
  s.filler = std::move(root);
  for (int fd = 3; fd < kFilled; ++fd) {
    if (dup3(s.filler.get(), fd, O_CLOEXEC) < 0) {
      return fail_sys(errno, "fill descriptor numbers");
    }
  }
  return {};
}

// A mount namespace that holds nothing of the host: a sandbox's namespace is a copy of it.
Result<> leave_host_mounts() {
  if (unshare(CLONE_NEWNS) != 0) {
    return fail_sys(errno, "make a mount namespace");
  }
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return fail_sys(errno, "make mounts private");
  }
  constexpr std::uint64_t kAttributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
  TALON_TRY(root, kernel::make_mount("tmpfs", {{"size", "16k"}, {"mode", "0755"}}, kAttributes));
  for (const char* path :
       {kAttachPoint, kBench, kBenchTemplate, kDevTemplate, kSysTemplate, kHostRoot}) {
    if (mkdirat(root.get(), path + 1, 0755) != 0) {
      return fail_sys(errno, "make the spawner's root");
    }
  }
  TALON_CHECK(kernel::change_mount(root.get(), {.set = kAttributes | MOUNT_ATTR_RDONLY}));
  TALON_CHECK(kernel::attach(root.get(), AT_FDCWD, "/proc"));  // any directory that exists
  if (fchdir(root.get()) != 0 || syscall(SYS_pivot_root, ".", kHostRoot + 1) != 0 ||
      chdir("/") != 0) {
    return fail_sys(errno, "leave the host's mounts (an initramfs root cannot be left)");
  }
  return drop_host_root();
}

// posix_spawn leaves glibc's own two signals ignored, CLONE_CLEAR_SIGHAND keeps what is ignored,
// and so would every program in every sandbox. Raw: glibc's sigaction refuses those two.
void reset_signals() {
  struct {
    void* handler;
    unsigned long flags;
    void* restorer;
    unsigned long mask;
  } action{};  // SIG_DFL
  for (int number = 1; number <= 64; ++number) {
    kernel::raw_call(SYS_rt_sigaction, number, reinterpret_cast<long>(&action), 0, 8);
  }
}

// What a daemon was started with (by `setarch -R`, nice, chrt) is inherited over every execve down
// to the workload: no address randomization, or a priority above the host's own programs. A
// negative nice value or a real-time policy may always be given up; a positive nice value stays
// where CAP_SYS_NICE is missing, which weakens nothing.
void reset_personality_and_priority() {
  personality(PER_LINUX);
  const sched_param none{};
  sched_setscheduler(0, SCHED_OTHER, &none);
  setpriority(PRIO_PROCESS, 0, 0);
  syscall(SYS_ioprio_set, 1 /* IOPRIO_WHO_PROCESS, ioprio_set(2) */, 0, 0);
}

Result<> keep_only(Spawner& s, std::uint64_t capabilities) {
  TALON_CHECK(give_up_all_but(capabilities));
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  if (syscall(SYS_capget, &header, data) != 0) {
    return fail_sys(errno, "read capabilities");
  }
  s.capabilities = data[0].permitted | std::uint64_t{data[1].permitted} << 32;
  return {};
}

// What all three share: no descriptor, signal setting, priority or mount of the host's.
Result<> settle(Spawner& s, std::span<std::string, 3> cpus) {
  TALON_CHECK(settle_descriptors(s));
  reset_signals();
  reset_personality_and_priority();
  umask(0);
  TALON_CHECK(keep_only(s, kAllThreeCapabilities));
  std::size_t at = 0;
  for (const char* name : {"possible", "present", "online"}) {
    auto text = read_file_at(AT_FDCWD, std::string{"/sys/devices/system/cpu/"} + name, 4096);
    cpus[at++] = text ? *text : std::string{};
  }
  return leave_host_mounts();
}

Result<> open_proc(Spawner& s) {
  TALON_TRY(proc, kernel::make_mount("proc", {},
                                     MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC));
  TALON_CHECK(move_up(proc));
  s.proc = std::move(proc);
  return {};
}

Result<> set_up(Spawner& s) {
  TALON_CHECK(keep_only(s, kSpawnerCapabilities));
  TALON_CHECK(open_proc(s));
  TALON_TRY(init, sealed_memfd("talon-init", {talon_init_begin, talon_init_end}));
  TALON_CHECK(move_up(init));
  s.init_file = std::move(init);
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGCHLD);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  UniqueFd signals{signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK)};
  if (!signals) {
    return fail_sys(errno, "signalfd");
  }
  TALON_CHECK(move_up(signals));
  s.signals = std::move(signals);
  return fill_low_numbers(s);
}

// ---- requests

struct Answer {
  wire::SpawnReply reply{};
  std::vector<UniqueFd> fds;
  Bench bench;  // a tree's, cleared when the answer has been sent
};

// Places the plan and the slots, clones, and takes the numbers back.
Result<UniqueFd> clone_sandbox(Spawner& s, const wire::Clone& request,
                               std::span<const UniqueFd> fds, std::int32_t& pid) {
  std::size_t next = 2;
  const auto place = [](int from, int to) { return dup2(from, to) == to; };
  bool placed = place(fds[1].get(), wire::kPlanFd);
  for (int slot = 0; slot < kSlots; ++slot) {
    if ((request.slot_mask >> slot & 1) != 0) {
      placed = placed && place(fds[next++].get(), wire::kFdBase + slot);
    }
  }
  int pidfd = -1;
  clone_args args{};
  args.flags = CLONE_VM | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS |
               CLONE_INTO_CGROUP | CLONE_PIDFD | CLONE_CLEAR_SIGHAND;
  args.pidfd = reinterpret_cast<std::uint64_t>(&pidfd);
  args.exit_signal = SIGCHLD;
  args.cgroup = static_cast<std::uint64_t>(fds[0].get());
  // Static: the child reads them in its execve, when this frame may be gone.
  static char name[] = "talon-init";
  static char* const argv[] = {name, nullptr};
  static char* const envp[] = {nullptr};
  // The child starts with this mask. A SIGCHLD that comes while it is empty is lost; the main
  // loop reaps after every clone for that.
  sigset_t none;
  sigset_t mask;
  sigemptyset(&none);
  long result = -EBADF;
  if (placed) {
    sigprocmask(SIG_SETMASK, &none, &mask);
    result = kernel::clone_exec(&args, s.init_file.get(), argv, envp);
    sigprocmask(SIG_SETMASK, &mask, nullptr);
  }
  for (int fd = wire::kPlanFd; fd < kFilled; ++fd) {
    TALON_ASSERT(dup3(s.filler.get(), fd, O_CLOEXEC) == fd);
  }
  if (result < 0) {
    return fail_sys(static_cast<int>(-result), "clone the sandbox");
  }
  pid = static_cast<std::int32_t>(result);
  return UniqueFd{pidfd};
}

Result<> serve(Spawner& s, const Request& request, std::vector<UniqueFd>& fds, Answer& answer) {
  switch (request.op) {
    case wire::SpawnOp::user_ns: {
      TALON_TRY(fd, make_user_ns(s, request.user_ns));
      answer.fds.push_back(std::move(fd));
      return {};
    }
    case wire::SpawnOp::net_ns: {
      TALON_TRY(fd, make_net_ns(s));
      answer.fds.push_back(std::move(fd));
      return {};
    }
    case wire::SpawnOp::cgroup_ns: {
      TALON_TRY(fd, make_cgroup_ns(s, fds[0].get()));
      answer.fds.push_back(std::move(fd));
      return {};
    }
    case wire::SpawnOp::tree: {
      const bool disk = request.tree.storage == static_cast<std::uint32_t>(wire::TreeStorage::disk);
      const std::array<int, 4> parts = {fds[0].get(), fds[1].get(), disk ? fds[2].get() : -1,
                                        request.tree.has_workspace != 0 ? fds.back().get() : -1};
      auto detail = wire::SpawnDetail::none;
      auto built = build_tree(s, answer.bench, request.tree, parts, detail);
      answer.reply.detail = static_cast<std::uint32_t>(detail);
      if (!built) {
        return std::unexpected(std::move(built).error());
      }
      answer.fds.push_back(std::move(built->tree));
      answer.fds.push_back(std::move(built->files));
      return {};
    }
    case wire::SpawnOp::clone: {
      TALON_TRY(fd, clone_sandbox(s, request.clone, fds, answer.reply.pid));
      answer.fds.push_back(std::move(fd));
      return {};
    }
    case wire::SpawnOp::reaped: break;  // never a request
  }
  return fail(Code::invalid_request, "malformed request");
}

// False when talond is gone.
bool answer_one(Spawner& s) {
  alignas(8) std::array<std::byte, 512> buffer;
  auto message = receive_message(s.socket.get(), buffer);
  if (!message || message->size == 0) {
    return false;
  }
  Answer answer;
  auto request = parse_request(std::span{buffer}.first(message->size), message->fds.size());
  Result<> done;
  if (request) {
    answer.reply.op = static_cast<std::uint32_t>(request->op);
    done = serve(s, *request, message->fds, answer);
  } else {
    done = std::unexpected(std::move(request).error());
  }
  if (!done) {
    const Error& error = done.error();
    answer.fds.clear();
    answer.reply.error = error.sys != 0 ? error.sys : EINVAL;
    error.message.copy(answer.reply.text, sizeof(answer.reply.text) - 1);
  }
  std::vector<int> numbers;
  for (const UniqueFd& fd : answer.fds) {
    numbers.push_back(fd.get());
  }
  return send_message(s.socket.get(), std::as_bytes(std::span{&answer.reply, 1}), numbers)
      .has_value();
}

void reap_children(Spawner& s) {
  reap_helper(false);
  for (;;) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid <= 0) {
      return;
    }
    if (pid == s.builder || pid == s.networker) {
      (pid == s.builder ? s.builder : s.networker) = -1;  // talond sees it on its socket
      continue;
    }
    wire::SpawnReply event{};
    event.op = static_cast<std::uint32_t>(wire::SpawnOp::reaped);
    event.pid = pid;
    event.detail = static_cast<std::uint32_t>(status);
    // Only a hint (talond waits on pidfds), so a full socket loses it rather than blocks us.
    send(s.socket.get(), &event, sizeof(event), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
}

void say_hello(const UniqueFd& socket, const Result<>& ready) {
  wire::SpawnReply hello{};  // op 0: ready, or why not
  if (!ready) {
    hello.error = ready.error().sys != 0 ? ready.error().sys : EINVAL;
    ready.error().message.copy(hello.text, sizeof(hello.text) - 1);
  }
  send(socket.get(), &hello, sizeof(hello), MSG_NOSIGNAL);
}

// Builder or networker from here on: never returns. It ends when talond closes its socket.
[[noreturn]] void serve_only(Spawner& s, const Result<>& ready) {
  say_hello(s.socket, ready);
  while (ready && answer_one(s)) {
  }
  _exit(ready ? 0 : 1);
}

[[noreturn]] void builder_main(Spawner& s, std::span<const std::string, 3> cpus) {
  s.socket = std::move(s.builder_socket);
  s.networker_socket.reset();
  prctl(PR_SET_NAME, "talon-builder");
  auto ready = keep_only(s, kBuilderCapabilities);
  if (ready) {
    ready = unshare(CLONE_NEWNS) == 0 ? make_templates(cpus)
                                      : fail_sys(errno, "make the builder's mount namespace");
  }
  serve_only(s, ready);
}

[[noreturn]] void networker_main(Spawner& s) {
  s.socket = std::move(s.networker_socket);
  prctl(PR_SET_NAME, "talon-network");
  serve_only(s, [&]() -> Result<> {
    TALON_CHECK(keep_only(s, kNetworkerCapabilities));
    TALON_CHECK(open_proc(s));
    TALON_TRY(netns, open_at(s.proc.get(), "self/ns/net", O_RDONLY));
    s.own_netns = std::move(netns);
    return {};
  }());
}

Result<> start_helpers(Spawner& s, std::span<const std::string, 3> cpus) {
  s.builder = fork();
  if (s.builder == 0) {
    builder_main(s, cpus);
  }
  s.builder_socket.reset();
  s.networker = s.builder < 0 ? -1 : fork();
  if (s.networker == 0) {
    networker_main(s);
  }
  s.networker_socket.reset();
  return s.networker < 0 ? fail_sys(errno, "start builder and networker") : Result<>{};
}

[[noreturn]] void leave(Spawner& s, int code) {
  for (const pid_t pid : {s.builder, s.networker}) {
    if (pid > 0) {
      ::kill(pid, SIGKILL);  // our child and not reaped, so the pid is its own
      waitpid(pid, nullptr, 0);
    }
  }
  _exit(code);
}

}  // namespace

void spawner_main() {
  Spawner s;
  prctl(PR_SET_NAME, "talon-spawner");
  std::array<std::string, 3> cpus;
  auto ready = settle(s, cpus);
  if (ready) {
    ready = start_helpers(s, cpus);
  }
  if (ready) {
    ready = set_up(s);
  }
  say_hello(s.socket, ready);
  if (!ready) {
    leave(s, 1);
  }
  for (;;) {
    std::array<pollfd, 2> waits = {pollfd{s.socket.get(), POLLIN, 0},
                                   pollfd{s.signals.get(), POLLIN, 0}};
    if (poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR) {
      leave(s, 1);
    }
    if (waits[1].revents != 0) {
      signalfd_siginfo info[8];
      while (read(s.signals.get(), info, sizeof(info)) > 0) {
      }
    }
    if (waits[0].revents != 0 && !answer_one(s)) {
      leave(s, 0);
    }
    reap_children(s);
  }
}

bool spawner_main_if_asked(int argc, char** argv) {
  if (argc < 1 || argv[0] == nullptr || std::strcmp(argv[0], "talon-spawner") != 0) {
    return false;
  }
  spawner_main();
}

}  // namespace talon::isolate
