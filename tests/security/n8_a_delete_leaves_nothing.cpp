// N8: whatever runs inside (daemons that left their parent and session, processes that stopped
// themselves or each other, tracees, a frozen group), a delete ends it all and leaves no process,
// no group, no mount, no directory and no descriptor.

#include <fstream>
#include <thread>

#include "security/attack.h"

using namespace talon;
using namespace talon::testing;
using namespace std::chrono_literals;

namespace {

constexpr const char* kNasty[] = {
    "probe double-fork 1000; sleep 1000",
    "trap '' TERM INT HUP QUIT; (sleep 1000 &) ; kill -STOP $$",
    "probe traceme-stop",
    "cd /tmp; exec 7> kept; rm kept; (cd /proc/self; sleep 1000) & exec probe stubborn 1000",
    "while :; do (sleep 1000 &); sleep 0.01; done",
    "exec probe kill-stop-loop 1000",  // the last: it stops the others
};

void start(Field& field, Box& box, int number, const char* text) {
  isolate::ExecSpec exec;
  exec.id = "pxnasty" + std::to_string(number);
  exec.user = field.column.user;
  exec.argv = {"/bin/sh", "-c", text};
  isolate::add_default_env(exec.env);
  REQUIRE(box->exec(exec).has_value());
}

}  // namespace

TEST_CASE("N8: a delete leaves nothing, whatever ran") {
  TALON_NEED_SANDBOXES();
  in_every_column([](Field& field) {
    Lab& lab = field.lab;
    {  // what a launcher keeps once and for all
      Box first = field.create();
      lab.destroy(first);
    }
    lab.launcher().drain();
    const std::size_t fds = count_own_fds();
    const std::size_t mounts = count_own_mounts();
    for (const bool frozen : {false, true}) {
      Box box = field.create();
      const std::string group = box->identity().cgroup;
      const std::string id = box->identity().id;
      const pid_t init = box->identity().host_pid;
      const int last = static_cast<int>(std::size(kNasty)) - 1;
      for (int i = 0; i < last; ++i) {
        start(field, box, i, kNasty[i]);
      }
      for (int i = 0; i < 1000 && inhabitants(init).size() < 8; ++i) {
        std::this_thread::sleep_for(10ms);
      }
      CHECK(inhabitants(init).size() >= 8);
      start(field, box, last, kNasty[last]);
      if (frozen) {
        std::ofstream{group + "/x/cgroup.freeze"} << "1";
      }
      lab.destroy(box);
      CHECK(inhabitants(init).empty());
      CHECK_FALSE(std::filesystem::exists(group));
      CHECK_FALSE(std::filesystem::exists(lab.dir() / "run" / id));
    }
    lab.launcher().drain();
    CHECK(count_own_fds() == fds);
    CHECK(count_own_mounts() == mounts);
  });
}
