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
  CHECK(grown("nr_throttled") > grown("nr_periods") / 2);
  execs.send_signal(px, SIGKILL, wire::Scope::all);
  const wire::ExitInfo info = execs.wait(px);
  CHECK(info.signal == SIGKILL);
  CHECK(info.user_us + info.system_us > 500'000);
  lab.destroy(box);
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
  CHECK(group_value(box, "x/" + one + "/cpu.stat", "usage_usec") > 100'000);
  CHECK(group_value(box, "x/" + two + "/cpu.stat", "usage_usec") > 100'000);
  lab.destroy(box);
}
