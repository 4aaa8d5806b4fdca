// Prints what a create costs, step by step. It decides nothing: machines differ.

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>

#include "isolate/seccomp.h"
#include "isolate/spawner_client.h"
#include "kernel/sandbox_support.h"

using namespace talon;
using namespace talon::testing;

namespace {

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

}  // namespace

TEST_CASE("timing of create, run, kill and remove (printed only)") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  std::map<std::string, std::vector<double>> steps;
  std::vector<std::string> order;
  std::vector<double> create, exec, end, total, killed, removed;
  using clock = std::chrono::steady_clock;
  const auto us = [](clock::time_point from, clock::time_point to) {
    return std::chrono::duration<double, std::micro>(to - from).count();
  };
  for (int i = 0; i < 60; ++i) {
    const auto spec = lab.spec();
    std::filesystem::create_directories(lab.root_of(spec.id) / "workspace");
    const auto t0 = clock::now();
    Box box = lab.create(spec);
    const auto t1 = clock::now();
    lab.run(box, {"/bin/true"});
    const auto t2 = clock::now();
    for (const auto& step : box->step_times()) {
      if (!steps.contains(step.step)) {
        order.push_back(step.step);
      }
      steps[step.step].push_back(static_cast<double>(step.ns) / 1000);
    }
    REQUIRE(box->kill(std::chrono::seconds{10}).has_value());
    const auto k1 = clock::now();
    REQUIRE(box->remove().has_value());
    const auto k2 = clock::now();
    box.sandbox.reset();
    killed.push_back(us(t2, k1));
    removed.push_back(us(k1, k2));
    const auto t3 = clock::now();
    create.push_back(us(t0, t1));
    exec.push_back(us(t1, t2));
    end.push_back(us(t2, t3));
    total.push_back(us(t0, t3));
    std::filesystem::remove_all(lab.root_of(spec.id));
  }
  std::printf("create %.0f us, run %.0f us, kill+remove %.0f us, total %.0f us (medians of %zu)\n",
              median(create), median(exec), median(end), median(total), total.size());
  std::printf("kill %.0f us, remove %.0f us, close %.0f us\n", median(killed), median(removed),
              median(end) - median(killed) - median(removed));
  for (const std::string& step : order) {
    if (median(steps[step]) >= 5) {
      std::printf("  %-28s %6.0f us\n", step.c_str(), median(steps[step]));
    }
  }
  std::vector<double> start;
  for (int i = 0; i < 20; ++i) {
    const auto t0 = clock::now();
    lab.restart_launcher();
    start.push_back(us(t0, clock::now()));
  }
  const auto once = [&](const char* what, auto&& call) {
    const auto t0 = clock::now();
    REQUIRE(call().has_value());
    std::printf("%s %.0f us\n", what, us(t0, clock::now()));
  };
  once("check of the seccomp filters", [] { return isolate::seccomp::check_filters(); });
  once("host facts", [] { return isolate::probe_host(""); });
  once("spawner start", [] { return isolate::SpawnerClient::start().value()->ready(); });
  std::printf("launcher stop and start %.0f us\n", median(start));
  CHECK(total.size() == 60);
}
