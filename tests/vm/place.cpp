// Where the groups are made (decision 14), on cgroup trees that only root of a whole machine can
// put up: a group delegated by systemd or a container runtime, seen as the root of a namespace.

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "isolate/cgroup_tree.h"
#include "support/machine.h"
#include "vm/vm_support.h"

using namespace talon;
using namespace talon::testing;

namespace {

constexpr const char* kGroup = "/sys/fs/cgroup/delegated";

// In a child: a throw-away mount and cgroup namespace whose root is kGroup. Prints what went wrong.
int in_delegated_group(const std::function<std::string()>& act) {
  const pid_t child = fork();
  if (child == 0) {
    std::string problem = "enter the group";
    try {
      std::ofstream{std::string{kGroup} + "/cgroup.procs"} << getpid() << std::flush;
      if (unshare(CLONE_NEWCGROUP | CLONE_NEWNS) == 0 &&
          mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
          umount2("/sys/fs/cgroup", MNT_DETACH) == 0 &&
          mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, nullptr) == 0) {
        problem = act();
      }
    } catch (const std::exception& error) {
      problem = error.what();
    }
    if (!problem.empty()) {
      std::fprintf(stderr, "%s\n", problem.c_str());
    }
    _exit(problem.empty() ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

}  // namespace

TEST_CASE("a delegated group: talon moves aside, and its sandboxes have enforced limits") {
  TALON_NEED_CONTROLLERS("memory", "cpu", "pids");
  REQUIRE(mkdir(kGroup, 0755) == 0);
  const int status = in_delegated_group([]() -> std::string {
    VmLab lab;
    const std::string place = lab.launcher().cgroup_path();
    if (!place.starts_with("/sys/fs/cgroup/sandboxes/talon-")) {
      return "groups are in " + place;
    }
    if (test::machine::read_file("/proc/self/cgroup") != "0::/daemon\n") {
      return "talon is in " + test::machine::read_file("/proc/self/cgroup");
    }
    Box box = lab.create(lab.spec_with({.memory_bytes = 32 * kMiB, .cpu_cores = 0.5, .pids = 50}));
    if (!box->limits().memory.enforced || group_file(box, "pids.max") != "50") {
      return "limits are not enforced";
    }
    Execs execs{lab, box};
    const wire::ExitInfo info = execs.wait(execs.start({"/bin/probe", "eat-memory", "100"}));
    if ((info.flags & wire::kOom) == 0) {
      return "the hog was not killed for its memory";
    }
    lab.destroy(box);
    return "";
  });
  CHECK(status == 0);
  CHECK(test::machine::end_group(kGroup));
}
