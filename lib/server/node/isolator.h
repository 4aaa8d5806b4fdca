#pragma once
// The seam between the server and whatever isolates: one implementation a tier, registered only
// after its self-test. Everything here blocks for as long as the kernel takes, so the node calls
// it through Offload; implementations are thread-safe.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "isolate/host.h"
#include "isolate/launch.h"
#include "isolate/sandbox.h"
#include "isolate/spec.h"
#include "server/node/types.h"

namespace talon::server::node {

// What isolate is asked for, from what a caller asked for: create and `talond plan` use this one,
// so that the plan that is printed is the plan that is run.
isolate::SandboxSpec sandbox_spec(const SandboxWish& wish, std::string id, bool unconfined_seccomp);

class Isolator {
 public:
  virtual ~Isolator() = default;

  // The tier as on the wire: "namespace".
  virtual std::string_view tier() const = 0;
  virtual const isolate::HostFacts& host() const = 0;
  // Where the sandboxes' groups are, "" = no cgroup.
  virtual std::string cgroup_path() const = 0;
  // unenforceable for an asked-for limit that this host cannot hold.
  virtual Result<> check_limits(const isolate::Limits& limits) const = 0;
  // The same for the sizes of root changes and workspace; the error names the field.
  virtual Result<> check_sizes(const isolate::SandboxSpec&) const { return {}; }
  // All or nothing; the error names the step.
  virtual Result<std::unique_ptr<isolate::Sandbox>> create(const isolate::SandboxSpec& spec,
                                                           const isolate::SandboxDirs& dirs) = 0;
  // A sandbox of an earlier daemon, if its process is provably the one of the row.
  virtual Result<std::unique_ptr<isolate::Sandbox>> adopt(const isolate::Identity& identity) = 0;
  // Ends and removes everything of this instance that `keep` does not name; one line each.
  virtual std::vector<std::string> sweep(const std::vector<std::string>& keep) = 0;
  virtual isolate::Launcher::Counters counters() const = 0;
  // What makes sandboxes ahead for pools; null: this tier has none.
  virtual isolate::Launcher* launcher() { return nullptr; }
};

// Shared-kernel isolation by namespaces, cgroups and seccomp.
std::unique_ptr<Isolator> make_namespace_isolator(std::unique_ptr<isolate::Launcher> launcher);

}  // namespace talon::server::node
