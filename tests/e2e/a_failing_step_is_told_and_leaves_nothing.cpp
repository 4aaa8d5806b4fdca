// Fault points (base/fault.h) that fail instead of stopping: each step that can fail does so once,
// with an I/O error and with a full disk, while the daemon goes on. The answer is a problem that
// says what failed, the state that is told is the true one, and nothing is left of what failed.
#include <catch2/catch.hpp>

#include <filesystem>

#include "e2e/fault_points.h"
#include "support/daemon.h"
#include "support/machine.h"

using namespace talon::test;
namespace json = boost::json;

namespace {

// The fault of a daemon that runs (TALON_TEST_FAULT=@file).
void set_fault(const std::string& file, const std::string& fault) {
  std::ofstream(file + ".new") << fault;
  std::filesystem::rename(file + ".new", file);
}

Daemon::Options quiet() {
  Daemon::Options options;
  options.start = false;
  // What is made ahead comes and goes by itself; here all that is there was asked for.
  options.env = {{"TALON_POOLS_LOW", "0"}, {"TALON_POOLS_HIGH", "0"}};
  return options;
}

// `wanted`, or a problem of the server that says what it is. Whether it was `wanted`.
bool answered(const Reply& reply, int wanted) {
  INFO(reply.status << " " << reply.error << " " << reply.body);
  if (reply.status == wanted) {
    return true;
  }
  CHECK((reply.status == 500 || reply.status == 503 || reply.status == 507));
  CHECK(reply.header("content-type") == "application/problem+json");
  CHECK_FALSE(reply.text("code").empty());
  CHECK_FALSE(reply.text("detail").empty());
  return false;
}

std::string state_of(const Client& client, const std::string& id) {
  return client.get("/v1/sandboxes/" + id).text("state");
}

// A sandbox that is told to run does run.
void check_state(const Client& client, const std::string& id) {
  const auto state = state_of(client, id);
  INFO(id << " is " << state);
  CHECK((state == "running" || state == "stopped" || state == "failed" || state == "deleting"));
}

// One life; the fault strikes somewhere in it, at most once.
void live(const Client& client) {
  const auto made = client.post("/v1/sandboxes?wait=running",
                                json::object{{"command", "sleep 3000"}, {"restart", "always"}});
  if (!answered(made, 201)) {
    return;
  }
  const auto id = made.text("id");
  const auto base = "/v1/sandboxes/" + id;
  if (made.text("state") == "running") {
    const auto ran = client.post(base + "/run", json::object{{"command", "echo out; exit 3"}});
    if (answered(ran, 200)) {
      CHECK(exit_code(ran) == 3);
      CHECK(ran.text("stdout") == "out\n");
    }
    answered(client.post(base + "/processes", json::object{{"command", "sleep 3000"}}), 201);
    answered(client.request("PUT", base + "/services/web", R"({"command":"sleep 3000"})"), 201);
    if (answered(client.post(base + "/stop", json::object()), 200)) {
      CHECK(state_of(client, id) == "stopped");
    }
    check_state(client, id);
    if (state_of(client, id) == "stopped" &&
        answered(client.post(base + "/start", json::object()), 200)) {
      CHECK(state_of(client, id) == "running");
    }
  }
  check_state(client, id);
  if (state_of(client, id) == "running") {
    const auto ran = client.post(base + "/run", json::object{{"command", "exit 4"}});
    // 409: a stop that failed half-way has ended it, and that is being noticed now.
    if (ran.status != 409 && answered(ran, 200)) {
      CHECK(exit_code(ran) == 4);
    }
  }
  if (!answered(client.del(base), 204)) {
    check_state(client, id);
  }
}

// What a fault has left is there to be seen and deleted; then there is nothing.
void clean_up(const Client& client) {
  const auto list = client.get("/v1/sandboxes?limit=1000");
  REQUIRE(list.status == 200);
  for (const auto& item : list.at("items").get_array()) {
    const std::string id(item.at("id").get_string());
    INFO(json::serialize(item));
    check_state(client, id);
    CHECK(client.del("/v1/sandboxes/" + id).status == 204);
  }
}

// After a full disk nothing is made until the reserve is back.
bool makes_again(const Client& client) {
  return eventually(Seconds(20), [&] {
    const auto made = client.post("/v1/sandboxes?wait=running", json::object());
    return made.status == 201 && client.del("/v1/sandboxes/" + made.text("id")).status == 204;
  });
}

}  // namespace

TEST_CASE("each step of a sandbox's life that fails is told and leaves nothing") {
  Daemon daemon(quiet());
  const auto trace = daemon.run() + ".points";
  const auto fault = daemon.run() + ".fault";
  set_fault(fault, "");
  daemon.set_env("TALON_TEST_FAULT", "@" + fault);
  daemon.set_env("TALON_TEST_FAULT_TRACE", trace);
  daemon.start();
  const auto pid = daemon.pid();
  const auto client = daemon.local();
  REQUIRE(makes_again(client));
  const auto empty = daemon.snapshot();
  const auto skip = lines_in(trace);
  live(client);
  CHECK(daemon.settled(empty, Seconds(20)) == std::vector<std::string>{});
  std::set<std::string> walked;
  int struck = 0;
  for (const FaultPoint& point : points_in(trace, skip)) {
    for (int pass = 1; point.fails && pass <= point.passes; ++pass) {
      for (const auto* kind : {"fail:", "full:"}) {
        const auto wish = kind + point.name + "#" + std::to_string(pass);
        INFO(wish);
        set_fault(fault, wish);
        live(client);
        set_fault(fault, "");
        ++struck;
        clean_up(client);
        REQUIRE(daemon.pid() == pid);
        CHECK(makes_again(client));
        CHECK(daemon.settled(empty, Seconds(20)) == std::vector<std::string>{});
        walked.insert(point.name);
      }
    }
  }
  WARN(told(walked) << "; " << struck << " faults");
  CHECK(walked.contains("store.commit"));
  CHECK(walked.contains("end.kill"));
  CHECK(daemon.stop() == 0);
  machine::remove_tree(trace);
  machine::remove_tree(fault);
}

TEST_CASE("a start with a step that fails is refused with a reason or goes well") {
  Daemon daemon(quiet());
  const auto trace = daemon.run() + ".points";
  daemon.start();
  const auto empty = daemon.snapshot();
  const auto prepare = [&daemon] {
    const auto client = daemon.local();
    const auto id = make_sandbox(client);
    spawn_in(client, id, {{"command", "sleep 3000"}});
    const auto stopped = make_sandbox(client);
    CHECK(client.post("/v1/sandboxes/" + stopped + "/stop", json::object()).status == 200);
    daemon.kill_hard();
  };
  const auto emptied = [&daemon, &empty] {
    clean_up(daemon.local());
    CHECK(daemon.settled(empty, Seconds(20)) == std::vector<std::string>{});
  };
  prepare();
  daemon.set_env("TALON_TEST_FAULT_TRACE", trace);
  daemon.start();
  const auto points = points_in(trace);
  daemon.set_env("TALON_TEST_FAULT_TRACE", "");
  emptied();
  std::set<std::string> walked;
  int refused = 0;
  for (const FaultPoint& point : points) {
    for (const auto* kind : {"fail:", "full:"}) {
      if (!point.fails) {
        continue;
      }
      INFO(kind << point.name);
      prepare();
      const auto before = daemon.log().size();
      daemon.set_env("TALON_TEST_FAULT", kind + point.name);
      // The last step of a start is the file that says where it listens: when that one fails, the
      // file may be there.
      const bool up = daemon.start_or_end() && daemon.local().get("/v1/sandboxes").status == 200;
      if (!up) {
        ++refused;
        if (daemon.pid() > 0) {
          CHECK(daemon.wait(Seconds(20)) == 1);
        }
        CHECK(daemon.log().find("fault point " + point.name, before) != std::string::npos);
        daemon.set_env("TALON_TEST_FAULT", "");
        daemon.start();
      }
      walked.insert(point.name);
      daemon.set_env("TALON_TEST_FAULT", "");
      emptied();
    }
  }
  WARN(told(walked) << "; " << refused << " starts refused");
  CHECK(walked.contains("adopt.hello"));
  machine::remove_tree(trace);
}
