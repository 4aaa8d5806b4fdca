// Timeouts, kills, limits and natural exits are told apart, at the right time, with the output.
#include <catch2/catch.hpp>

#include <filesystem>

#include "support/daemon.h"

using namespace talon::test;
namespace json = boost::json;

// EX-03
TEST_CASE("a background child that holds the pipe does not hold the run") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto reply = run_in(client, id, {{"argv", json::array{"sh", "-c", "sleep 300 & echo ok"}}});
  CHECK(reply.seconds < 5);
  CHECK(exit_code(reply) == 0);
  CHECK(reply.text("stdout") == "ok\n");
  CHECK(run_in(client, id, "cat /proc/[0-9]*/comm").text("stdout").find("sleep\n") !=
        std::string::npos);
}

// EX-05
TEST_CASE("a timeout is reported when it passes, and the process is gone") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto before = daemon.processes(id).size();
  const auto reply = run_in(client, id, {{"command", "sleep 5; echo hi"}, {"timeout", 2}});
  INFO(reply.body);
  CHECK(reply.at("timed_out") == json::value(true));
  CHECK(reply.seconds >= 2);
  CHECK(reply.seconds < 4);
  CHECK(eventually(Seconds(2), [&] { return daemon.processes(id).size() == before; }));
}

// EX-06
TEST_CASE("a timeout ends the descendants too") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto before = daemon.processes(id).size();
  for (const auto* command :
       {"(sleep 3; touch /workspace/late) & wait",
        "setsid sh -c '(sleep 3; touch /workspace/late) & exec sleep 100' & sleep 100"}) {
    const auto reply = run_in(client, id, {{"command", command}, {"timeout", "50ms"}});
    INFO(reply.body);
    CHECK(reply.at("timed_out") == json::value(true));
    CHECK(eventually(Seconds(2), [&] { return daemon.processes(id).size() == before; }));
  }
  nap(Seconds(4));
  CHECK(exit_code(run_in(client, id, "test ! -e /workspace/late")) == 0);
}

// EX-08
TEST_CASE("output before the timeout is kept") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto reply = run_in(client, id, {{"command", "echo partial; sleep 60"}, {"timeout", "1s"}});
  CHECK(reply.at("timed_out") == json::value(true));
  CHECK(reply.text("stdout") == "partial\n");
  CHECK(reply.seconds < 5);
}

// EX-11
TEST_CASE("natural exits 124 and 137 are neither timeouts nor kills") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  for (const int code : {0, 1, 124, 137, 255}) {
    const auto reply = run_in(client, id, "exit " + std::to_string(code));
    INFO(reply.body);
    CHECK(exit_code(reply) == code);
    CHECK(reply.at("signal").is_null());
    CHECK(reply.at("timed_out") == json::value(false));
    CHECK(reply.at("killed") == json::value(false));
    CHECK(reply.at("oom") == json::value(false));
    CHECK(reply.at("output_limit") == json::value(false));
  }
  const auto killed = run_in(client, id, "kill -KILL $$");
  INFO(killed.body);
  CHECK(killed.at("exit_code").is_null());
  CHECK(killed.at("signal") == json::value(9));
  CHECK(killed.at("timed_out") == json::value(false));
  CHECK(run_in(client, id, "kill -TERM $$").at("signal") == json::value(15));

  const auto px = spawn_in(client, id, {{"command", "sleep 100"}});
  REQUIRE(client.del("/v1/sandboxes/" + id + "/processes/" + px).status / 100 == 2);
  const auto ended = wait_exec(client, id, px, Seconds(10));
  INFO(ended.body);
  CHECK(ended.text("state") == "exited");
  CHECK(ended.body.find("\"killed\":true") != std::string::npos);
  CHECK(ended.body.find("\"timed_out\":false") != std::string::npos);
}

// EX-09
TEST_CASE("a missing command is 127 and a file that may not be run is 126, with its name") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  run_in(client, id, "echo 'echo hi' > /workspace/plain; chmod 644 /workspace/plain");
  const auto missing = run_in(client, id, {{"argv", json::array{"no-such-command", "x"}}});
  INFO(missing.body);
  CHECK(exit_code(missing) == 127);
  CHECK(missing.text("stderr").find("no-such-command") != std::string::npos);
  const auto plain = run_in(client, id, {{"argv", json::array{"/workspace/plain"}}});
  INFO(plain.body);
  CHECK(exit_code(plain) == 126);
  CHECK(plain.text("stderr").find("/workspace/plain") != std::string::npos);
  CHECK(exit_code(run_in(client, id, "no-such-command")) == 127);
  CHECK(exit_code(run_in(client, id, {{"argv", json::array{"/workspace"}}})) == 126);
}
