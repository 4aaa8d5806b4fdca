#pragma once
// One create() under way: the parts as they come, and their removal when it fails. What the
// spawner makes is asked for early and read late, so that both processes work at once.

#include <memory>
#include <optional>
#include <string>

#include "isolate/launch_impl.h"
#include "isolate/plan.h"

namespace talon::isolate {

class Creation {
 public:
  Creation(Launcher::Impl& launcher, const SandboxSpec& spec, const SandboxDirs& dirs);
  ~Creation();  // removes everything unless run() succeeded
  Creation(const Creation&) = delete;
  Creation& operator=(const Creation&) = delete;

  Result<std::unique_ptr<Sandbox>> run();

 private:
  using Ticket = SpawnerClient::Ticket;

  Result<> make_upper();    // upper and work
  Result<> make_logs();     // logs with init's owner, journal
  Result<> make_run_dir();  // <rundir>/<id>/init.sock, bound
  Result<> make_cgroup();
  Result<Ticket> ask_tree();
  Result<> make_plan_file();
  Result<> clone(const UniqueFd& netns, const UniqueFd& cgroupns, const MountFd& tree,
                 const MountFd& files);
  Result<> wait_ready();
  Result<> explain_end();  // why init ended before it said ready
  void record(const wire::Ready& ready);
  void mark(std::string what);

  Launcher::Impl& launcher_;
  const SandboxSpec& spec_;
  const SandboxDirs& dirs_;
  bool done_ = false;

  std::shared_ptr<SpawnerClient> spawner_;
  std::optional<IdLease> lease_;
  Plan plan_;
  DirFd logs_;
  UniqueFd journal_;
  UniqueFd listener_;
  UniqueFd init_conn_;
  UniqueFd plan_file_;
  UniqueFd userns_;
  std::uint64_t last_mark_ = 0;
  SandboxParts parts_;
};

}  // namespace talon::isolate
