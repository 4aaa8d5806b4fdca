// N3: whatever forks, detaches itself or storms, no process of the sandbox is ever outside of its
// group, and an exec is in its own group at its first instruction. That the group's limits then
// hold, a fork bomb's too: tests/vm/pids.

#include <chrono>

#include "security/attack.h"

using namespace talon;
using namespace talon::testing;
using namespace std::chrono_literals;

namespace {

isolate::ExecSpec storm(const Field& field) {
  isolate::ExecSpec exec;
  exec.id = "pxstorm";
  exec.user = field.column.user;
  // Orphans, daemons in sessions of their own, and children of children.
  exec.argv = {"/bin/sh", "-c",
               "i=0; while [ $i -lt 60 ]; do (/bin/true & (/bin/true &) &); "
               "probe double-fork 1 > /dev/null; i=$((i+1)); done"};
  isolate::add_default_env(exec.env);
  return exec;
}

}  // namespace

TEST_CASE("N3: no process of a sandbox is ever outside of its cgroup") {
  TALON_NEED_SANDBOXES();
  in_every_column([](Field& field) {
    Box box = field.create();
    const std::string group = "/" + box->identity().id + "/";
    const pid_t init = box->identity().host_pid;
    CHECK(field.run(box, {"/bin/cat", "/proc/self/cgroup"}).out.find("0::/x/") !=
          std::string::npos);
    REQUIRE(box->exec(storm(field)).has_value());
    std::size_t seen = 0;
    std::size_t most = 0;
    std::string of_exec;
    for (bool over = false; !over;) {
      const auto pids = inhabitants(init);
      for (const pid_t pid : pids) {
        const std::string text = read_text("/proc/" + std::to_string(pid) + "/cgroup");
        const auto at = text.find("0::");
        // A process that has just ended shows nothing, or the root.
        if (at == std::string::npos || text.find("(deleted)") != std::string::npos) {
          continue;
        }
        const std::string line = text.substr(at, text.find('\n', at) - at);
        if (line == "0::/" && !std::filesystem::exists("/proc/" + std::to_string(pid) + "/exe")) {
          continue;
        }
        ++seen;
        INFO(pid << ": " << line);
        REQUIRE(line.find(group) != std::string::npos);
        // Of the one exec that runs, all in the same group.
        if (pid == init) {
          REQUIRE(line.ends_with(group + "init"));
        } else {
          REQUIRE(line.find(group + "x/") != std::string::npos);
          REQUIRE((of_exec.empty() || line == of_exec));
          of_exec = line;
        }
      }
      most = std::max(most, pids.size());
      auto event = box->receive();
      REQUIRE(event.has_value());
      over = *event && std::holds_alternative<isolate::event::Exited>(**event);
    }
    CHECK(seen > 100);
    CHECK(most > 10);
    field.lab.destroy(box);
    CHECK(inhabitants(init).empty());
  });
}
