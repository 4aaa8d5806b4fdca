// What a sandbox that was made ahead has fixed, by how far it is made.

#include <catch2/catch.hpp>

#include <functional>
#include <string>
#include <vector>

#include "isolate/launch.h"

using namespace talon::isolate;

TEST_CASE("id and limits never matter, the rest as far as it is made") {
  struct Change {
    std::string what;
    std::function<void(SandboxSpec&)> make;
    bool tree;
    bool warm;
  };
  const std::vector<Change> changes = {
      {"id", [](auto& s) { s.id = "sb2"; }, true, true},
      {"memory", [](auto& s) { s.limits.memory_bytes = 1 << 26; }, true, true},
      {"pids", [](auto& s) { s.limits.pids = 7; }, true, true},
      {"hostname", [](auto& s) { s.hostname = "other"; }, true, false},
      {"proc", [](auto& s) { s.proc = ProcMode::pid_only; }, true, false},
      {"on_orphan", [](auto& s) { s.on_orphan = OnOrphan::die; }, true, false},
      {"cwd", [](auto& s) { s.default_cwd = "/"; }, true, false},
      {"files", [](auto& s) { s.open_files = 9; }, true, false},
      {"compat32", [](auto& s) { s.compat32 = true; }, true, false},
      {"unconfined", [](auto& s) { s.unconfined_seccomp = true; }, true, false},
      {"pivot", [](auto& s) { s.pivot_root = true; }, true, false},
      {"storage", [](auto& s) { s.storage = Storage::memory; }, false, false},
      {"shm", [](auto& s) { s.shm_bytes += 4096; }, false, false},
      {"upper", [](auto& s) { s.memory_root_bytes += 4096; }, false, false},
  };
  for (const Change& change : changes) {
    INFO(change.what);
    SandboxSpec spec;
    spec.id = "sb1";
    SandboxSpec other = spec;
    change.make(other);
    CHECK(same_shape(Ahead::parts, spec, other));
    CHECK(same_shape(Ahead::tree, spec, other) == change.tree);
    CHECK(same_shape(Ahead::warm, spec, other) == change.warm);
  }
}
