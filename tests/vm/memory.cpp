// Memory: a limit kills what passes it, and the right exec is told.

#include <signal.h>
#include <sys/wait.h>

#include "vm/vm_support.h"

using namespace talon;
using namespace talon::testing;

namespace {

bool oom(const wire::ExitInfo& info) { return (info.flags & wire::kOom) != 0; }

}  // namespace

TEST_CASE("LI-01: a hog is killed at 64 MiB; its exec is out of memory, its neighbour is not") {
  TALON_NEED_CONTROLLERS("memory");
  VmLab lab;
  Box box = lab.create(lab.spec_with({.memory_bytes = 64 * kMiB, .cpu_cores = {}, .pids = {}}));
  Execs execs{lab, box};
  const std::string neighbour = execs.start({"/bin/probe", "eat-memory", "4", "600"});
  execs.wait_output(neighbour, "ready");
  const std::string hog = execs.start({"/bin/probe", "eat-memory", "200", "600"});
  const wire::ExitInfo killed = execs.wait(hog);
  CHECK(killed.signal == SIGKILL);
  CHECK(killed.code == -1);
  CHECK(oom(killed));
  CHECK(killed.peak_bytes <= 64 * kMiB);
  CHECK(killed.peak_bytes > 48 * kMiB);
  CHECK(std::string{killed.biggest_name} == "probe");
  CHECK(killed.biggest_bytes > 48 * kMiB);
  WARN("observed: 64 MiB: killed at " << killed.peak_bytes / 1024 << " KiB");
  execs.pump();
  CHECK_FALSE(execs.ended(neighbour));
  CHECK(lab.run(box, {"/bin/echo", "alive"}).out == "alive\n");
  CHECK(group_value(box, execs.group(neighbour) + "/memory.events", "oom_kill") == 0);
  execs.send_signal(neighbour, SIGTERM, wire::Scope::process);
  const wire::ExitInfo other = execs.wait(neighbour);
  CHECK(other.signal == SIGTERM);
  CHECK_FALSE(oom(other));
  CHECK(other.peak_bytes > 4 * kMiB);
  CHECK(other.peak_bytes < 32 * kMiB);
  CHECK(group_value(box, "memory.events", "oom_group_kill") == 1);
  lab.destroy(box);
}

TEST_CASE("LI-01: a shell whose child takes too much: the child is the one to blame") {
  TALON_NEED_CONTROLLERS("memory");
  VmLab lab;
  Box box = lab.create(lab.spec_with({.memory_bytes = 64 * kMiB}));
  Execs execs{lab, box};
  // Beside it something smaller of another name, whose output goes nowhere.
  const wire::ExitInfo killed = execs.wait(execs.start(
      {"/bin/sh", "-c", "sleep 600 >/dev/null 2>&1 & probe eat-memory 200 >/dev/null; echo on"}));
  CHECK(killed.signal == SIGKILL);
  CHECK(oom(killed));
  CHECK(std::string{killed.biggest_name} == "probe");
  CHECK(killed.biggest_bytes > 40 * kMiB);
  CHECK(killed.biggest_bytes < 72 * kMiB);  // with the pages of its program, which are nobody's
  WARN("observed: 64 MiB: the biggest was " << killed.biggest_name << " with "
                                            << killed.biggest_bytes / 1024 << " KiB");
  lab.destroy(box);
}

TEST_CASE("memory.high: page cache gives way before anything is killed") {
  TALON_NEED_CONTROLLERS("memory");
  VmLab lab;
  Box box = lab.create(lab.spec_with({.memory_bytes = 32 * kMiB}));
  // Four times the limit through the page cache.
  const Ran ran = lab.sh(box,
                         "dd if=/dev/zero of=/workspace/f bs=1M count=128 2>/dev/null && "
                         "cat /workspace/f >/dev/null && echo whole");
  CHECK(ran.out == "whole\n");
  CHECK(group_value(box, "x/memory.events", "high") > 0);
  CHECK(group_value(box, "memory.events", "oom_kill") == 0);
  WARN("observed: soft pressure: " << group_value(box, "x/memory.events", "high")
                                   << " times at 31.5 of 32 MiB, none killed");
  lab.destroy(box);
}

TEST_CASE("an init that is killed says so: by whom, and by what") {
  TALON_NEED_CONTROLLERS("memory");
  VmLab lab;
  Box box = lab.create(lab.spec_with({.memory_bytes = 32 * kMiB}));
  CHECK_FALSE(box->init_status());
  // Nothing inside can do this; the limit of init's own group can.
  write_group_file(box, "init/memory.min", "0");
  write_group_file(box, "init/memory.max", "0");
  isolate::ExecSpec big;
  big.id = "pxbig";
  big.argv = {"/bin/true"};
  big.env = {{"LONG", std::string(100'000, 'x')}};
  static_cast<void>(box->exec(big));
  CHECK(eventually([&] { return box->init_status().has_value(); }));
  const int status = box->init_status().value_or(0);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGKILL);
  const auto stats = box->stats();
  REQUIRE(stats);
  CHECK(stats->init_oom_kills == 1);
  lab.destroy(box);
}

TEST_CASE("an exec's own smaller limit ends all of that exec, and nothing else") {
  TALON_NEED_CONTROLLERS("memory");
  VmLab lab;
  Box box = lab.create(lab.spec_with({.memory_bytes = 256 * kMiB, .cpu_cores = {}, .pids = {}}));
  Execs execs{lab, box};
  isolate::ExecSpec spec;
  // The shell survives its child's death unless the group is killed as one.
  spec.argv = {"/bin/sh", "-c", "sleep 600 & probe eat-memory 100; echo went on; wait"};
  spec.limits.memory_bytes = 32 * kMiB;
  const std::string px = execs.start_spec(spec);
  const wire::ExitInfo killed = execs.wait(px);
  CHECK(killed.signal == SIGKILL);
  CHECK(oom(killed));
  CHECK(killed.peak_bytes <= 32 * kMiB);
  CHECK(execs.output(px) == "");
  CHECK(eventually([&] { return group_file(box, execs.group(px) + "/cgroup.procs").empty(); }));
  CHECK(lab.run(box, {"/bin/probe", "eat-memory", "100"}).code == 0);
  lab.destroy(box);
}

TEST_CASE("a swarm of small processes that fills the memory does not end init") {
  TALON_NEED_CONTROLLERS("memory");
  VmLab lab;
  Box box = lab.create(lab.spec_with({.memory_bytes = 24 * kMiB, .cpu_cores = {}, .pids = {}}));
  Execs execs{lab, box};
  // Init at its biggest: long requests, users looked up, much output read.
  isolate::ExecSpec big;
  big.argv = {"/bin/probe", "output", "4000000"};
  big.env = {{"LONG", std::string(100'000, 'x')}};
  big.user = "user";
  for (int i = 0; i < 8; ++i) {
    CHECK(lab.run(box, big).code == 0);
  }
  const std::string px = execs.start({"/bin/sh", "-c", "while :; do sleep 600 & done"});
  const wire::ExitInfo killed = execs.wait(px);
  CHECK(killed.signal == SIGKILL);
  CHECK(oom(killed));
  CHECK(lab.run(box, {"/bin/echo", "alive"}).out == "alive\n");
  lab.destroy(box);
}

TEST_CASE("an exec that fits is not out of memory, and its peak is reported") {
  TALON_NEED_CONTROLLERS("memory");
  VmLab lab;
  Box box = lab.create(lab.spec_with({.memory_bytes = 64 * kMiB, .cpu_cores = {}, .pids = {}}));
  Execs execs{lab, box};
  const wire::ExitInfo info = execs.wait(execs.start({"/bin/probe", "eat-memory", "40"}));
  CHECK(info.code == 0);
  CHECK_FALSE(oom(info));
  CHECK(info.peak_bytes > 40 * kMiB);
  CHECK(info.peak_bytes < 60 * kMiB);
  lab.destroy(box);
}

TEST_CASE("BR-01: /dev/shm has its size and is charged to the sandbox") {
  TALON_NEED_CONTROLLERS("memory");
  VmLab lab;
  auto spec = lab.spec_with({.memory_bytes = 64 * kMiB, .cpu_cores = {}, .pids = {}});
  spec.shm_bytes = 16 * kMiB;
  Box box = lab.create(spec);
  const Ran ran = lab.run(box, {"/bin/probe", "fill", "/dev/shm/f", std::to_string(64 * kMiB)});
  CHECK(ran.out.find("\"written\":" + std::to_string(16 * kMiB)) != std::string::npos);
  CHECK(ran.out.find("ENOSPC") != std::string::npos);
  INFO(ran.out);
  // The exec and its group are gone, the file is not.
  CHECK(group_value(box, "memory.stat", "shmem") >= static_cast<std::int64_t>(16 * kMiB));
  CHECK(lab.run(box, {"/bin/rm", "/dev/shm/f"}).code == 0);
  CHECK(eventually(
      [&] { return group_value(box, "memory.stat", "shmem") < static_cast<std::int64_t>(kMiB); }));
  lab.destroy(box);
}

TEST_CASE("a /dev/shm larger than the memory limit ends its writer, not the host's memory") {
  TALON_NEED_CONTROLLERS("memory");
  VmLab lab;
  auto spec = lab.spec_with({.memory_bytes = 32 * kMiB, .cpu_cores = {}, .pids = {}});
  spec.shm_bytes = 512 * kMiB;
  Box box = lab.create(spec);
  Execs execs{lab, box};
  const wire::ExitInfo info =
      execs.wait(execs.start({"/bin/probe", "fill", "/dev/shm/f", std::to_string(256 * kMiB)}));
  CHECK(info.signal == SIGKILL);
  CHECK(oom(info));
  // The file is still there and nothing is left to be killed for it. Ever smaller writers take what
  // the killed ones gave back, until an exec cannot even begin: init must live on.
  int refused = 0;
  for (int i = 0; i < 12; ++i) {
    const std::string px =
        execs.start({"/bin/dd", "if=/dev/zero", "of=/dev/shm/" + std::to_string(i), "bs=4k"});
    refused += px.empty() ? 1 : 0;
    CHECK((px.empty() || oom(execs.wait(px))));
  }
  WARN("observed: a full /dev/shm: " << refused << " of 12 more execs refused, the others killed");
  write_group_file(box, "x/memory.max", std::to_string(48 * kMiB));
  CHECK(lab.sh(box, "rm /dev/shm/*").code == 0);
  CHECK(lab.run(box, {"/bin/echo", "alive"}).out == "alive\n");
  lab.destroy(box);
}

TEST_CASE("a root file system in memory is charged to the sandbox") {
  TALON_NEED_CONTROLLERS("memory");
  VmLab lab;
  auto spec = lab.spec_with({.memory_bytes = 64 * kMiB, .cpu_cores = {}, .pids = {}});
  spec.storage = isolate::Storage::memory;
  spec.memory_root_bytes = 16 * kMiB;
  Box box = lab.create(spec);
  const Ran ran = lab.run(box, {"/bin/probe", "fill", "/root/f", std::to_string(64 * kMiB)});
  INFO(ran.out);
  CHECK(ran.out.find("ENOSPC") != std::string::npos);
  CHECK(group_value(box, "memory.stat", "shmem") >= static_cast<std::int64_t>(15 * kMiB));
  lab.destroy(box);
}
