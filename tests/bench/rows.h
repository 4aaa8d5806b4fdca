#pragma once
// What the bench measures and how it is told.
//
// A Row is one thing that can be done once and timed; rounds run all rows in a new random order
// each, so that a slow minute of the machine meets all of them. An Experiment takes its own time
// and ends in a few figures: rates, densities, a latency under load. Both are compared with a
// contender that was measured in the same run, and with what is promised.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace talon::bench {

struct Row {
  std::string name = {};      // "crun run"
  std::string base = {};      // the row that `ratio` refers to, "" = none
  double bar = 0;             // at most this ratio is promised, 0 = no promise
  std::string bar_text = {};  // "1/20"
  // Does it once; the time, in microseconds, is what counts, set-up and clean-up of the harness
  // are not in it.
  std::function<Result<double>()> once = {};
  std::vector<double> us = {};
};

// One figure of an experiment: `value` in `unit`, and where it is compared, with what.
struct Figure {
  std::string name;
  double value = 0;
  std::string unit;
  std::string base = {};  // what was measured beside it, "" = the promise is about the value itself
  double base_value = 0;
  double bar = 0;  // of the ratio, or of the value without a base; 0 = no promise
  std::string bar_text = {};
  bool at_least = false;  // else at most

  double judged() const { return base.empty() ? value : value / base_value; }
  bool kept() const { return at_least ? judged() >= bar : judged() <= bar; }
};

struct Experiment {
  std::string name;
  std::function<Result<std::vector<Figure>>()> run;
};

struct Summary {
  double median = 0;
  double min = 0;
  double p95 = 0;
  double p99 = 0;
};
Summary summarize(std::vector<double> us);

// A round to warm up, then `rounds`. The first failure ends it, naming the row: a missing or
// broken peer is an error, never a blank.
Result<> measure(std::vector<Row>& rows, int rounds);

// Keeps the rows and experiments whose names contain one of `words`, and the rows that those are
// compared with; all of them without words. An error when a word names nothing.
Result<> select(std::vector<Row>& rows, std::vector<Experiment>& experiments,
                const std::vector<std::string>& words);

std::string markdown(const std::vector<Row>& rows, const std::vector<Figure>& figures);
// {"rounds", "kernel", "cpus", "rows": [{name, median_us, min_us, p95_us, p99_us, of, ratio,
// promised, kept}], "figures": [{name, value, unit, of, of_value, ratio, promised, kept}]}
std::string json(const std::vector<Row>& rows, const std::vector<Figure>& figures, int rounds);
// Whether every promise was kept.
bool all_kept(const std::vector<Row>& rows, const std::vector<Figure>& figures);

double now_us();
// KiB by the names of /proc/meminfo and the like: "Name:   123 kB"; 0 without such a line.
double proc_kib(const std::string& path, std::string_view name);
// Runs `work(thread)` on each of `threads` at once; the seconds until all are done.
Result<double> together(int threads, const std::function<Result<>(int)>& work);

}  // namespace talon::bench
