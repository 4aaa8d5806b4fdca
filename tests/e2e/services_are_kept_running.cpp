// A dev server is there again after whatever ended it: itself, a stop, the daemon, the host.
#include <catch2/catch.hpp>

#include "support/daemon.h"

using namespace talon::test;
namespace json = boost::json;

namespace {

json::value service(const Client& client, const std::string& id, const std::string& name) {
  return client.get("/v1/sandboxes/" + id + "/services/" + name).json();
}

std::string member(const json::value& view, const char* name) {
  const auto* value = view.is_object() ? view.as_object().if_contains(name) : nullptr;
  return value != nullptr && value->is_string() ? std::string(value->as_string()) : "";
}

bool answers(const Client& client, const std::string& id) {
  return run_in(client, id,
                "python3 -c \"import urllib.request as u; "
                "print(u.urlopen('http://127.0.0.1:8000/').status)\"")
             .text("stdout") == "200\n";
}

}  // namespace

TEST_CASE("a web server is back after kill, stop and start, and the daemon's death") {
  Daemon daemon;
  auto client = daemon.client();
  const auto id = make_sandbox(client, {{"command", "exec python3 -m http.server 8000"},
                                        {"restart", "always"},
                                        {"backoff", {{"first", "200ms"}}}});
  const auto path = "/v1/sandboxes/" + id;
  REQUIRE(eventually(Seconds(20), [&] { return answers(client, id); }));
  const auto first = member(service(client, id, "main"), "process");

  REQUIRE(client.post(path + "/processes/" + first + "/signal", json::object{{"signal", "KILL"}})
              .status == 204);
  REQUIRE(eventually(Seconds(20), [&] {
    return service(client, id, "main").at("restarts") == json::value(1) && answers(client, id);
  }));
  CHECK(service(client, id, "main").at("last_exit").at("signal") == json::value(9));

  REQUIRE(client.post(path + "/stop", json::object()).status == 200);
  CHECK(member(service(client, id, "main"), "state") == "stopped");
  REQUIRE(client.post(path + "/start", json::object()).status == 200);
  REQUIRE(eventually(Seconds(20), [&] { return answers(client, id); }));

  // While no daemon runs the server goes on: the next one finds the same process.
  const auto living = member(service(client, id, "main"), "process");
  const auto pids = daemon.processes(id);
  daemon.kill_hard();
  CHECK(daemon.processes(id) == pids);
  daemon.start();
  client = daemon.client();
  CHECK(member(service(client, id, "main"), "process") == living);
  CHECK(member(service(client, id, "main"), "state") == "running");
  CHECK(answers(client, id));
}

TEST_CASE("a service that ended while no daemon ran is started once when one is back") {
  Daemon daemon;
  auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto path = "/v1/sandboxes/" + id;
  const auto put = [&](const std::string& name, const std::string& command, const char* restart) {
    const json::object body{
        {"command", command}, {"restart", restart}, {"backoff", {{"first", "100ms"}}}};
    REQUIRE(client.request("PUT", path + "/services/" + name, json::serialize(body)).status == 201);
    REQUIRE(eventually(Seconds(10), [&] {
      return client
                 .get(path + "/processes/" + member(service(client, id, name), "process") + "/logs")
                 .body == "go\n";
    }));
  };
  // Each start adds a line; the second one stays.
  const std::string once = "; [ $(wc -l < /workspace/$N) = 1 ] && { sleep 1; exit 7; }; sleep 3000";
  put("always", "N=always; echo go; echo x >> /workspace/$N" + once, "always");
  put("failed", "N=failed; echo go; echo x >> /workspace/$N" + once, "on-failure");
  put("never", "N=never; echo go; echo x >> /workspace/$N" + once, "no");
  daemon.kill_hard();
  nap(Seconds(1.5));
  daemon.start();
  client = daemon.client();
  const auto lines = [&](const std::string& name) {
    return run_in(client, id, "wc -l < /workspace/" + name).text("stdout");
  };
  for (const std::string name : {"always", "failed"}) {
    INFO(name << ": " << json::serialize(service(client, id, name)));
    CHECK(eventually(Seconds(10), [&] { return lines(name) == "2\n"; }));
    CHECK(member(service(client, id, name), "state") == "running");
    CHECK(service(client, id, name).at("last_exit").at("exit_code") == json::value(7));
  }
  CHECK(eventually(Seconds(10),
                   [&] { return member(service(client, id, "never"), "state") == "stopped"; }));
  CHECK(lines("never") == "1\n");
  // Once more: what runs is adopted, nothing is started a second time.
  daemon.kill_hard();
  daemon.start();
  client = daemon.client();
  nap(Seconds(0.5));
  CHECK(lines("always") == "2\n");
  CHECK(lines("failed") == "2\n");
  CHECK(lines("never") == "1\n");

  CHECK(client.del(path + "/services/always").status == 204);
  CHECK(client.del(path + "/services/always").status == 404);
  CHECK(client.del(path).status == 204);
  CHECK(daemon.processes("").empty());
}

TEST_CASE("after a reboot of the host sandboxes are stopped, with their files, and start again") {
  Daemon::Options options;
  options.env = {{"TALON_TEST_BOOT_ID", "boot-a"}};
  Daemon daemon(options);
  auto client = daemon.client();
  const auto id = make_sandbox(
      client, {{"command", "echo up >> /workspace/starts; sleep 3000"}, {"restart", "always"}});
  const auto path = "/v1/sandboxes/" + id;
  const auto frozen = make_sandbox(client);
  run_in(client, id, "echo w > /workspace/f; echo r > /root/f");
  REQUIRE(client.post("/v1/sandboxes/" + frozen + "/pause", json::object()).status == 200);
  daemon.reboot("boot-b");
  client = daemon.client();
  for (const auto& one : {id, frozen}) {
    const auto row = client.get("/v1/sandboxes/" + one);
    CHECK(row.text("state") == "stopped");
    CHECK(row.text("certificate.reason") == "host_reboot");
  }
  const auto report = daemon.local().get("/v1/reconcile");
  INFO(report.body);
  CHECK(report.at("counts.stopped") == json::value(2));
  CHECK(report.at("counts.adopted") == json::value(0));
  REQUIRE(client.post(path + "/start", json::object()).status == 200);
  CHECK(run_in(client, id, "cat /workspace/f /root/f").text("stdout") == "w\nr\n");
  CHECK(eventually(Seconds(10), [&] {
    return run_in(client, id, "cat /workspace/starts").text("stdout") == "up\nup\n";
  }));
  // By configuration: what has a service of `restart: always`, and nothing else.
  daemon.set_env("TALON_START_AFTER_REBOOT", "true");
  daemon.reboot("boot-c");
  client = daemon.client();
  CHECK(eventually(Seconds(20), [&] { return client.get(path).text("state") == "running"; }));
  CHECK(eventually(Seconds(10), [&] {
    return run_in(client, id, "cat /workspace/starts").text("stdout") == "up\nup\nup\n";
  }));
  CHECK(client.get("/v1/sandboxes/" + frozen).text("state") == "stopped");
}
