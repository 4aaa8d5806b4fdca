// Abusers side by side, each in a sandbox of its own with limits: what is beside them goes on, and
// they can be ended. And what a sandbox that does nothing costs where the controllers count it.

#include <cstdlib>
#include <fstream>

#include "vm/vm_support.h"

using namespace talon;
using namespace talon::testing;
using namespace std::chrono_literals;

namespace {

double seconds_of(const std::function<void()>& act) {
  const auto begin = std::chrono::steady_clock::now();
  act();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Abuser {
  const char* name;
  std::vector<std::string> argv;
};

const std::vector<Abuser>& abusers() {
  static const std::vector<Abuser> all = {
      {"fork bomb", {"/bin/sh", "-c", "b() { b & b & wait; }; b 2>/dev/null; sleep 600"}},
      {"memory hog", {"/bin/probe", "eat-memory", "55", "600"}},
      {"disk filler", {"/bin/sh", "-c", "while :; do probe fill /workspace/f 50000000; done"}},
      {"descriptor hog",
       {"/bin/sh", "-c", "for i in $(seq 50); do sleep 600 <$0 & done; wait", "/etc/passwd"}},
      {"zombie maker", {"/bin/sh", "-c", "while :; do (sleep 0 &) ; done"}},
      {"log flooder", {"/bin/sh", "-c", "while :; do probe output 10000000; done"}},
      {"CPU hog", {"/bin/probe", "spin", "600"}},
  };
  return all;
}

std::int64_t available_kib() {
  std::ofstream{"/proc/sys/vm/drop_caches"} << "3\n" << std::flush;
  std::ifstream in{"/proc/meminfo"};
  std::string line;
  while (std::getline(in, line)) {
    if (line.starts_with("MemAvailable:")) {
      return std::stoll(line.substr(13));
    }
  }
  return 0;
}

}  // namespace

TEST_CASE("seven abusers side by side: an eighth sandbox answers, and all seven end") {
  TALON_NEED_CONTROLLERS("memory", "cpu", "pids");
  VmLab lab;
  const isolate::Limits limits{.memory_bytes = 64 * kMiB, .cpu_cores = 0.1, .pids = 64};
  std::vector<Box> boxes;
  for (const Abuser& abuser : abusers()) {
    boxes.push_back(lab.create(lab.spec_with(limits)));
    INFO(abuser.name);
    REQUIRE_FALSE(Execs(lab, boxes.back()).start(abuser.argv).empty());
  }
  // All of them at their limit: the bomb's processes and the CPU hog's periods show it.
  CHECK(eventually(
      [&] {
        return std::stol(group_file(boxes.front(), "pids.current")) >= 60 &&
               group_value(boxes.back(), "cpu.stat", "nr_throttled") > 10;
      },
      60s));
  Box eighth = lab.create();
  double slowest = 0;
  for (int i = 0; i < 5; ++i) {
    slowest =
        std::max(slowest, seconds_of([&] { CHECK(lab.run(eighth, {"/bin/true"}).code == 0); }));
  }
  CHECK(slowest < 10);  // ten times the promise; nothing here runs at a machine's speed
  WARN("observed: beside seven abusers: slowest of 5 `true` " << slowest << " s");
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    INFO(abusers()[i].name);
    const double took = seconds_of([&] { lab.destroy(boxes[i]); });
    CHECK(took < 20);
    WARN("observed: " << abusers()[i].name << ": deleted in " << took << " s");
  }
  CHECK(lab.run(eighth, {"/bin/true"}).code == 0);
  lab.destroy(eighth);
}

TEST_CASE("what an idle sandbox costs with all controllers") {
  TALON_NEED_CONTROLLERS("memory", "cpu", "pids", "io");
  if (std::getenv("TALON_TEST_REQUIRE") == nullptr) {
    WARN("SKIP: drops the page cache of the whole machine: in the VM only");
    return;
  }
  constexpr int kCount = 40;
  VmLab lab;
  Box warm = lab.create();  // what is made once
  const std::int64_t before = available_kib();
  std::vector<Box> boxes;
  for (int i = 0; i < kCount; ++i) {
    boxes.push_back(
        lab.create(lab.spec_with({.memory_bytes = 64 * kMiB, .cpu_cores = 0.5, .pids = 64})));
  }
  const std::int64_t each = (before - available_kib()) / kCount;
  WARN("observed: an idle sandbox with all controllers: " << each << " KiB");
  CHECK(each <= 600);  // what is promised
  for (Box& box : boxes) {
    lab.destroy(box);
  }
  lab.destroy(warm);
}
