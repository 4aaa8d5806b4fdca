#pragma once
// One sandbox being made: the parts as they come, and their removal when it fails or is not wanted.
// What the spawner makes is asked for early and read late, so that both processes work at once.
// It may rest after any stage (Ahead) and go on later: that is a sandbox of a pool.

#include <memory>
#include <optional>
#include <string>

#include "isolate/launch_impl.h"
#include "isolate/plan.h"

namespace talon::isolate {

class Creation {
 public:
  Creation(Launcher::Impl& launcher, SandboxSpec spec);
  ~Creation();  // removes everything unless finish() succeeded
  Creation(const Creation&) = delete;
  Creation& operator=(const Creation&) = delete;

  // Everything up to and with `stage` that is not made yet. `dirs` is used during the call only.
  Result<> advance(Ahead stage, const SandboxDirs& dirs);
  // The sandbox; after advance(Ahead::warm).
  std::unique_ptr<Sandbox> finish();

  const SandboxSpec& spec() const { return spec_; }
  // May become a sandbox of `spec`: same id and, as far as it is made, the same shape.
  bool fits(const SandboxSpec& spec) const;
  // What rested becomes the sandbox of `spec`, which fits(): its limits are written now.
  Result<> take_spec(const SandboxSpec& spec);
  bool init_ended() const;

 private:
  using Ticket = SpawnerClient::Ticket;

  Result<> make_parts(const SandboxDirs& dirs, Ahead stage);
  Result<> take_tree();
  Result<> start_init();
  Result<> make_upper(const SandboxDirs& dirs);  // upper and work
  Result<> make_logs(const SandboxDirs& dirs);   // logs with init's owner, journal
  Result<> make_run_dir();                       // <rundir>/<id>/init.sock, bound
  Result<> make_cgroup();
  Result<MountFd> limited_mount(const disk::Place& place, std::uint64_t bytes, DiskLimit& applied);
  // What the tree is made of, limited if that was asked for.
  Result<MountFd> upper_mount(const DirFd& root);
  Result<MountFd> workspace_mount(const SandboxDirs& dirs);
  Result<> ask_tree(const SandboxDirs& dirs);
  Result<> make_plan_file();
  Result<> clone();
  Result<> take_net_ns();
  Result<> give_net_ns();  // to init, which waits for it
  Result<> wait_ready();
  Result<> explain_end();  // why init ended before it said ready
  void record(const wire::Ready& ready);
  void mark(std::string what);

  Launcher::Impl& launcher_;
  SandboxSpec spec_;
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
  UniqueFd netns_;
  UniqueFd cgroupns_;
  std::vector<disk::Limited> limited_;  // until the tree is there
  std::optional<Ticket> netns_ticket_;
  std::optional<Ticket> tree_ticket_;
  MountFd tree_;  // until init has it
  std::uint64_t last_mark_ = 0;
  SandboxParts parts_;
};

}  // namespace talon::isolate
