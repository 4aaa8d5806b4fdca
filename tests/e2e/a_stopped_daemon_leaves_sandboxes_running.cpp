#include <catch2/catch.hpp>

#include <csignal>

#include "support/daemon.h"

using namespace talon::test;
namespace json = boost::json;

TEST_CASE("SIGTERM stops serving and leaves sandboxes running") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto px = spawn_in(client, id, json::object{{"command", "sleep 3000"}});
  const auto before = daemon.processes(id);
  CHECK(daemon.stop() == 0);
  CHECK(daemon.processes(id) == before);
  daemon.start();
  CHECK(daemon.processes(id) == before);
  CHECK(daemon.client().get("/v1/sandboxes/" + id + "/processes/" + px).text("state") == "running");
  CHECK(exit_code(run_in(daemon.client(), id, "true")) == 0);
}

TEST_CASE("with --stop-sandboxes SIGTERM ends them, and the next start can start them again") {
  Daemon::Options options;
  options.args = {"--stop-sandboxes"};
  Daemon daemon(options);
  const auto id = make_sandbox(daemon.client());
  run_in(daemon.client(), id, "echo kept > /workspace/f");
  CHECK(daemon.stop() == 0);
  CHECK(daemon.processes("").empty());
  daemon.start();
  const auto client = daemon.client();
  CHECK(client.get("/v1/sandboxes/" + id).text("state") == "stopped");
  REQUIRE(client.post("/v1/sandboxes/" + id + "/start", json::object()).status == 200);
  CHECK(run_in(client, id, "cat /workspace/f").text("stdout") == "kept\n");
}

TEST_CASE("a follower of a log does not hold up the end of the daemon") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto px = spawn_in(client, id, json::object{{"command", "echo x; sleep 3000"}});
  Reply head;
  auto stream = client.stream("/v1/sandboxes/" + id + "/processes/" + px + "/logs?follow=1", head);
  REQUIRE(head.status == 200);
  REQUIRE(stream.read_piece(Seconds(10)) == std::string("x\n"));
  daemon.signal(SIGTERM);
  // A whole answer, with the cursor to go on from; not one that was cut off.
  CHECK(stream.read_piece(Seconds(10)) == std::nullopt);
  CHECK_FALSE(stream.failed());
  CHECK(daemon.wait(Seconds(20)) == 0);
}
