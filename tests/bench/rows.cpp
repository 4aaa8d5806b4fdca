#include "bench/rows.h"

#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <random>
#include <sstream>
#include <thread>

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

double proc_kib(const std::string& path, std::string_view name) {
  std::ifstream in{path};
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(name) && line.size() > name.size() && line[name.size()] == ':') {
      std::istringstream words{line.substr(name.size() + 1)};
      double value = 0;
      words >> value;
      return value;
    }
  }
  return 0;
}

Result<double> together(int threads, const std::function<Result<>(int)>& work) {
  std::mutex mutex;
  Result<> failed;
  const double begin = now_us();
  {
    std::vector<std::jthread> crew;
    for (int i = 0; i < threads; ++i) {
      crew.emplace_back([&, i] {
        if (auto done = work(i); !done) {
          const std::lock_guard guard{mutex};
          failed = std::move(done);
        }
      });
    }
  }
  TALON_CHECK(failed);
  return (now_us() - begin) / 1e6;
}

Summary summarize(std::vector<double> us) {
  if (us.empty()) {
    return {};
  }
  std::ranges::sort(us);
  return {.median = us[us.size() / 2],
          .min = us.front(),
          .p95 = us[std::min(us.size() - 1, us.size() * 95 / 100)],
          .p99 = us[std::min(us.size() - 1, us.size() * 99 / 100)]};
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

Result<> select(std::vector<Row>& rows, std::vector<Experiment>& experiments,
                const std::vector<std::string>& words) {
  if (words.empty()) {
    return {};
  }
  const auto named = [&](const std::string& name) {
    return std::ranges::any_of(
        words, [&](const std::string& word) { return name.find(word) != std::string::npos; });
  };
  for (const std::string& word : words) {
    const auto has = [&](const auto& item) { return item.name.find(word) != std::string::npos; };
    if (std::ranges::none_of(rows, has) && std::ranges::none_of(experiments, has)) {
      return fail(Code::invalid_request, "no row's name contains \"" + word + "\"");
    }
  }
  std::vector<std::string> bases;
  for (const Row& row : rows) {
    if (named(row.name)) {
      bases.push_back(row.base);
    }
  }
  std::erase_if(rows, [&](const Row& row) {
    return !named(row.name) && std::ranges::find(bases, row.name) == bases.end();
  });
  std::erase_if(experiments, [&](const Experiment& one) { return !named(one.name); });
  return {};
}

namespace {

std::string ratio_text(double ratio) {
  return ratio < 1 ? "1/" + number(1 / ratio, 1) : number(ratio, 2);
}

std::string promise_text(bool at_least, const std::string& bar, bool kept) {
  return (at_least ? "≥ " : "≤ ") + bar + (kept ? ": kept" : ": **missed**");
}

void add_promise(std::string& out, double bar, bool kept) {
  out += ", \"promised\": " + number(bar, 5) + ", \"kept\": " + (kept ? "true" : "false");
}

}  // namespace

std::string markdown(const std::vector<Row>& rows, const std::vector<Figure>& figures) {
  std::string out;
  if (!rows.empty()) {
    out +=
        "| what | median µs | min µs | p95 µs | p99 µs | ratio | of | promised |\n"
        "|---|---:|---:|---:|---:|---:|---|---|\n";
  }
  for (const Row& row : rows) {
    const Summary s = summarize(row.us);
    out += "| " + row.name + " | " + number(s.median, 0) + " | " + number(s.min, 0) + " | " +
           number(s.p95, 0) + " | " + number(s.p99, 0) + " | ";
    if (row.base.empty()) {
      out += "| | |\n";
      continue;
    }
    const double r = ratio(rows, row);
    out += ratio_text(r) + " | " + row.base + " | ";
    if (row.bar > 0) {
      out += promise_text(false, row.bar_text, r <= row.bar);
    }
    out += " |\n";
  }
  if (!figures.empty()) {
    out +=
        "\n| what | value | beside it | ratio | promised |\n"
        "|---|---:|---:|---:|---|\n";
  }
  for (const Figure& figure : figures) {
    const int digits = figure.value < 100 ? 1 : 0;
    out += "| " + figure.name + " | " + number(figure.value, digits) + " " + figure.unit + " | ";
    if (!figure.base.empty()) {
      out += figure.base + ": " + number(figure.base_value, digits) + " | " +
             ratio_text(figure.judged());
    } else {
      out += "|";
    }
    out += " | ";
    if (figure.bar > 0) {
      out += promise_text(figure.at_least, figure.bar_text, figure.kept());
    }
    out += " |\n";
  }
  return out;
}

std::string json(const std::vector<Row>& rows, const std::vector<Figure>& figures, int rounds) {
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
           ", \"p95_us\": " + number(s.p95, 1) + ", \"p99_us\": " + number(s.p99, 1);
    if (!row.base.empty()) {
      out += ", \"of\": ";
      append_json_string(out, row.base);
      out += ", \"ratio\": " + number(ratio(rows, row), 5);
    }
    if (row.bar > 0) {
      add_promise(out, row.bar, ratio(rows, row) <= row.bar);
    }
    out += "}";
  }
  out += "\n  ],\n  \"figures\": [";
  for (const Figure& figure : figures) {
    out += &figure == figures.data() ? "\n    {\"name\": " : ",\n    {\"name\": ";
    append_json_string(out, figure.name);
    out += ", \"value\": " + number(figure.value, 2) + ", \"unit\": ";
    append_json_string(out, figure.unit);
    if (!figure.base.empty()) {
      out += ", \"of\": ";
      append_json_string(out, figure.base);
      out += ", \"of_value\": " + number(figure.base_value, 2) +
             ", \"ratio\": " + number(figure.judged(), 5);
    }
    if (figure.bar > 0) {
      add_promise(out, figure.bar, figure.kept());
    }
    out += "}";
  }
  return out + "\n  ]\n}\n";
}

bool all_kept(const std::vector<Row>& rows, const std::vector<Figure>& figures) {
  return std::ranges::all_of(
             rows, [&](const Row& row) { return row.bar <= 0 || ratio(rows, row) <= row.bar; }) &&
         std::ranges::all_of(figures,
                             [](const Figure& figure) { return figure.bar <= 0 || figure.kept(); });
}

}  // namespace talon::bench
