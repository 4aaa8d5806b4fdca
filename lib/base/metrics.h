#pragma once
// Prometheus text exposition: counters, gauges and histograms held by name + label text.
// Written from the I/O thread and pool threads; rendered for GET /metrics.

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace talon {

class Metrics {
 public:
  // `labels` is the inside of the braces, e.g. `route="createSandbox",code="201"`, or empty.
  void add(std::string_view name, std::string_view labels = {}, double by = 1);
  void set(std::string_view name, std::string_view labels, double value);
  // Seconds, into the fixed buckets 0.0005 … 60.
  void observe(std::string_view name, std::string_view labels, double seconds);
  // # HELP and # TYPE of a family; a family without it is rendered as untyped.
  void describe(std::string_view name, std::string_view type, std::string_view help);
  std::string render() const;

 private:
  struct Histogram {
    std::vector<std::uint64_t> counts;
    double sum = 0;
    std::uint64_t total = 0;
  };
  struct Family {
    std::string type = "untyped";
    std::string help;
    std::map<std::string, double, std::less<>> values;
    std::map<std::string, Histogram, std::less<>> histograms;
  };
  mutable std::mutex mutex_;
  std::map<std::string, Family, std::less<>> families_;
};

}  // namespace talon
