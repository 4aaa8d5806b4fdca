#pragma once
// Launcher: from a spec and directories to a running sandbox. Owns the spawner, the id leases,
// the cgroup root and the compiled seccomp filters. Thread-safe; every call blocks for the time
// the kernel takes (hundreds of microseconds), so servers call it through offload.
//
// create() is all or nothing: when it fails nothing is left (no cgroup, mount, process, lease,
// descriptor), and the error says which step failed.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "isolate/host.h"
#include "isolate/sandbox.h"
#include "isolate/spec.h"

namespace talon::isolate {

class SpawnerClient;

// What a launcher needs and what can be begun before all else: the spawner sets itself up while
// the caller does other things.
struct EarlyStart {
  std::string cgroup_place;                // "" = not found; Launcher::start says why
  std::shared_ptr<SpawnerClient> spawner;  // null = Launcher::start starts one
};
// For a program of one thread that has opened nothing yet (`talond run`): the spawner is forked, so
// the executable is not started twice.
EarlyStart start_early(const std::string& cgroup_path);

struct LauncherConfig {
  std::string run_dir;        // <rundir>; <rundir>/<id>/init.sock is made in it
  std::string cgroup_path;    // "" = choose (decision 14)
  std::string instance;       // names the cgroup directory talon-<instance>
  std::string data_dir = {};  // where sandboxes' files lie: io limits hold for its disk
  std::string lease_dir = "/run/lock/talon/ids";
  std::uint32_t id_base = limits::kIdBase;
  std::uint32_t id_leases = limits::kIdLeases;
  EarlyStart early = {};  // from start_early(), for the same cgroup_path
};

// Directories of one sandbox, made by the caller. On disk ids are 0-based.
struct SandboxDirs {
  const DirFd* image = nullptr;      // read-only root tree
  const DirFd* root = nullptr;       // holds upper/ and work/ (storage: disk), logs/
  const DirFd* workspace = nullptr;  // bound at /workspace; null = none
  // Of a workspace with a size: its image's name in the directory that the workspace's is in.
  std::string workspace_image = "workspace.img";
};

// How far a sandbox is made before its create (docs/adr/0014).
enum class Ahead {
  parts,  // id lease, user, network and cgroup namespaces, cgroup, logs, run directory
  tree,   // and the root tree: image, workspace, storage and sizes are given
  warm,   // and init, which waits: all of the spec but its limits is given
};

// What `stage` fixes of a spec is the same in both. What a later version adds to the spec counts as
// fixed until it is said otherwise here.
bool same_shape(Ahead stage, const SandboxSpec& a, const SandboxSpec& b);

class Creation;

// A sandbox made ahead; who drops it destroys it and all that belongs to it. Not to outlive its
// launcher.
class Prepared {
 public:
  explicit Prepared(std::unique_ptr<Creation> creation);
  ~Prepared();
  Prepared(Prepared&&) noexcept;
  Prepared& operator=(Prepared&&) = delete;
  // Whether it can become a sandbox of `spec`; of the image and directories it knows nothing.
  bool fits(const SandboxSpec& spec) const;
  // Its init has ended (a warm one may die like any process).
  bool dead() const;

 private:
  friend class Launcher;
  std::unique_ptr<Creation> creation_;
};

class Launcher {
 public:
  static Result<std::unique_ptr<Launcher>> start(LauncherConfig config);
  ~Launcher();  // sandboxes live on; the group talon-<instance> goes if it is empty

  const HostFacts& host() const;
  // The group that holds all sandboxes of this instance, "" when there is none.
  std::string cgroup_path() const;
  // 422 unenforceable for an asked-for limit whose controller this host lacks.
  Result<> check_limits(const Limits& limits) const;
  // 422 unenforceable for an asked-for size of root changes or workspace that nothing here holds.
  Result<> check_sizes(const SandboxSpec& spec) const;

  Result<std::unique_ptr<Sandbox>> create(const SandboxSpec& spec, const SandboxDirs& dirs);
  // Makes a sandbox as far as `stage`. Its id and directories are the later sandbox's own; for
  // Ahead::parts `dirs.image` and `dirs.workspace` may be null.
  Result<Prepared> prepare(Ahead stage, const SandboxSpec& spec, const SandboxDirs& dirs);
  // The same create from where prepare() left off; `dirs` again. It is used up either way.
  Result<std::unique_ptr<Sandbox>> create(const SandboxSpec& spec, const SandboxDirs& dirs,
                                          Prepared prepared);

  // A create is under way (prepare() does not count).
  bool busy() const;

  // A sandbox of an earlier daemon: verifies socket, pid, start time and nonce (decision 10).
  Result<std::unique_ptr<Sandbox>> adopt(const Identity& identity);

  // Ends everything of groups under talon-<instance> that `keep` does not name and removes
  // them; also run directories. What it did is returned, one line each.
  std::vector<std::string> sweep(const std::vector<std::string>& keep);

  // What removed sandboxes held is given back off the caller's path; returns when that is done.
  void drain();

  struct Counters {
    std::uint64_t spawner_starts = 0;
    std::uint64_t created = 0;
    std::uint64_t failed = 0;
  };
  Counters counters() const;

  struct Impl;  // launch_impl.h

 private:
  explicit Launcher(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The `talon-spawner` face: never returns. Called first thing in main when argv[0] says so.
[[noreturn]] void spawner_main();
// Becomes the spawner if argv[0] is "talon-spawner" (and then never returns), else false.
bool spawner_main_if_asked(int argc, char** argv);

}  // namespace talon::isolate
