// LC-08 in part: kill -9 of talond at any moment loses no process, no output, no result.
#include <catch2/catch.hpp>

#include <sstream>

#include "support/daemon.h"

using namespace talon::test;
namespace json = boost::json;

TEST_CASE("a killed daemon loses no sandbox") {
  Daemon daemon;
  auto client = daemon.client();
  const auto id = make_sandbox(client, {{"name", "survivor"}});
  run_in(client, id, "echo before > /workspace/f");
  // A counter whose file shows that it never stopped, and one that ends while nobody looks.
  const auto counter =
      spawn_in(client, id,
               json::object{{"command", "i=0; while :; do echo $i; i=$((i+1)); sleep 0.02; done"}});
  const auto ends =
      spawn_in(client, id, json::object{{"command", "echo last words; sleep 1; exit 42"}});
  REQUIRE(eventually(Seconds(10), [&] {
    return client.get("/v1/sandboxes/" + id + "/processes/" + counter + "/logs").body.size() > 20;
  }));
  const auto inside = daemon.processes(id);
  REQUIRE(inside.size() >= 3);

  daemon.kill_hard();
  nap(Seconds(1.5));  // `ends` ends in the meantime, with no talond
  CHECK(daemon.processes(id).size() >= 2);
  daemon.start();
  client = daemon.client();

  const auto row = client.get("/v1/sandboxes/" + id);
  INFO(row.body);
  REQUIRE(row.status == 200);
  CHECK(row.text("state") == "running");
  CHECK(row.text("name") == "survivor");
  CHECK(run_in(client, id, "cat /workspace/f").text("stdout") == "before\n");

  const auto ended = wait_exec(client, id, ends, Seconds(10));
  INFO(ended.body);
  CHECK(ended.text("state") == "exited");
  CHECK(ended.body.find("42") != std::string::npos);
  CHECK(client.get("/v1/sandboxes/" + id + "/processes/" + ends + "/logs").body == "last words\n");

  // The counter's log has no gap and no repetition over the daemon's death.
  const auto counted = client.get("/v1/sandboxes/" + id + "/processes/" + counter + "/logs").body;
  std::istringstream lines(counted.substr(0, counted.rfind('\n') + 1));
  int expected = 0;
  for (int value = 0; lines >> value; ++expected) {
    REQUIRE(value == expected);
  }
  CHECK(expected > 50);
  const auto before_size = counted.size();
  CHECK(eventually(Seconds(5), [&] {
    return client.get("/v1/sandboxes/" + id + "/processes/" + counter + "/logs").body.size() >
           before_size;
  }));

  CHECK(client.del("/v1/sandboxes/" + id).status == 204);
  CHECK(daemon.processes("").empty());
}

TEST_CASE("a daemon killed again and again in the middle of creates settles every row") {
  Daemon::Options options;  // with sandboxes made ahead, taken or not
  options.env = {{"TALON_POOLS_LOW", "2"}, {"TALON_POOLS_HIGH", "8"}};
  Daemon daemon(options);
  for (int i = 0; i < 5; ++i) {
    auto client = daemon.client();
    std::vector<Connection> open;
    for (int k = 0; k < 4; ++k) {
      open.emplace_back(daemon.tcp());
      open.back().send(client.raw("POST", "/v1/sandboxes", "{}", {}));
    }
    nap(Seconds(0.004 * i));
    daemon.kill_hard();
    daemon.start();
  }
  const auto client = daemon.client();
  const auto list = client.get("/v1/sandboxes?limit=1000");
  REQUIRE(list.status == 200);
  std::size_t running = 0;
  for (const auto& item : list.at("items").get_array()) {
    const std::string id(item.at("id").get_string());
    std::string state;
    CHECK(eventually(Seconds(20), [&] {
      state = client.get("/v1/sandboxes/" + id).text("state");
      return state != "creating";
    }));
    INFO(id << " is " << state);
    CHECK((state == "running" || state == "failed" || state == "stopped"));
    if (state == "running") {
      ++running;
      CHECK(exit_code(run_in(client, id, "true")) == 0);
    }
    CHECK(client.del("/v1/sandboxes/" + id).status == 204);
  }
  WARN("after five kills: " << list.at("items").get_array().size() << " rows, " << running
                            << " running");
  // What had no row was ended by the reconcile.
  CHECK(eventually(Seconds(10), [&] { return daemon.processes("").empty(); }));
}
