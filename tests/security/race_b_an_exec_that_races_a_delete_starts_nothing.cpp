// Races b and e: execs are asked for while the sandbox is deleted. Each lands in the group before
// cgroup.kill or is refused; nothing lives afterwards, and the group can be removed at once
// although its last process has only just left it.

#include <thread>

#include "security/attack.h"

using namespace talon;
using namespace talon::testing;

TEST_CASE("race b, e: execs that race a delete leave no process and no group") {
  TALON_NEED_SANDBOXES();
  in_every_column([](Field& field) {
    for (int round = 0; round < 12; ++round) {
      Box box = field.create();
      const pid_t init = box->identity().host_pid;
      const std::string group = box->identity().cgroup;
      for (int i = 0; i < 20; ++i) {
        isolate::ExecSpec exec;
        exec.id = "px" + std::to_string(round) + "n" + std::to_string(i);
        exec.argv = {"/bin/sh", "-c", "(sleep 1000 &) ; sleep 1000"};
        exec.user = field.column.user;
        REQUIRE(box->exec(exec).has_value());
      }
      // Somewhere in the middle of the twenty, each round elsewhere.
      std::this_thread::sleep_for(std::chrono::microseconds{round * 700});
      field.lab.destroy(box);
      CHECK(inhabitants(init).empty());
      CHECK_FALSE(std::filesystem::exists(group));
    }
  });
}
