#include <catch2/catch.hpp>

#include <algorithm>

#include "isolate/host.h"

using namespace talon;
using namespace talon::isolate;

namespace {

HostFacts good() {
  HostFacts facts;
  facts.kernel = "6.12.1";
  facts.kernel_major = 6;
  facts.kernel_minor = 12;
  facts.machine = "x86_64";
  facts.root = facts.user_namespaces = facts.overlayfs = facts.idmapped_tmpfs = facts.seccomp =
      true;
  facts.landlock_abi = 6;
  facts.nofile_hard = 1 << 20;
  facts.cgroup_mount = "/sys/fs/cgroup";
  facts.controllers = {"cpu", "memory", "pids"};
  return facts;
}

Finding row(const HostFacts& facts, const std::string& name) {
  const auto rows = diagnose(facts, "/nonexistent/data");
  const auto at = std::ranges::find(rows, name, &Finding::name);
  REQUIRE(at != rows.end());
  return *at;
}

}  // namespace

TEST_CASE("kernel versions compare by number, not by text") {
  HostFacts facts = good();
  CHECK(facts.at_least(6, 3));
  CHECK(facts.at_least(6, 12));
  CHECK_FALSE(facts.at_least(6, 13));
  CHECK(facts.at_least(5, 99));
  CHECK_FALSE(facts.at_least(7, 0));
}

TEST_CASE("probing this machine finds a kernel, an architecture and a boot id") {
  const auto facts = probe_host("");
  REQUIRE(facts.has_value());
  CHECK(facts->kernel_major >= 5);
  CHECK_FALSE(facts->machine.empty());
  CHECK(facts->boot_id.size() == 36);
  CHECK(facts->nofile_hard > 0);
  CHECK((facts->cgroup_problem.empty() || !facts->cgroup_problem.starts_with(" ")));
}

TEST_CASE("doctor: every row that is not ok says what follows, and what is missing has a fix") {
  HostFacts bad;
  bad.kernel = "5.10.0";
  bad.kernel_major = 5;
  bad.kernel_minor = 10;
  bad.cgroup_problem = "cgroup v2 is not mounted";
  for (const Finding& finding : diagnose(bad, "/nonexistent/data")) {
    INFO(finding.name);
    CHECK_FALSE(finding.effect.empty());
    if (finding.status == Finding::Status::missing && finding.name != "data directory") {
      CHECK_FALSE(finding.fix.empty());
    }
  }
  CHECK(row(bad, "kernel").status == Finding::Status::missing);
  CHECK(row(bad, "root").status == Finding::Status::missing);
  CHECK(row(bad, "cgroup v2").fix.find("mount -t cgroup2") == 0);
  CHECK(row(good(), "kernel").status == Finding::Status::ok);
  CHECK(row(good(), "overlayfs").status == Finding::Status::ok);
}

TEST_CASE("doctor: a missing controller is degraded and names the limit that is refused") {
  HostFacts facts = good();
  CHECK(row(facts, "controller memory").status == Finding::Status::ok);
  facts.controllers = {"cpu"};
  const Finding memory = row(facts, "controller memory");
  CHECK(memory.status == Finding::Status::degraded);
  CHECK(memory.effect.find("resources.memory") != std::string::npos);
  CHECK(row(facts, "controller cpu").status == Finding::Status::ok);
  CHECK_FALSE(memory.fix.empty());
}
