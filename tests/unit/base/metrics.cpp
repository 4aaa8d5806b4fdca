#include "base/metrics.h"

#include <catch2/catch.hpp>

using namespace talon;

TEST_CASE("metrics render as Prometheus text") {
  Metrics metrics;
  metrics.describe("talon_requests_total", "counter", "Requests\nanswered.");
  metrics.describe("talon_never", "gauge", "Not there.");
  metrics.add("talon_requests_total", "code=\"200\"");
  metrics.add("talon_requests_total", "code=\"200\"", 2);
  metrics.set("talon_sandboxes", "", 4);
  metrics.observe("talon_seconds", "route=\"x\"", 0.003);
  metrics.observe("talon_seconds", "route=\"x\"", 100);
  const std::string text = metrics.render();
  CHECK(text.find("# HELP talon_requests_total Requests\\nanswered.\n"
                  "# TYPE talon_requests_total counter\n"
                  "talon_requests_total{code=\"200\"} 3\n") != std::string::npos);
  CHECK(text.find("# TYPE talon_sandboxes untyped\ntalon_sandboxes 4\n") != std::string::npos);
  CHECK(text.find("# TYPE talon_seconds histogram\n") != std::string::npos);
  CHECK(text.find("talon_seconds_bucket{route=\"x\",le=\"0.0025\"} 0\n") != std::string::npos);
  CHECK(text.find("talon_seconds_bucket{route=\"x\",le=\"0.005\"} 1\n") != std::string::npos);
  CHECK(text.find("talon_seconds_bucket{route=\"x\",le=\"60\"} 1\n") != std::string::npos);
  CHECK(text.find("talon_seconds_bucket{route=\"x\",le=\"+Inf\"} 2\n") != std::string::npos);
  CHECK(text.find("talon_seconds_sum{route=\"x\"} 100.003\n") != std::string::npos);
  CHECK(text.find("talon_seconds_count{route=\"x\"} 2\n") != std::string::npos);
  CHECK(text.find("talon_never") == std::string::npos);
}
