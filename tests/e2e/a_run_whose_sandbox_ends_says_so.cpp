// A command that ends because its sandbox or the daemon does: the answer says how, and a stream
// that was cut never looks like a whole one.
#include <catch2/catch.hpp>

#include <csignal>
#include <thread>

#include "support/daemon.h"

using namespace talon::test;
namespace json = boost::json;

namespace {

// Runs `echo early` and a long sleep; once the output is in the log, does `end`; the answer.
template <class F>
Reply run_until(const Client& client, const std::string& id, const std::string& accept, F end) {
  Reply answer;
  std::thread caller([&] {
    answer = client.post("/v1/sandboxes/" + id + "/run",
                         json::object{{"command", "echo early; touch /workspace/on; sleep 3000"}},
                         {{"Accept", accept}});
  });
  const bool on = eventually(Seconds(20), [&] {
    const auto seen = client.post("/v1/sandboxes/" + id + "/run",
                                  json::object{{"command", "test -e /workspace/on"}});
    return exit_code(seen) == 0;
  });
  end();
  caller.join();
  CHECK(on);
  return answer;
}

}  // namespace

TEST_CASE("a run whose sandbox is deleted answers with its output and that it was killed") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto reply =
      run_until(client, id, "application/json", [&] { client.del("/v1/sandboxes/" + id); });
  INFO(reply.body);
  REQUIRE(reply.status == 200);
  CHECK(reply.text("stdout") == "early\n");
  CHECK(reply.at("killed") == json::value(true));
  CHECK(reply.at("signal") == json::value(9));
  CHECK(reply.at("exit_code").is_null());
}

TEST_CASE("streams of a run and of its log end with the end when the sandbox is deleted") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto px = spawn_in(client, id, json::object{{"command", "echo x; sleep 3000"}});
  Reply head;
  auto follow = client.stream("/v1/sandboxes/" + id + "/processes/" + px + "/logs?follow=1", head,
                              {{"Accept", "application/x-ndjson"}});
  REQUIRE(head.status == 200);
  const auto reply =
      run_until(client, id, "application/x-ndjson", [&] { client.del("/v1/sandboxes/" + id); });
  INFO(reply.body);
  REQUIRE(reply.status == 200);
  const auto end = reply.body.find("{\"event\":\"end\"");
  REQUIRE(end != std::string::npos);
  CHECK(reply.body.find("early") < end);
  CHECK(reply.body.find("\"killed\":true", end) != std::string::npos);
  std::string log;
  while (auto piece = follow.read_piece(Seconds(10))) {
    log += *piece;
  }
  INFO(log);
  CHECK_FALSE(follow.failed());
  CHECK(log.find("\"text\":\"x\\n\"") != std::string::npos);
  CHECK(log.find("{\"event\":\"exit\"") != std::string::npos);
  CHECK(log.find("\"signal\":9") != std::string::npos);
}

TEST_CASE("a daemon that stops tells a waiting run where its result will be") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto reply = run_until(client, id, "application/json", [&] { daemon.signal(SIGTERM); });
  INFO(reply.body);
  REQUIRE(reply.status == 503);
  CHECK(reply.text("code") == "unavailable");
  const auto detail = reply.text("detail");
  const auto at = detail.find("processes/px");
  REQUIRE(at != std::string::npos);
  const auto px = detail.substr(at + 10, 22);
  CHECK(daemon.wait(Seconds(4)) == 0);  // nobody waits for the command
  daemon.start();
  const auto process = daemon.client().get("/v1/sandboxes/" + id + "/processes/" + px);
  INFO(process.body);
  CHECK(process.text("state") == "running");
}
