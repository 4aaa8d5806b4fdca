#pragma once
// What the bench measures and how it is told. A Row is one thing that can be done once and timed;
// rounds run all rows in a new random order each, so that a slow minute of the machine meets all
// of them. Figures are microseconds of wall-clock time.

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"

namespace talon::bench {

struct Row {
  std::string name = {};      // "crun run"
  std::string base = {};      // the row that `ratio` refers to, "" = none
  double bar = 0;             // at most this ratio is promised, 0 = no promise
  std::string bar_text = {};  // "1/20"
  // Does it once; the time is what counts, set-up and clean-up of the harness are not in it.
  std::function<Result<double>()> once = {};
  std::vector<double> us = {};
};

struct Summary {
  double median = 0;
  double min = 0;
  double p90 = 0;
};
Summary summarize(std::vector<double> us);

// Two rounds to warm up, then `rounds`. The first failure ends it, naming the row: a missing or
// broken peer is an error, never a blank.
Result<> measure(std::vector<Row>& rows, int rounds);

std::string markdown(const std::vector<Row>& rows);
// {"rounds", "kernel", "cpus", "rows": [{name, median_us, min_us, p90_us, ratio, base, bar}]}
std::string json(const std::vector<Row>& rows, int rounds);

double now_us();

}  // namespace talon::bench
