// LC-01, LC-03, LC-10: pause and resume of real processes.
#include <catch2/catch.hpp>

#include <sstream>

#include "support/daemon.h"

using namespace talon::test;
namespace json = boost::json;

namespace {

std::string cpu_of(const Client& client, const std::string& id) {
  return json::serialize(client.get("/v1/sandboxes/" + id + "/stats").at("cpu_usage_us"));
}

}  // namespace

TEST_CASE("LC-01: nothing is lost by pauses one after the other") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto path = "/v1/sandboxes/" + id;
  std::string names;
  for (int i = 1; i <= 3; ++i) {
    const auto name = "f" + std::to_string(i);
    CHECK(exit_code(run_in(client, id,
                           "echo " + name + " > /workspace/" + name + "; echo r" + name +
                               " > /root/" + name)) == 0);
    REQUIRE(client.post(path + "/pause", json::object()).status == 200);
    REQUIRE(client.post(path + "/resume", json::object()).status == 200);
    names += name + "\n";
    const auto listed = run_in(client, id, "ls /workspace && cat /root/" + name);
    CHECK(listed.text("stdout") == names + "r" + name + "\n");
  }
}

TEST_CASE("LC-03: a paused sandbox refuses an exec at once, and ends when it is told to") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto path = "/v1/sandboxes/" + id;
  const auto busy = spawn_in(client, id, json::object{{"command", "while :; do :; done"}});
  const auto reader = spawn_in(client, id, json::object{{"command", "cat"}, {"stdin", true}});
  const auto killed = spawn_in(client, id, json::object{{"command", "sleep 3000"}});
  REQUIRE(client.post(path + "/pause", json::object()).status == 200);

  // No process uses the CPU any more; the counter is the group's own.
  const auto before = cpu_of(client, id);
  nap(Seconds(0.5));
  CHECK(cpu_of(client, id) == before);

  const auto refused = client.post(path + "/run", json::object{{"command", "true"}});
  CHECK(refused.status == 409);
  CHECK(refused.text("code") == "wrong_state");
  CHECK(refused.text("state") == "paused");
  CHECK(client.request("POST", path + "/processes/" + reader + "/stdin", "lost?").status == 409);
  // Its grace would never pass while it stands still.
  CHECK(client.del(path + "/processes/" + busy + "?grace=1h").status == 204);
  CHECK(wait_exec(client, id, busy, Seconds(10)).at("result.signal") == json::value(9));
  CHECK(client.post(path + "/processes/" + killed + "/signal", json::object{{"signal", "KILL"}})
            .status == 204);
  CHECK(wait_exec(client, id, killed, Seconds(10)).text("state") == "exited");

  // One call resumes; what was refused was not queued.
  CHECK(client.post(path + "/run?resume=1", json::object{{"command", "echo up"}}).text("stdout") ==
        "up\n");
  CHECK(client.request("POST", path + "/processes/" + reader + "/stdin?close=1", "kept").status ==
        200);
  wait_exec(client, id, reader, Seconds(10));
  CHECK(client.get(path + "/processes/" + reader + "/logs").body == "kept");

  REQUIRE(client.post(path + "/pause", json::object()).status == 200);
  CHECK(client.post(path + "/stop", json::object()).text("state") == "stopped");
  REQUIRE(client.post(path + "/start", json::object()).status == 200);
  spawn_in(client, id, json::object{{"command", "sleep 3000"}});
  REQUIRE(client.post(path + "/pause", json::object()).status == 200);
  CHECK(client.del(path).status == 204);
  CHECK(daemon.processes("").empty());
}

TEST_CASE("LC-10: time passes in a pause, timeouts do not") {
  Daemon daemon;
  auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto path = "/v1/sandboxes/" + id;
  // 3 s of running time; the pause is longer than that.
  const auto timed =
      spawn_in(client, id,
               json::object{{"command", "sleep 1; echo half; sleep 1; echo done"}, {"timeout", 3}});
  const auto counter =
      spawn_in(client, id,
               json::object{{"command", "i=0; while :; do echo $i; i=$((i+1)); sleep 0.05; done"}});
  const auto logs = path + "/processes/" + counter + "/logs";
  REQUIRE(eventually(Seconds(10), [&] { return client.get(logs).body.size() > 4; }));
  REQUIRE(client.post(path + "/pause", json::object()).status == 200);
  const auto at_pause = client.get(logs).body;
  // A client that follows stays connected and hears nothing. The daemon dies meanwhile, too.
  Reply head;
  auto stream = client.stream(logs + "?follow=1&from=end", head);
  REQUIRE(head.status == 200);
  CHECK(stream.read_piece(Seconds(2)) == std::nullopt);
  daemon.kill_hard();
  daemon.start();
  client = daemon.client();
  CHECK(client.get(path).text("state") == "paused");
  nap(Seconds(2));
  CHECK(client.get(logs).body == at_pause);
  CHECK(client.get(path + "/processes/" + timed).text("state") == "running");

  REQUIRE(client.post(path + "/resume", json::object()).status == 200);
  const auto ended = wait_exec(client, id, timed, Seconds(20));
  INFO(ended.body);
  CHECK(ended.at("result.exit_code") == json::value(0));
  CHECK(ended.at("result.timed_out") == json::value(false));
  CHECK(client.get(path + "/processes/" + timed + "/logs").body == "half\ndone\n");
  // The clock inside is the host's.
  const auto inside = std::stoll(run_in(client, id, "date +%s").text("stdout"));
  CHECK(std::abs(static_cast<long long>(time(nullptr)) - inside) <= 1);
  // The counter goes on where it was.
  REQUIRE(eventually(Seconds(10), [&] { return client.get(logs).body.size() > at_pause.size(); }));
  const auto counted = client.get(logs).body;
  std::istringstream lines(counted.substr(0, counted.rfind('\n') + 1));
  int expected = 0;
  for (int value = 0; lines >> value; ++expected) {
    REQUIRE(value == expected);
  }
}
