#include <catch2/catch.hpp>

#include <algorithm>

#include "support/daemon.h"

using namespace talon::test;
namespace json = boost::json;

TEST_CASE("a second daemon on one data dir is refused") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto second = Daemon::run_talond(daemon.serve_args(), Seconds(30));
  INFO(second.output);
  CHECK(second.code > 0);
  CHECK(second.output.find(daemon.data()) != std::string::npos);
  // The first one and its sandbox did not notice.
  CHECK(exit_code(run_in(client, id, "true")) == 0);
  CHECK(daemon.local().get("/healthz").status == 200);
}

// Its start would sweep the sockets of the first one's sandboxes away.
TEST_CASE("a second daemon with its own data dir on one run dir is refused") {
  Daemon daemon;
  const auto id = make_sandbox(daemon.client());
  Daemon::Options options;
  options.start = false;
  options.image = false;
  Daemon other(options);
  auto args = other.serve_args();
  std::ranges::replace(args, other.run(), daemon.run());
  const auto second = Daemon::run_talond(args, Seconds(30));
  INFO(second.output);
  CHECK(second.code > 0);
  CHECK(second.output.find("the run directory " + daemon.run()) != std::string::npos);
  CHECK(second.output.find("--run-dir") != std::string::npos);
  daemon.kill_hard();
  daemon.start();
  CHECK(daemon.client().get("/v1/sandboxes/" + id).text("state") == "running");
  CHECK(exit_code(run_in(daemon.client(), id, "true")) == 0);
}

TEST_CASE("an address beyond loopback without TLS is refused with the reason") {
  Daemon::Options options;
  options.start = false;
  options.image = false;
  Daemon daemon(options);
  auto args = daemon.serve_args();
  args.insert(args.end(), {"--listen", "0.0.0.0:0"});
  const auto ran = Daemon::run_talond(args, Seconds(30));
  INFO(ran.output);
  CHECK(ran.code > 0);
  CHECK(ran.output.find("0.0.0.0") != std::string::npos);
  CHECK(ran.output.find("TLS") != std::string::npos);
}
