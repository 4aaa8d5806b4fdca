// CPU: judged by the kernel's own counters; the wall clock of a virtual machine proves nothing.

#include <signal.h>

#include "vm/vm_support.h"

using namespace talon;
using namespace talon::testing;

TEST_CASE("LI-02: half a core is kept over twenty periods") {
  TALON_NEED_CONTROLLERS("cpu");
  VmLab lab;
  Box box = lab.create(lab.spec_with({.memory_bytes = {}, .cpu_cores = 0.5, .pids = {}}));
  Execs execs{lab, box};
  const std::string px = execs.start({"/bin/probe", "spin", "600"});
  const auto begin = group_file(box, "cpu.stat");
  // 2 s of bandwidth periods; they are counted only while something runs.
  REQUIRE(eventually([&] {
    return group_value(box, "cpu.stat", "nr_periods") >= value_in(begin, "nr_periods") + 20;
  }));
  const auto end = group_file(box, "cpu.stat");
  const auto grown = [&](const char* key) { return value_in(end, key) - value_in(begin, key); };
  const double share = static_cast<double>(grown("usage_usec")) /
                       (static_cast<double>(grown("nr_periods")) * 100'000.0);
  WARN("observed: 0.5 cores: used " << share << ", throttled in " << grown("nr_throttled") << " of "
                                    << grown("nr_periods") << " periods");
  CHECK(share < 0.6);
  CHECK(share > 0.1);
  CHECK(grown("nr_throttled") >= 1);  // how often, the host of the VM decides too
  execs.send_signal(px, SIGKILL, wire::Scope::all);
  const wire::ExitInfo info = execs.wait(px);
  CHECK(info.signal == SIGKILL);
  CHECK(info.user_us + info.system_us > 500'000);
  CHECK(info.throttled >= 1);
  CHECK(info.throttled_us > 0);
  // Use is per run: what comes next in the same sandbox has none of it.
  const wire::ExitInfo next = execs.wait(execs.start({"/bin/true"}));
  CHECK(next.user_us + next.system_us < 400'000);
  CHECK(next.throttled < info.throttled);
  lab.destroy(box);
}

TEST_CASE("CPU time is that of the whole group: a child that nobody waits for counts") {
  TALON_NEED_CONTROLLERS("cpu");
  VmLab lab;
  Box box = lab.create();
  Execs execs{lab, box};
  // The shell itself waits on a pipe; its orphan's work is in no rusage of it.
  const wire::ExitInfo info = execs.wait(
      execs.start({"/bin/sh", "-c",
                   "mkfifo /tmp/p; (sh -c 'probe spin 2; echo >/tmp/p' &) ; read line </tmp/p"}));
  CHECK(info.code == 0);
  CHECK(info.user_us + info.system_us > 800'000);
  lab.destroy(box);
}

TEST_CASE("two sandboxes that want all of the CPU share it by their quotas") {
  TALON_NEED_CONTROLLERS("cpu");
  VmLab lab;
  Box small = lab.create(lab.spec_with({.cpu_cores = 1}));
  Box large = lab.create(lab.spec_with({.cpu_cores = 4}));
  CHECK(group_file(small, "cpu.weight") == "100");
  CHECK(group_file(large, "cpu.weight") == "400");
  Execs one{lab, small};
  Execs four{lab, large};
  one.start({"/bin/probe", "spin", "600"});
  four.start({"/bin/probe", "spin", "600"});
  const auto used = [](const Box& box) { return group_value(box, "cpu.stat", "usage_usec"); };
  const auto small_before = used(small);
  const auto large_before = used(large);
  REQUIRE(eventually(
      [&] { return used(small) + used(large) > small_before + large_before + 3'000'000; },
      std::chrono::seconds{60}));
  const double ratio = static_cast<double>(used(large) - large_before) /
                       static_cast<double>(used(small) - small_before);
  WARN("observed: quotas of 1 and 4 cores on one: used 1 to " << ratio);
  CHECK(ratio > 2);  // 4, less what the scheduler's granularity takes; without weights it is 1
  lab.destroy(small);
  lab.destroy(large);
}

TEST_CASE("two execs share the sandbox's quota; each has it as its own limit") {
  TALON_NEED_CONTROLLERS("cpu");
  VmLab lab;
  Box box = lab.create(lab.spec_with({.memory_bytes = {}, .cpu_cores = 0.5, .pids = {}}));
  Execs execs{lab, box};
  const std::string one = execs.start({"/bin/probe", "spin", "600"});
  const std::string two = execs.start({"/bin/probe", "spin", "600"});
  const auto begin = group_file(box, "cpu.stat");
  REQUIRE(eventually([&] {
    return group_value(box, "cpu.stat", "nr_periods") >= value_in(begin, "nr_periods") + 20;
  }));
  const auto end = group_file(box, "cpu.stat");
  const double share =
      static_cast<double>(value_in(end, "usage_usec") - value_in(begin, "usage_usec")) /
      (static_cast<double>(value_in(end, "nr_periods") - value_in(begin, "nr_periods")) * 1e5);
  CHECK(share < 0.6);
  CHECK(group_value(box, execs.group(one) + "/cpu.stat", "usage_usec") > 100'000);
  CHECK(group_value(box, execs.group(two) + "/cpu.stat", "usage_usec") > 100'000);
  lab.destroy(box);
}
