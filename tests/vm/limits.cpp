// Which limits stand where, and that they stand there before a program's first instruction.

#include "vm/vm_support.h"

using namespace talon;
using namespace talon::testing;

TEST_CASE("asked-for limits are accepted, enforced, and in the sandbox's group") {
  TALON_NEED_CONTROLLERS("memory", "cpu", "pids");
  VmLab lab;
  const isolate::Limits limits{.memory_bytes = 64 * kMiB, .cpu_cores = 0.5, .pids = 50};
  CHECK(lab.launcher().check_limits(limits));
  Box box = lab.create(lab.spec_with(limits));
  const auto& applied = box->limits();
  CHECK(applied.memory.value == 64 * kMiB);
  CHECK(applied.memory.asked);
  CHECK(applied.memory.enforced);
  CHECK(applied.cpu_millicores.value == 500);
  CHECK(applied.cpu_millicores.enforced);
  CHECK(applied.pids.value == 50);
  CHECK(applied.pids.enforced);
  CHECK(group_file(box, "x/memory.max") == std::to_string(64 * kMiB));
  CHECK(group_file(box, "x/memory.high") == std::to_string(63 * kMiB));  // 1/64 below it
  CHECK(group_file(box, "memory.max") == std::to_string(72 * kMiB));     // init's part beside it
  CHECK(group_file(box, "cpu.weight") == "50");
  CHECK(group_file(box, "memory.swap.max") == "0");
  // Per exec, not per sandbox: a sandbox's other execs live on.
  CHECK(group_file(box, "memory.oom.group") == "0");
  CHECK(group_file(box, "cpu.max") == "50000 100000");
  CHECK(group_file(box, "pids.max") == "50");
  CHECK(group_file(box, "init/memory.min") == std::to_string(4 * kMiB));
  lab.destroy(box);
}

TEST_CASE("LI-06: the default of processes is seen in the exec's own group too") {
  TALON_NEED_CONTROLLERS("pids");
  VmLab lab;
  Box box = lab.create();
  const Ran ran = lab.sh(box, "cat /sys/fs/cgroup$(cut -c4- /proc/self/cgroup)/pids.max");
  CHECK(ran.out == std::to_string(limits::kPidsDefault) + "\n");
  lab.destroy(box);
}

TEST_CASE("without a wish only the default of processes is limited") {
  TALON_NEED_CONTROLLERS("memory", "cpu", "pids");
  VmLab lab;
  Box box = lab.create();
  CHECK_FALSE(box->limits().memory.asked);
  CHECK_FALSE(box->limits().memory.enforced);
  CHECK(box->limits().pids.enforced);
  CHECK(box->limits().pids.value == limits::kPidsDefault);
  CHECK(group_file(box, "memory.max") == "max");
  CHECK(group_file(box, "cpu.max") == "max 100000");
  CHECK(group_file(box, "pids.max") == std::to_string(limits::kPidsDefault));
  lab.destroy(box);
}

TEST_CASE("LI-06: an exec's first look shows its limits in its own group") {
  TALON_NEED_CONTROLLERS("memory", "cpu", "pids");
  VmLab lab;
  Box box = lab.create(lab.spec_with({.memory_bytes = 64 * kMiB, .cpu_cores = 0.5, .pids = 50}));
  const Ran ran = lab.sh(box,
                         "cat /proc/self/cgroup; cd /sys/fs/cgroup$(cut -c4- /proc/self/cgroup); "
                         "cat memory.max memory.oom.group cpu.max pids.max");
  INFO(ran.err);
  CHECK(ran.out.starts_with("0::/x/"));
  CHECK(ran.out.substr(ran.out.find('\n') + 1) ==
        std::to_string(64 * kMiB) + "\n1\n50000 100000\n50\n");
  lab.destroy(box);
}

TEST_CASE("the groups cannot be written from inside, not even one's own") {
  TALON_NEED_CONTROLLERS("memory", "pids");
  VmLab lab;
  Box box = lab.create(lab.spec_with({.memory_bytes = 64 * kMiB, .cpu_cores = {}, .pids = 50}));
  const Ran ran = lab.sh(
      box,
      "cd /sys/fs/cgroup; for f in memory.max x/memory.max pids.max cgroup.procs cgroup.kill "
      "cgroup.freeze init/cgroup.procs x/*/memory.max x/*/pids.max; do "
      "echo 1 2>/dev/null >$f && echo \"wrote $f\"; done; "
      "mkdir x/mine 2>/dev/null && echo made; echo done");
  CHECK(ran.out == "done\n");
  CHECK(group_file(box, "x/memory.max") == std::to_string(64 * kMiB));
  CHECK(group_file(box, "pids.max") == "50");
  lab.destroy(box);
}

TEST_CASE("stats report memory, peak, processes and CPU time") {
  TALON_NEED_CONTROLLERS("memory", "pids");
  VmLab lab;
  Box box = lab.create();
  Execs execs{lab, box};
  const std::string px = execs.start({"/bin/probe", "eat-memory", "20", "600"});
  execs.wait_output(px, "ready");
  const auto stats = box->stats();
  REQUIRE(stats);
  CHECK(stats->memory_bytes.value_or(0) > 20 * kMiB);
  CHECK(stats->memory_peak_bytes.value_or(0) >= *stats->memory_bytes);
  CHECK(stats->pids == 2);  // init and the probe
  CHECK(stats->processes == 1);
  CHECK(stats->cpu_usage_us > 0);
  lab.destroy(box);
}

TEST_CASE("a sandbox that a later daemon adopts has the same limits, its new execs too") {
  TALON_NEED_CONTROLLERS("memory", "cpu", "pids");
  VmLab lab;
  auto spec = lab.spec_with({.memory_bytes = 64 * kMiB, .cpu_cores = 0.5, .pids = 50});
  spec.on_orphan = isolate::OnOrphan::stay;
  Box box = lab.create(spec);
  const isolate::Identity identity = box->identity();
  box.sandbox.reset();
  lab.restart_launcher();
  auto adopted = lab.launcher().adopt(identity);
  REQUIRE(adopted);
  box.sandbox = std::move(*adopted);
  CHECK(box->limits().memory.value == 64 * kMiB);
  CHECK(box->limits().memory.enforced);
  CHECK(box->limits().cpu_millicores.value == 500);
  CHECK(box->limits().cpu_millicores.enforced);
  CHECK(box->limits().pids.value == 50);
  CHECK(box->limits().pids.enforced);
  Execs execs{lab, box};
  const std::string group = execs.group(execs.start({"/bin/sleep", "600"})) + "/";
  CHECK(group_file(box, group + "memory.max") == std::to_string(64 * kMiB));
  CHECK(group_file(box, group + "memory.oom.group") == "1");
  CHECK(group_file(box, group + "cpu.max") == "50000 100000");
  CHECK(group_file(box, group + "pids.max") == "50");
  lab.destroy(box);
}

TEST_CASE("an adopted sandbox without wishes has none afterwards") {
  TALON_NEED_CONTROLLERS("memory", "cpu", "pids");
  VmLab lab;
  auto spec = lab.spec();
  spec.on_orphan = isolate::OnOrphan::stay;
  Box box = lab.create(spec);
  const isolate::Identity identity = box->identity();
  box.sandbox.reset();
  lab.restart_launcher();
  auto adopted = lab.launcher().adopt(identity);
  REQUIRE(adopted);
  box.sandbox = std::move(*adopted);
  CHECK_FALSE(box->limits().memory.enforced);
  CHECK_FALSE(box->limits().cpu_millicores.enforced);
  CHECK(box->limits().pids.value == limits::kPidsDefault);
  Execs execs{lab, box};
  const std::string group = execs.group(execs.start({"/bin/sleep", "600"})) + "/";
  CHECK(group_file(box, group + "memory.max") == "max");
  CHECK(group_file(box, group + "cpu.max") == "max 100000");
  CHECK(group_file(box, group + "pids.max") == std::to_string(limits::kPidsDefault));
  lab.destroy(box);
}
