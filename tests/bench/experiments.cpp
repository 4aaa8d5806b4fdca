// What takes more than one turn: many sandboxes side by side, many creates at once, load that goes
// on. Contenders take turns here too, some seconds each.

#include <unistd.h>

#include <algorithm>

#include "bench/contenders.h"

namespace talon::bench {

namespace {

constexpr int kTimedCreates = 40;
constexpr int kBurstRounds = 6;
constexpr int kSlices = 3;  // of sustained load, for each contender

// ---- memory

// What sandboxes hold in the kernel, over the whole machine.
double kernel_kib() {
  double sum = 0;
  for (const char* name : {"Slab", "Percpu", "PageTables", "KernelStack"}) {
    sum += proc_kib("/proc/meminfo", name);
  }
  return sum;
}

struct Idle {
  std::vector<Isolated::Box> boxes;
  Isolated* isolated = nullptr;

  Result<> fill(int count) {
    while (boxes.size() < static_cast<std::size_t>(count)) {
      TALON_TRY(box, isolated->prepare({}));
      boxes.push_back(std::move(box));
      TALON_CHECK(isolated->create(boxes.back()));
    }
    return {};
  }
  Result<> clear() {
    for (; !boxes.empty(); boxes.pop_back()) {
      Isolated::Box& box = boxes.back();
      if (box.sandbox) {
        TALON_CHECK(isolated->end(box));
        box.root.reset();
        box.workspace.reset();
        TALON_CHECK(isolated->reap(box));
      }
    }
    isolated->settle();
    return {};
  }
  ~Idle() { (void)clear(); }
};

// The median of creating a sandbox, nothing pooled, and taking it away again.
Result<double> create_median(Isolated& isolated) {
  std::vector<double> us;
  for (int i = 0; i < kTimedCreates; ++i) {
    TALON_TRY(box, isolated.prepare({}));
    const double begin = now_us();
    TALON_CHECK(isolated.create(box));
    us.push_back(now_us() - begin);
    TALON_CHECK(isolated.end(box));
    box.root.reset();
    box.workspace.reset();
    TALON_CHECK(isolated.reap(box));
  }
  return summarize(std::move(us)).median;
}

Result<std::vector<Figure>> idle_sandboxes(Isolated& isolated, int count) {
  Idle idle{.boxes = {}, .isolated = &isolated};
  TALON_TRY(before, create_median(isolated));
  isolated.settle();
  const double kernel_before = kernel_kib();
  TALON_CHECK(idle.fill(count));
  const double kernel = (kernel_kib() - kernel_before) / count;
  double pss = 0;
  for (const Isolated::Box& box : idle.boxes) {
    const std::string pid = std::to_string(box.sandbox->identity().host_pid);
    pss += proc_kib("/proc/" + pid + "/smaps_rollup", "Pss") / count;
  }
  TALON_TRY(among, create_median(isolated));
  TALON_CHECK(idle.clear());
  // Once more without them: what changed meanwhile was the machine.
  TALON_TRY(after, create_median(isolated));
  const std::string many = std::to_string(count) + " idle";
  return std::vector<Figure>{
      {.name = "create among " + many,
       .value = among,
       .unit = "µs",
       .base = "among none",
       .base_value = (before + after) / 2,
       .bar = 1.2,
       .bar_text = "1.2"},
      {.name = "memory per idle sandbox (kernel and its init)",
       .value = kernel + pss,
       .unit = "KiB",
       .bar = 600,
       .bar_text = "600 KiB"},
      {.name = "of that, init (Pss)", .value = pss, .unit = "KiB"},
  };
}

// ---- many at once

Result<std::vector<Figure>> burst(Isolated& isolated, OciRuntime& crun, int threads) {
  std::vector<double> ours;
  std::vector<double> theirs;
  for (int round = 0; round < kBurstRounds; ++round) {
    std::vector<Isolated::Box> ready;
    for (int i = 0; i < threads; ++i) {
      TALON_TRY(box, isolated.prepare(isolate::Ahead::warm));
      ready.push_back(std::move(box));
    }
    TALON_TRY(took, together(threads, [&](int i) -> Result<> {
                Isolated::Box& box = ready[static_cast<std::size_t>(i)];
                TALON_CHECK(isolated.create(box));
                TALON_CHECK(isolated.exec(box));
                return isolated.end(box);
              }));
    ours.push_back(threads / took);
    for (Isolated::Box& box : ready) {
      box.root.reset();
      box.workspace.reset();
      TALON_CHECK(isolated.reap(box));
    }
    isolated.settle();
    TALON_TRY(peer, together(threads, [&](int) -> Result<> {
                TALON_CHECK(crun.run());
                return {};
              }));
    theirs.push_back(threads / peer);
  }
  return std::vector<Figure>{{.name = "burst of " + std::to_string(threads) + " within the pools",
                              .value = summarize(std::move(ours)).median,
                              .unit = "/s",
                              .base = "crun run",
                              .base_value = summarize(std::move(theirs)).median,
                              .bar = 8,
                              .bar_text = "8",
                              .at_least = true}};
}

// Everything is in it: pools that are filled again, directories that are removed.
Result<std::vector<Figure>> churn(Isolated& isolated, OciRuntime& crun, int threads, int seconds) {
  std::atomic<int> ours = 0;
  std::atomic<int> theirs = 0;
  double our_time = 0;
  double their_time = 0;
  for (int slice = 0; slice < kSlices; ++slice) {
    const double length = seconds * 1e6 / kSlices;
    double until = now_us() + length;
    TALON_TRY(took, together(threads, [&](int) -> Result<> {
                for (; now_us() < until; ++ours) {
                  TALON_CHECK(isolated.cycle(isolate::Ahead::tree));
                }
                return {};
              }));
    isolated.settle();
    our_time += took;
    until = now_us() + length;
    TALON_TRY(peer, together(threads, [&](int) -> Result<> {
                for (; now_us() < until; ++theirs) {
                  TALON_CHECK(crun.run());
                }
                return {};
              }));
    their_time += peer;
  }
  return std::vector<Figure>{{.name = "churn, " + std::to_string(threads) + " at once for " +
                                      std::to_string(seconds) + " s",
                              .value = ours / our_time,
                              .unit = "/s",
                              .base = "crun run",
                              .base_value = theirs / their_time,
                              .bar = 4,
                              .bar_text = "4",
                              .at_least = true}};
}

}  // namespace

void add_experiments(std::vector<Experiment>& experiments, Lazy<Isolated>& isolated,
                     Lazy<OciRuntime>& crun, Scale scale) {
  using Figures = Result<std::vector<Figure>>;
  experiments.push_back({"idle sandboxes: create latency and memory", [&, scale]() -> Figures {
                           TALON_TRY(it, isolated.get());
                           return idle_sandboxes(*it, scale.idle);
                         }});
  experiments.push_back({"burst within the pools", [&, scale]() -> Figures {
                           TALON_TRY(it, isolated.get());
                           TALON_TRY(peer, crun.get());
                           return burst(*it, *peer, scale.concurrency);
                         }});
  experiments.push_back({"churn, sustained", [&, scale]() -> Figures {
                           TALON_TRY(it, isolated.get());
                           TALON_TRY(peer, crun.get());
                           return churn(*it, *peer, scale.concurrency, scale.churn_s);
                         }});
}

}  // namespace talon::bench
