// I9: killing the daemon, or the spawner that is every sandbox's parent, at any moment leaves the
// policy's outcome and nothing in between: sandboxes of `serve` go on in their groups, under the
// same limits and filter, until the next daemon adopts and ends them. (One of `talond run` ends:
// tests/e2e/run_leaves_nothing.)

#include <catch2/catch.hpp>

#include <sstream>

#include "support/daemon.h"
#include "support/machine.h"

using namespace talon::test;

namespace {

// Where a process of the sandbox is, and what it is under.
std::string facts(pid_t pid) {
  const std::string proc = "/proc/" + std::to_string(pid);
  std::istringstream status(machine::read_file(proc + "/status"));
  std::string out = machine::read_file(proc + "/cgroup");
  for (std::string line; std::getline(status, line);) {
    for (const char* name : {"Uid:", "CapBnd:", "CapEff:", "NoNewPrivs:", "Seccomp"}) {
      if (line.starts_with(name)) {
        out += line + "\n";
      }
    }
  }
  return out;
}

void attack(const char* storage, const char* user) {
  INFO(storage << " " << user);
  Daemon daemon;
  const auto id = make_sandbox(daemon.client(), {{"storage", storage}});
  // What a workload would try at that moment: leave parent and session.
  spawn_in(daemon.client(), id,
           {{"command", "(setsid sleep 1000 &); trap '' HUP TERM; sleep 1000"}, {"user", user}});
  REQUIRE(eventually(Seconds(10), [&] { return daemon.processes(id).size() >= 4; }));
  const auto before = daemon.processes(id);
  std::vector<std::string> were;
  for (const pid_t pid : before) {
    were.push_back(facts(pid));
  }
  daemon.kill_hard();
  // The spawner ends when its socket does; init and all below it are adopted by the host's init.
  for (int i = 0; i < 20; ++i) {
    nap(Seconds(0.02));
    CHECK(daemon.processes(id) == before);
  }
  for (std::size_t i = 0; i < before.size(); ++i) {
    CHECK(facts(before[i]) == were[i]);
  }
  daemon.start();
  CHECK(daemon.client().get("/v1/sandboxes/" + id).text("state") == "running");
  CHECK(daemon.client().del("/v1/sandboxes/" + id).status == 204);
  CHECK(daemon.processes("").empty());
  for (const pid_t pid : before) {
    // The host's init, whose child it is now, may take its time to reap it.
    const auto status = machine::read_file("/proc/" + std::to_string(pid) + "/status");
    CHECK((status.empty() || status.find("State:\tZ") != std::string::npos));
  }
}

}  // namespace

TEST_CASE("I9: a daemon killed with -9 leaves no process outside of its sandbox") {
  attack("disk", "root");
  attack("memory", "1000");
}
