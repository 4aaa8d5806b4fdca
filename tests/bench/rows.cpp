#include "bench/rows.h"

#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "base/log.h"

namespace talon::bench {

namespace {

const Row* find(const std::vector<Row>& rows, const std::string& name) {
  const auto it = std::ranges::find(rows, name, &Row::name);
  return it == rows.end() ? nullptr : &*it;
}

double ratio(const std::vector<Row>& rows, const Row& row) {
  const Row* base = find(rows, row.base);
  return base == nullptr ? 0 : summarize(row.us).median / summarize(base->us).median;
}

std::string number(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

}  // namespace

double now_us() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
}

Summary summarize(std::vector<double> us) {
  if (us.empty()) {
    return {};
  }
  std::ranges::sort(us);
  return {.median = us[us.size() / 2],
          .min = us.front(),
          .p90 = us[std::min(us.size() - 1, us.size() * 9 / 10)]};
}

Result<> measure(std::vector<Row>& rows, int rounds) {
  constexpr int kWarmUp = 1;
  // Each contender has a few turns in a row, so that none pays for what another left in the caches.
  constexpr int kTurn = 5;
  std::mt19937 random{std::random_device{}()};
  std::vector<Row*> order;
  for (Row& row : rows) {
    order.push_back(&row);
  }
  for (int round = -kWarmUp; round < rounds; ++round) {
    std::ranges::shuffle(order, random);
    for (Row* row : order) {
      for (int n = 0; n < kTurn; ++n) {
        auto us = row->once();
        if (!us) {
          return std::unexpected(std::move(us).error().in(row->name));
        }
        if (round >= 0) {
          row->us.push_back(*us);
        }
      }
    }
    if (isatty(STDERR_FILENO) != 0) {
      std::fprintf(stderr, "\rround %d of %d ", std::max(round + 1, 0), rounds);
    }
  }
  if (isatty(STDERR_FILENO) != 0) {
    std::fputs("\r                       \r", stderr);
  }
  return {};
}

std::string markdown(const std::vector<Row>& rows) {
  std::string out =
      "| what | median µs | min µs | p90 µs | ratio | of | promised |\n"
      "|---|---:|---:|---:|---:|---|---|\n";
  for (const Row& row : rows) {
    const Summary s = summarize(row.us);
    out += "| " + row.name + " | " + number(s.median, 0) + " | " + number(s.min, 0) + " | " +
           number(s.p90, 0) + " | ";
    if (row.base.empty()) {
      out += "| | |\n";
      continue;
    }
    const double r = ratio(rows, row);
    out += r < 1 ? "1/" + number(1 / r, 1) : number(r, 2);
    out += " | " + row.base + " | ";
    if (row.bar > 0) {
      out += "≤ " + row.bar_text + (r <= row.bar ? ": kept" : ": **missed**");
    }
    out += " |\n";
  }
  return out;
}

std::string json(const std::vector<Row>& rows, int rounds) {
  utsname name{};
  uname(&name);
  std::string out = "{\n  \"rounds\": " + std::to_string(rounds) + ",\n  \"kernel\": ";
  append_json_string(out, name.release);
  out += ",\n  \"cpus\": " + std::to_string(sysconf(_SC_NPROCESSORS_ONLN)) + ",\n  \"rows\": [";
  for (const Row& row : rows) {
    const Summary s = summarize(row.us);
    out += &row == rows.data() ? "\n    {\"name\": " : ",\n    {\"name\": ";
    append_json_string(out, row.name);
    out += ", \"median_us\": " + number(s.median, 1) + ", \"min_us\": " + number(s.min, 1) +
           ", \"p90_us\": " + number(s.p90, 1);
    if (!row.base.empty()) {
      out += ", \"of\": ";
      append_json_string(out, row.base);
      out += ", \"ratio\": " + number(ratio(rows, row), 5);
    }
    if (row.bar > 0) {
      out += ", \"promised\": " + number(row.bar, 5) +
             ", \"kept\": " + (ratio(rows, row) <= row.bar ? "true" : "false");
    }
    out += "}";
  }
  return out + "\n  ]\n}\n";
}

}  // namespace talon::bench
