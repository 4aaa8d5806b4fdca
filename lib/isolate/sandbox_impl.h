#pragma once
// What the launcher builds a Sandbox from; the rest of the program sees only sandbox.h.

#include <chrono>
#include <memory>
#include <string>

#include "isolate/cgroup_tree.h"
#include "isolate/closer.h"
#include "isolate/lease.h"
#include "isolate/sandbox.h"
#include "isolate/spawner_client.h"

namespace talon::isolate {

struct SandboxParts {
  Identity identity;
  UniqueFd conn;  // SEQPACKET, non-blocking
  PidFd pidfd;
  UniqueFd event;
  CgroupTree cgroup;
  MountFd files;  // the daemon's clone of the tree; while it is open, init's end unmounts nothing
  std::vector<StepTime> step_times;
  bool paused = false;                   // what init said at adoption
  Limits limits;                         // repeated on every exec's group
  DiskApplied disk;                      // of a sandbox that we have made
  std::string run_dir;                   // <rundir>/<id>
  std::weak_ptr<SpawnerClient> spawner;  // init's parent, unless it was adopted
  std::shared_ptr<LeasePool> leases;
  std::shared_ptr<Closer> closer;
};
std::unique_ptr<Sandbox> make_sandbox(SandboxParts parts);

// <run_dir>/init.sock and the directory; what is not there is no error.
Result<> remove_run_dir(const std::string& run_dir);

// One frame from init: `size` bytes at `data`. An error says what is wrong with it.
Result<Event> decode_event(std::span<const std::byte> bytes);

}  // namespace talon::isolate
