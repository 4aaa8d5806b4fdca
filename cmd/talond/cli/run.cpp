// `talond run`: one command in a new sandbox, without daemon and store (decision 40).

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdlib>

#include "base/clock.h"
#include "base/id.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/local.h"
#include "cli/progress.h"
#include "cli/relay.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "isolate/image/image.h"
#include "isolate/launch.h"

namespace talon::cli {

namespace {

// A fast writer may be this far ahead of a slow reader of our output before the oldest bytes go.
constexpr std::uint64_t kLogCap = 256ULL << 20;
constexpr Millis kEndDeadline{10'000};

Result<> check_network(const std::string& policy) {
  if (policy == "deny" || policy == "sealed" || policy == "offline") {
    return {};
  }
  constexpr std::array<std::string_view, 5> kLater{"allowlist", "restricted-egress", "open",
                                                   "full-egress", "learn"};
  if (std::ranges::find(kLater, policy) == kLater.end()) {
    return fail(Code::invalid_request,
                "--net is deny, sealed or offline (allowlist, open and "
                "learn come with a later release), not \"" +
                    policy + "\"");
  }
  return fail(Code::not_supported_yet,
              "--net " + policy + " comes with a later release; use --net deny");
}

Result<isolate::ImageStore::Opened> open_image(const Config& config, const std::string& name) {
  TALON_CHECK(make_private_path(config.data_dir));
  TALON_TRY(images, isolate::ImageStore::open(config.data_dir));
  auto opened = images.get(name);
  if (!opened && opened.error().code == Code::not_found && name == "host") {
    TALON_CHECK(images.ensure_host(false, show_progress(name)));
    opened = images.get(name);
  }
  return opened;
}

Result<DirFd> open_workspace(const std::string& path) {
  auto dir = open_at(AT_FDCWD, path, O_RDONLY | O_DIRECTORY);
  if (!dir) {
    return std::unexpected(std::move(dir).error().in("--workspace"));
  }
  return dir;
}

isolate::ExecSpec exec_of(const RunOptions& options, bool tty) {
  isolate::ExecSpec exec;
  exec.id = new_id(IdKind::exec);
  exec.argv = options.command;
  exec.env = options.env;
  exec.user = options.user;
  exec.cwd = options.cwd;
  exec.timeout = options.timeout;
  exec.log_cap = kLogCap;
  exec.tty = tty;
  if (tty) {
    const WindowSize size = window_size(STDOUT_FILENO);
    exec.cols = size.cols;
    exec.rows = size.rows;
    if (const char* term = ::getenv("TERM"); term != nullptr) {
      exec.env.emplace_back("TERM", term);
    }
  }
  isolate::add_default_env(exec.env);
  // A closed descriptor 0 or one that only writes is an empty input.
  const int flags = ::fcntl(STDIN_FILENO, F_GETFL);
  exec.stdin_open = flags >= 0 && (flags & O_ACCMODE) != O_WRONLY && (flags & O_PATH) == 0;
  return exec;
}

int exit_code(const wire::ExitInfo& info, const RunOptions& options) {
  if ((info.flags & wire::kTimedOut) != 0) {
    say("the command was ended after the --timeout of " + std::to_string(options.timeout.count()) +
        " ms");
    return kRunTimeout;
  }
  if ((info.flags & wire::kOom) != 0) {
    say("the command needed more memory than it may have" +
        (options.limits.memory_bytes ? "; --memory is " + format_size(*options.limits.memory_bytes)
                                     : std::string{"; give more with --memory"}));
  }
  return info.signal != 0 ? 128 + info.signal : info.code;
}

// A live sandbox that is gone, with its group and its socket, whatever way the scope is left.
class Ended {
 public:
  Ended(isolate::Launcher& launcher, isolate::Sandbox& sandbox)
      : launcher_(launcher), sandbox_(sandbox) {}
  ~Ended() {
    if (!done_) {
      [[maybe_unused]] const auto ended = end();
    }
  }
  Result<> end() {
    done_ = true;
    TALON_CHECK(sandbox_.kill(kEndDeadline));
    TALON_CHECK(sandbox_.remove());
    launcher_.drain();
    return {};
  }

 private:
  isolate::Launcher& launcher_;
  isolate::Sandbox& sandbox_;
  bool done_ = false;
};

Result<wire::ExitInfo> run_command(isolate::Sandbox& sandbox, const LocalRun& local,
                                   const RunOptions& options, Signals& signals) {
  const bool tty = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
  const isolate::ExecSpec exec = exec_of(options, tty);
  std::optional<RawTerminal> raw;
  if (tty) {
    TALON_TRY(entered, RawTerminal::enter(STDIN_FILENO));
    raw.emplace(std::move(entered));
  }
  TALON_CHECK(sandbox.exec(exec));
  Relay relay{
      sandbox, local.logs().get(), exec.id, signals, {.tty = tty, .stdin_open = exec.stdin_open}};
  return relay.run();
}

void clean_up(Ended& ended, LocalRun& local) {
  if (const auto done = ended.end(); !done) {
    say("cleaning up: " + done.error().message + "; the next run sweeps it");
  } else if (const auto removed = local.remove(); !removed) {
    say("cleaning up: " + removed.error().message + "; the next run sweeps it");
  }
}

struct Leaving {
  Ended* ended;
  LocalRun* local;
};

int finish(void* argument) {
  const auto& leaving = *static_cast<const Leaving*>(argument);
  // Out of reach of the terminal's keys, and whoever reads our output sees its end.
  ::setsid();
  ::close_range(STDIN_FILENO, STDERR_FILENO, 0);
  clean_up(*leaving.ended, *leaving.local);
  ::_exit(0);
}

// The caller gets its exit code now; the kernel takes milliseconds to take the sandbox apart, and
// a child of ours waits for that. It holds the run's lock, so no sweep takes it for dead. As
// pid 1 our end would be the child's end too, so there (and if the clone fails) we wait.
//
// The child is no copy: it goes on with our memory, which we do not touch again.
void leave(Ended& ended, LocalRun& local, int code) {
  constexpr std::size_t kStack = 1 << 20;
  Leaving leaving{&ended, &local};
  void* const stack = ::getpid() == 1 ? MAP_FAILED
                                      : ::mmap(nullptr, kStack, PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack != MAP_FAILED &&
      ::clone(finish, static_cast<std::byte*>(stack) + kStack, CLONE_VM | SIGCHLD, &leaving) > 0) {
    // Not exit(): what destructors would wait for is the child's.
    ::_exit(code);
  }
  clean_up(ended, local);
}

Result<int> run_sandboxed(const Config& config, const RunOptions& options) {
  TALON_CHECK(check_network(options.network));
  // Before descriptors are opened and signals taken: the spawner is a copy of us.
  auto early = isolate::start_early(config.cgroup);
  DirFd given;
  if (!options.workspace.empty()) {
    TALON_TRY(dir, open_workspace(options.workspace));
    given = std::move(dir);
  }
  TALON_TRY(image, open_image(config, options.image));
  if (config.unconfined_seccomp) {
    say("warning: unconfined_seccomp is set: the command runs without the system call filter");
  }

  // Until here a signal simply ends us; from here on there is something to clean up.
  TALON_TRY(signals, Signals::install());
  TALON_TRY(local, LocalRun::make(config, {.private_workspace = options.workspace.empty(),
                                           .any_user = !options.user.empty()}));
  isolate::SandboxSpec spec;
  spec.id = new_id(IdKind::sandbox);
  spec.storage = options.storage;
  spec.proc = config.proc;
  spec.on_orphan = isolate::OnOrphan::die;
  spec.limits = options.limits;
  spec.unconfined_seccomp = config.unconfined_seccomp;

  TALON_TRY(launcher, isolate::Launcher::start({.run_dir = local.run_dir(),
                                                .cgroup_path = config.cgroup,
                                                .instance = "local-" + spec.id,
                                                .id_base = config.ids_base,
                                                .id_leases = config.ids_count,
                                                .early = std::move(early)}));
  TALON_CHECK(local.note(launcher->cgroup_path(),
                         image.info.name + "-" + std::to_string(image.info.generation)));
  TALON_CHECK(launcher->check_limits(spec.limits));
  TALON_TRY(sandbox, launcher->create(spec, {.image = &image.root,
                                             .root = &local.root(),
                                             .workspace = given ? &given : &local.workspace()}));
  Ended ended{*launcher, *sandbox};
  TALON_TRY(info, run_command(*sandbox, local, options, signals));
  const int code = exit_code(info, options);
  leave(ended, local, code);
  return code;
}

}  // namespace

int run(const Invocation& invocation) {
  if (const auto root = need_root("run"); !root) {
    return failed(root.error(), kRunFailed);
  }
  const auto config = config_of(invocation);
  if (!config) {
    return failed(config.error(), kRunFailed);
  }
  const auto code = run_sandboxed(*config, invocation.run);
  return code ? *code : failed(code.error(), kRunFailed);
}

}  // namespace talon::cli
