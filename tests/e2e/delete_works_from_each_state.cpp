#include <catch2/catch.hpp>

#include <fstream>

#include "support/daemon.h"
#include "support/machine.h"

using namespace talon::test;
namespace json = boost::json;

namespace {

// From now on the kernel refuses to make another cgroup below: creates fail after their row.
void forbid_groups(const Daemon& daemon) {
  std::ofstream(daemon.cgroup() + "/cgroup.max.descendants")
      << machine::groups_below(daemon.cgroup()).size();
}

}  // namespace

TEST_CASE("a sandbox is deleted while it is being created") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto before = daemon.snapshot();
  for (int i = 0; i < 10; ++i) {
    const auto made = client.post("/v1/sandboxes", json::object());
    REQUIRE(made.status == 201);
    const auto id = made.text("id");
    nap(Seconds(0.001 * i));  // the delete meets another step each time
    const auto reply = client.del("/v1/sandboxes/" + id);
    INFO("after " << i << " ms: " << reply.body);
    CHECK(reply.status == 204);
    CHECK(client.get("/v1/sandboxes/" + id).status == 410);
  }
  CHECK(daemon.settled(before, Seconds(10)) == std::vector<std::string>());
}

TEST_CASE("a running sandbox with busy processes is deleted") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto before = daemon.snapshot();
  const auto id = make_sandbox(client);
  spawn_in(client, id, json::object{{"command", "trap '' TERM HUP INT; while :; do :; done"}});
  spawn_in(client, id, json::object{{"command", "setsid sh -c 'sleep 1000 & exec sleep 1000' &"}});
  spawn_in(client, id, json::object{{"command", "kill -STOP $$"}});
  spawn_in(client, id, json::object{{"command", "yes"}});
  const auto reply = client.del("/v1/sandboxes/" + id);
  CHECK(reply.status == 204);
  CHECK(reply.seconds < 5);
  CHECK(daemon.processes(id).empty());
  CHECK(daemon.settled(before, Seconds(10)) == std::vector<std::string>());
}

TEST_CASE("a failed create leaves a failed sandbox that can be deleted") {
  Daemon daemon;
  const auto client = daemon.client();
  // One round first, so that groups that stay (the instance's own) exist.
  client.del("/v1/sandboxes/" + make_sandbox(client));
  REQUIRE(eventually(Seconds(10), [&] { return daemon.processes("").empty(); }));
  const auto before = daemon.snapshot();
  nap(Seconds(0.2));
  forbid_groups(daemon);

  const auto failed = client.post("/v1/sandboxes?wait=running", json::object());
  INFO(failed.status << " " << failed.body);
  CHECK(failed.status == 500);
  CHECK(failed.text("code") == "create_failed");
  const auto id = failed.text("id");
  REQUIRE(id.starts_with("sb"));
  const auto row = client.get("/v1/sandboxes/" + id);
  CHECK(row.status == 200);
  CHECK(row.text("state") == "failed");
  const auto run = client.post("/v1/sandboxes/" + id + "/run", json::object{{"command", "true"}});
  CHECK(run.status == 409);
  CHECK(run.text("code") == "wrong_state");
  CHECK(run.text("state") == "failed");
  CHECK(client.del("/v1/sandboxes/" + id).status == 204);
  CHECK(client.get("/v1/sandboxes/" + id).status == 410);
  CHECK(daemon.settled(before, Seconds(10)) == std::vector<std::string>());

  std::ofstream(daemon.cgroup() + "/cgroup.max.descendants") << "max";
  CHECK(exit_code(run_in(client, make_sandbox(client), "true")) == 0);
}

TEST_CASE("a stopped sandbox keeps its files, starts again, and is deleted") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto before = daemon.snapshot();
  const auto id = make_sandbox(client);
  run_in(client, id, "echo kept > /workspace/w; echo kept > /opt/r");
  const auto stopped = client.post("/v1/sandboxes/" + id + "/stop", json::object());
  INFO(stopped.body);
  REQUIRE(stopped.status == 200);
  CHECK(stopped.text("state") == "stopped");
  CHECK(daemon.processes(id).empty());
  const auto refused =
      client.post("/v1/sandboxes/" + id + "/run", json::object{{"command", "true"}});
  CHECK(refused.status == 409);
  CHECK(refused.text("state") == "stopped");
  const auto started = client.post("/v1/sandboxes/" + id + "/start", json::object());
  INFO(started.body);
  REQUIRE(started.status == 200);
  CHECK(run_in(client, id, "cat /workspace/w /opt/r").text("stdout") == "kept\nkept\n");
  REQUIRE(client.post("/v1/sandboxes/" + id + "/stop", json::object()).status == 200);
  CHECK(client.del("/v1/sandboxes/" + id).status == 204);
  CHECK(daemon.settled(before, Seconds(10)) == std::vector<std::string>());
}
