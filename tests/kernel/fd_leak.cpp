// F1, F9, N8: what PID 1 holds, what execs see, and what a hundred lives leave behind.

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <set>

#include "isolate/wire/plan_format.h"
#include "kernel/init_support.h"
#include "kernel/sandbox_support.h"

using namespace talon;
using namespace talon::testing;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

std::map<int, std::string> descriptors(pid_t pid) {
  std::map<int, std::string> out;
  for (const auto& entry : fs::directory_iterator{"/proc/" + std::to_string(pid) + "/fd"}) {
    out[std::stoi(entry.path().filename())] = fs::read_symlink(entry.path());
  }
  return out;
}

std::size_t groups_in(const std::string& path) {
  std::size_t count = 0;
  for (const auto& entry : fs::directory_iterator{path}) {
    count += entry.is_directory() ? 1 : 0;
  }
  return count;
}

}  // namespace

TEST_CASE("F1: PID 1 holds exactly its slots, null devices and its own event machinery") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  Box box = lab.create();
  REQUIRE(lab.run(box, {"/bin/true"}).code == 0);
  // Until then its log is open.
  REQUIRE(std::holds_alternative<isolate::event::Ended>(box->wait_event(10s).value()));
  // What the exec had is closed, and what the next one needs is there.
  const auto pipes = [&box] {
    std::map<std::string, int> ends;
    for (const auto& [fd, to] : descriptors(box->identity().host_pid)) {
      ends[to] += to.starts_with("pipe:[") ? 1 : 0;
    }
    std::erase_if(ends, [](const auto& end) { return end.second == 0; });
    return ends;
  };
  CHECK(test::InitBox::eventually([&] {
    const auto ends = pipes();  // three that nobody else holds
    return ends.size() == 3 &&
           std::ranges::all_of(ends, [](const auto& end) { return end.second == 2; });
  }));
  std::set<int> slots;
  int spares = 0;
  int groups = 0;
  for (const auto& [fd, to] : descriptors(box->identity().host_pid)) {
    INFO(fd << " -> " << to);
    if (fd < 3) {
      CHECK(to == "/dev/null");
    } else if (fd >= wire::kFdBase && fd < wire::kFdBase + 8) {
      slots.insert(fd - wire::kFdBase);
    } else if (to.starts_with("pipe:[")) {
      continue;
    } else if (to.find("/.spare") != std::string::npos) {
      ++spares;
    } else if (to.find_first_not_of("0123456789", to.rfind('/') + 1) == std::string::npos) {
      ++groups;
    } else {
      CHECK((to.starts_with("anon_inode:[eventpoll]") || to.starts_with("anon_inode:[signalfd]") ||
             to.starts_with("anon_inode:[timerfd]")));
    }
  }
  CHECK(slots == std::set<int>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(spares <= 1);
  CHECK(groups == 1);
  lab.destroy(box);
}

TEST_CASE("F9: `..` of a directory that init holds leads nowhere") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  Box box = lab.create();
  const std::string fds = "/proc/" + std::to_string(box->identity().host_pid) + "/fd/";
  for (const auto slot : {wire::Slot::logs, wire::Slot::execs, wire::Slot::files}) {
    const std::string path = fds + std::to_string(wire::kFdBase + static_cast<int>(slot));
    struct stat self{};
    struct stat up{};
    REQUIRE(stat((path + "/.").c_str(), &self) == 0);
    REQUIRE(stat((path + "/..").c_str(), &up) == 0);
    CHECK(self.st_ino == up.st_ino);
    CHECK(self.st_dev == up.st_dev);
  }
  // The tree for files has neither proc, sys nor dev (decision 31).
  const std::string files =
      fds + std::to_string(wire::kFdBase + static_cast<int>(wire::Slot::files));
  CHECK(fs::exists(files + "/etc/marker"));
  for (const char* name : {"/proc", "/sys", "/dev"}) {
    CHECK(fs::is_empty(files + name));
  }
  lab.destroy(box);
}

TEST_CASE("F1: an exec sees 0 to 2 only") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  Box box = lab.create();
  // ls itself opens the directory it lists.
  CHECK(lab.run(box, {"/bin/ls", "/proc/self/fd"}).out == "0\n1\n2\n3\n");
  lab.destroy(box);
}

TEST_CASE("N8: a hundred lives leave descriptors, mounts, groups and leases as they were") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  const auto life = [&lab](bool killed_running) {
    const auto spec = lab.spec();
    Box box = lab.create(spec);
    if (killed_running) {
      isolate::ExecSpec exec;
      exec.id = "px1";
      exec.argv = {"/bin/sh", "-c", "sleep 100 & sleep 100"};
      REQUIRE(box->exec(exec).has_value());
      REQUIRE(std::holds_alternative<isolate::event::Started>(box->wait_event(10s).value()));
    } else {
      REQUIRE(lab.run(box, {"/bin/true"}).code == 0);
    }
    lab.destroy(box);
    fs::remove_all(lab.root_of(spec.id));
  };
  life(false);
  lab.launcher().drain();
  const std::size_t fds = count_own_fds();
  const std::size_t mounts = count_own_mounts();
  const std::size_t groups = groups_in(lab.launcher().cgroup_path());
  for (int i = 0; i < 100; ++i) {
    life(i % 10 == 0);
  }
  lab.launcher().drain();
  CHECK(count_own_fds() == fds);
  CHECK(count_own_mounts() == mounts);
  CHECK(groups_in(lab.launcher().cgroup_path()) == groups);
  CHECK(fs::is_empty(lab.dir() / "run"));
  CHECK(lab.launcher().counters().spawner_starts == 1);
  CHECK(lab.launcher().counters().failed == 0);
}

TEST_CASE("a stopped, forked and daemonised workload ends with its sandbox") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  Box box = lab.create();
  isolate::ExecSpec exec;
  exec.id = "px1";
  exec.argv = {"/bin/sh", "-c",
               "(sleep 1000 & sleep 1000 &) ; (sleep 1000 & kill -STOP $!) ; kill -STOP $$"};
  REQUIRE(box->exec(exec).has_value());
  REQUIRE(std::holds_alternative<isolate::event::Started>(box->wait_event(10s).value()));
  const std::string group = box->identity().cgroup;
  lab.destroy(box);
  CHECK_FALSE(fs::exists(group));
}
