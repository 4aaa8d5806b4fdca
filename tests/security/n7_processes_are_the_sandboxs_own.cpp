// N7: no process of the host or of a neighbour is seen or can be signalled, orphans are reaped, and
// pid 1's death is everyone's.

#include <poll.h>
#include <signal.h>

#include <thread>

#include "security/attack.h"

using namespace talon;
using namespace talon::testing;
using namespace std::chrono_literals;

TEST_CASE("N7: only own processes are there, and orphans do not stay as zombies") {
  TALON_NEED_SANDBOXES();
  from_every_side([](Attacker& a) {
    // Init, the shell, and at most a reaped exec that is still leaving.
    const std::string pids = a.sh("cd /proc; echo [0-9]*").out;
    CHECK(pids.starts_with("1 "));
    CHECK(std::ranges::count(pids, ' ') <= 3);
    for (const std::string& pid :
         {std::to_string(getpid()), std::to_string(a.box->identity().host_pid)}) {
      CHECK(a.attempt({"kill", pid}) == "ESRCH");
      CHECK(a.look({"status", pid})["name"] == "ENOENT");
    }
    CHECK(a.sh("i=0; while [ $i -lt 100 ]; do (/bin/true &); i=$((i+1)); done").code == 0);
    const pid_t init = a.box->identity().host_pid;
    std::size_t left = 0;
    for (int i = 0; i < 500; ++i) {
      left = inhabitants(init).size();
      if (left == 1) {
        break;
      }
      std::this_thread::sleep_for(10ms);
    }
    CHECK(left == 1);
  });
}

TEST_CASE("N7: when pid 1 dies nothing of the sandbox is left") {
  TALON_NEED_SANDBOXES();
  in_every_column([](Field& field) {
    Box box = field.create();
    isolate::ExecSpec stays;
    stays.id = "pxstays";
    stays.user = field.column.user;
    stays.argv = {
        "/bin/sh", "-c",
        "trap '' TERM INT HUP; probe double-fork 1000 & probe stubborn 1000 & kill -STOP $$"};
    isolate::add_default_env(stays.env);
    REQUIRE(box->exec(stays).has_value());
    const pid_t init = box->identity().host_pid;
    for (int i = 0; i < 500 && inhabitants(init).size() < 4; ++i) {
      std::this_thread::sleep_for(10ms);
    }
    CHECK(inhabitants(init).size() >= 4);
    REQUIRE(kill(init, SIGKILL) == 0);
    pollfd wait{box->pid_fd(), POLLIN, 0};
    CHECK(poll(&wait, 1, 10'000) == 1);
    // The kernel reports pid 1's end after everybody else's (pid_namespaces(7)).
    CHECK(read_text(box->identity().cgroup + "/cgroup.events").find("populated 0") !=
          std::string::npos);
    field.lab.destroy(box);
  });
}
