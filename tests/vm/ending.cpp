// Whatever state a sandbox's groups are in, kill and remove end it and leave nothing.

#include <dirent.h>
#include <signal.h>

#include <fstream>

#include "isolate/cgroup_tree.h"
#include "vm/vm_support.h"

using namespace talon;
using namespace talon::testing;
using namespace std::chrono_literals;

namespace {

std::vector<std::string> groups_of(Lab& lab) {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator{lab.launcher().cgroup_path()}) {
    if (entry.is_directory()) {
      out.push_back(entry.path().filename());
    }
  }
  return out;
}

isolate::Limits all_limits() { return {.memory_bytes = 64 * kMiB, .cpu_cores = 1, .pids = 200}; }

}  // namespace

TEST_CASE("a frozen sandbox is killed and removed without being thawed") {
  TALON_NEED_CONTROLLERS("memory", "cpu", "pids");
  VmLab lab;
  Box box = lab.create(lab.spec_with(all_limits()));
  Execs execs{lab, box};
  execs.start({"/bin/probe", "spin", "600"});
  execs.start({"/bin/sleep", "600"});
  write_group_file(box, "x/cgroup.freeze", "1");
  REQUIRE(eventually([&] { return group_value(box, "x/cgroup.events", "frozen") == 1; }));
  const auto usage = group_value(box, "x/cpu.stat", "usage_usec");
  CHECK(group_value(box, "x/cpu.stat", "usage_usec") == usage);
  lab.destroy(box);
  CHECK(groups_of(lab).empty());
}

TEST_CASE("a sandbox at its memory limit is killed and removed") {
  TALON_NEED_CONTROLLERS("memory", "pids");
  VmLab lab;
  Box box = lab.create(lab.spec_with({.memory_bytes = 32 * kMiB, .cpu_cores = {}, .pids = 200}));
  Execs execs{lab, box};
  // A new hog for each one that is killed.
  execs.start({"/bin/sh", "-c", "sleep 600"});
  for (int i = 0; i < 3; ++i) {
    execs.start({"/bin/probe", "eat-memory", "200", "600"});
  }
  CHECK(eventually([&] { return group_value(box, "memory.events", "oom_kill") > 0; }));
  lab.destroy(box);
  CHECK(groups_of(lab).empty());
}

TEST_CASE("remove right after kill: what is still leaving is waited for") {
  TALON_NEED_CONTROLLERS("memory", "pids");
  VmLab lab;
  for (int round = 0; round < 3; ++round) {
    Box box = lab.create(lab.spec_with({.memory_bytes = {}, .cpu_cores = {}, .pids = 300}));
    Execs execs{lab, box};
    const std::string px = execs.start(
        {"/bin/sh", "-c", "for i in $(seq 150); do probe eat-memory 1 600 & done; wait"});
    REQUIRE(eventually([&] { return std::stol(group_file(box, "pids.current")) > 100; }, 60s));
    // Without the wait for init's end that Sandbox::kill() makes: the groups are busy now.
    const std::string path = box->identity().cgroup;
    auto tree = isolate::CgroupTree::open(path);
    REQUIRE(tree);
    REQUIRE(tree->kill());
    auto removed = tree->remove();
    INFO((removed ? "" : removed.error().message));
    CHECK(removed);
    CHECK_FALSE(std::filesystem::exists(path));
    lab.destroy(box);  // finds it gone
  }
  CHECK(groups_of(lab).empty());
}

TEST_CASE("fifty lives with limits leave no group behind, dying ones included") {
  TALON_NEED_CONTROLLERS("memory", "cpu", "pids");
  VmLab lab;
  const std::string root = lab.launcher().cgroup_path();
  const auto dying = [&] {
    std::ifstream in{root + "/cgroup.stat"};
    const std::string text{std::istreambuf_iterator<char>{in}, {}};
    return value_in(text, "nr_dying_descendants");
  };
  for (int i = 0; i < 50; ++i) {
    Box box = lab.create(lab.spec_with(all_limits()));
    CHECK(lab.run(box, {"/bin/true"}).code == 0);
    const auto files = lab.root_of(box->identity().id);
    lab.destroy(box);
    std::filesystem::remove_all(files);  // page cache of a sandbox's files keeps its group dying
  }
  CHECK(groups_of(lab).empty());
  WARN("observed: dying groups after 50 lives: " << dying());
}

TEST_CASE("the mount hands out delegation by namespace, and execs are cloned into it") {
  TALON_NEED_CONTROLLERS("memory", "pids");
  std::ifstream in{"/proc/self/mountinfo"};
  const std::string mounts{std::istreambuf_iterator<char>{in}, {}};
  if (mounts.find("nsdelegate") == std::string::npos) {
    WARN("SKIP: cgroup2 is not mounted with nsdelegate");
    return;
  }
  VmLab lab;
  Box box = lab.create();
  Execs execs{lab, box};
  const std::string px = execs.start({"/bin/sleep", "600"});
  CHECK(group_file(box, execs.group(px) + "/cgroup.procs").find('\n') == std::string::npos);
  CHECK_FALSE(group_file(box, execs.group(px) + "/cgroup.procs").empty());
  CHECK(group_file(box, "init/cgroup.procs") == std::to_string(box->identity().host_pid));
  CHECK(group_file(box, "cgroup.procs").empty());
  CHECK(group_file(box, "x/cgroup.procs").empty());
  CHECK(lab.run(box, {"/bin/cat", "/proc/1/cgroup"}).out == "0::/init\n");
  lab.destroy(box);
}
