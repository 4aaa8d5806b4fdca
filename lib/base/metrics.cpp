#include "base/metrics.h"

#include <array>
#include <charconv>

namespace talon {

namespace {

constexpr std::array<double, 16> kBuckets{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                          0.25,   0.5,   1,      2.5,   5,    10,    30,   60};

std::string number(double value) {
  std::array<char, 40> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

void append_sample(std::string& out, std::string_view name, std::string_view labels,
                   std::string_view value) {
  out += name;
  if (!labels.empty()) {
    out += '{';
    out += labels;
    out += '}';
  }
  out += ' ';
  out += value;
  out += '\n';
}

// HELP text: backslash and line feed are escaped (Prometheus text format 0.0.4).
void append_help(std::string& out, std::string_view help) {
  for (const char c : help) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
}

template <class Map>
typename Map::mapped_type& slot(Map& map, std::string_view key) {
  if (const auto found = map.find(key); found != map.end()) {
    return found->second;
  }
  return map[std::string{key}];
}

}  // namespace

void Metrics::add(std::string_view name, std::string_view labels, double by) {
  const std::lock_guard lock{mutex_};
  slot(slot(families_, name).values, labels) += by;
}

void Metrics::set(std::string_view name, std::string_view labels, double value) {
  const std::lock_guard lock{mutex_};
  slot(slot(families_, name).values, labels) = value;
}

void Metrics::observe(std::string_view name, std::string_view labels, double seconds) {
  const std::lock_guard lock{mutex_};
  Histogram& histogram = slot(slot(families_, name).histograms, labels);
  histogram.counts.resize(kBuckets.size());
  for (std::size_t i = 0; i < kBuckets.size(); ++i) {
    if (seconds <= kBuckets[i]) {
      ++histogram.counts[i];
      break;
    }
  }
  histogram.sum += seconds;
  ++histogram.total;
}

void Metrics::describe(std::string_view name, std::string_view type, std::string_view help) {
  const std::lock_guard lock{mutex_};
  Family& family = slot(families_, name);
  family.type = type;
  family.help = help;
}

std::string Metrics::render() const {
  const std::lock_guard lock{mutex_};
  std::string out;
  for (const auto& [name, family] : families_) {
    if (family.values.empty() && family.histograms.empty()) {
      continue;
    }
    if (!family.help.empty()) {
      out += "# HELP " + name + " ";
      append_help(out, family.help);
      out += '\n';
    }
    out += "# TYPE " + name + " " + (family.histograms.empty() ? family.type : "histogram") + "\n";
    for (const auto& [labels, value] : family.values) {
      append_sample(out, name, labels, number(value));
    }
    for (const auto& [labels, histogram] : family.histograms) {
      const std::string before = labels.empty() ? "" : labels + ",";
      std::uint64_t below = 0;
      for (std::size_t i = 0; i < kBuckets.size(); ++i) {
        below += histogram.counts[i];
        append_sample(out, name + "_bucket", before + "le=\"" + number(kBuckets[i]) + "\"",
                      std::to_string(below));
      }
      append_sample(out, name + "_bucket", before + "le=\"+Inf\"", std::to_string(histogram.total));
      append_sample(out, name + "_sum", labels, number(histogram.sum));
      append_sample(out, name + "_count", labels, std::to_string(histogram.total));
    }
  }
  return out;
}

}  // namespace talon
