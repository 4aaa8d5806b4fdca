// Pools: a create takes what was made before it and cannot tell; nobody else sees it; a daemon's
// death leaves nothing of it behind.
#include <catch2/catch.hpp>

#include <algorithm>
#include <set>

#include "support/daemon.h"
#include "support/machine.h"

using namespace talon::test;
namespace json = boost::json;

namespace {

Daemon::Options with_pools() {
  Daemon::Options options;
  options.env = {{"TALON_POOLS_LOW", "2"}, {"TALON_POOLS_HIGH", "4"}};
  return options;
}

double metric(const Daemon& daemon, const std::string& line) {
  const std::string text = "\n" + daemon.local().get("/metrics").body;
  const auto at = text.find("\n" + line + " ");
  return at == std::string::npos ? -1 : std::stod(text.substr(at + line.size() + 2));
}

bool full(const Daemon& daemon, double parts, double following, double warm) {
  return eventually(Seconds(30), [&] {
    return metric(daemon, "talon_pool_size{pool=\"parts\"}") == parts &&
           metric(daemon, "talon_pool_size{pool=\"tree\"}") == following &&
           metric(daemon, "talon_pool_size{pool=\"last\"}") == following &&
           metric(daemon, "talon_pool_size{pool=\"warm\"}") == warm;
  });
}

}  // namespace

TEST_CASE("sandboxes are made ahead and nobody sees them") {
  Daemon daemon(with_pools());
  const auto client = daemon.client();
  REQUIRE(full(daemon, 4, 0, 0));
  CHECK(client.get("/v1/sandboxes").at("items").get_array().empty());
  const std::set<std::string> ahead = [&] {
    std::set<std::string> ids;
    for (const auto& name : machine::entries(daemon.data() + "/sandboxes")) {
      ids.insert(name);
    }
    return ids;
  }();
  REQUIRE(ahead.size() == 4);
  for (const auto& id : ahead) {
    CHECK(client.get("/v1/sandboxes/" + id).status == 404);
    CHECK(client.del("/v1/sandboxes/" + id).status == 404);
  }
  const auto id = make_sandbox(client);
  CHECK(ahead.contains(id));
  // Also the first one, for which the image itself is made: the parts fit any.
  CHECK(metric(daemon, "talon_pool_hits_total{pool=\"parts\"}") == 1);
  CHECK(run_in(client, id, "echo made; pwd; id -u").text("stdout") == "made\n/workspace\n0\n");
  REQUIRE(full(daemon, 3, 4, 0));  // trees and whole ones follow what was asked for
  const auto second = make_sandbox(client);
  CHECK(metric(daemon, "talon_pool_hits_total{pool=\"last\"}") == 1);
  const auto user = make_sandbox(client, {{"user", "user"}, {"hostname", "named"}});
  CHECK(metric(daemon, "talon_pool_hits_total{pool=\"tree\"}") == 1);
  CHECK(run_in(client, user, "hostname; id -u; touch /workspace/f && stat -c %u /workspace/f")
            .text("stdout") == "named\n1000\n1000\n");
  const auto memory = make_sandbox(client, {{"storage", "memory"}});
  CHECK(metric(daemon, "talon_pool_misses_total{pool=\"tree\"}") >= 2);
  CHECK(run_in(client, memory, "true").status == 200);
  for (const auto& each : {id, second, user, memory}) {
    CHECK(client.del("/v1/sandboxes/" + each).status == 204);
    CHECK(client.get("/v1/sandboxes/" + each).status == 410);
  }
  CHECK(daemon.stop() == 0);
  CHECK(machine::groups_below(daemon.cgroup()).empty());
  CHECK(machine::entries(daemon.data() + "/sandboxes").empty());
}

TEST_CASE("warm sandboxes of an image are kept, taken and ended") {
  auto options = with_pools();
  options.env["TALON_POOLS_MAX_WARM"] = "5";
  Daemon daemon(options);
  auto admin = daemon.local();
  const auto client = daemon.client();
  const auto key = client.post("/v1/api-keys", {{"name", "other"}, {"role", "owner"}});
  REQUIRE(key.status == 201);
  CHECK(Client(daemon.tcp(), key.text("key")).get("/v1/prewarm").status == 403);
  CHECK(admin.put("/v1/prewarm/host", {{"size", 6}}).status == 400);
  CHECK(admin.put("/v1/prewarm/nowhere", {{"size", 1}}).status == 400);
  CHECK(admin.put("/v1/prewarm/host", {{"size", 0}}).status == 400);
  CHECK(admin.put("/v1/prewarm/host", {{"size", 1}, {"speed", 2}}).status == 400);
  CHECK(admin.del("/v1/prewarm/host").status == 404);
  const auto put = admin.put("/v1/prewarm/host", {{"size", 3}});
  INFO(put.body);
  REQUIRE(put.status == 200);
  CHECK(put.text("storage") == "disk");
  REQUIRE(full(daemon, 4, 0, 3));
  const auto listed = admin.get("/v1/prewarm");
  const json::array items = listed.at("items").get_array();
  REQUIRE(items.size() == 1);
  const json::object& item = items[0].get_object();
  CHECK(item.at("image").get_string() == "host");
  CHECK(item.at("ready").to_number<int>() == 3);
  CHECK(item.at("status").get_string() == "ready");
  CHECK(item.at("problem").is_null());
  CHECK(daemon.processes("").size() == 3);
  CHECK(client.get("/v1/sandboxes").at("items").get_array().empty());

  const auto id = make_sandbox(client);
  CHECK(metric(daemon, "talon_pool_hits_total{pool=\"warm\"}") == 1);
  CHECK(run_in(client, id, "echo $((6*7)); hostname").text("stdout") == "42\nsandbox\n");
  // Kept over a restart; the taken one is adopted as any sandbox is.
  CHECK(daemon.stop() == 0);
  CHECK(daemon.processes("") == daemon.processes(id));
  daemon.start();
  REQUIRE(full(daemon, 4, 0, 3));
  CHECK(run_in(daemon.client(), id, "echo on").text("stdout") == "on\n");
  admin = daemon.local();
  CHECK(admin.del("/v1/prewarm/host").status == 204);
  CHECK(eventually(Seconds(20), [&] { return daemon.processes("") == daemon.processes(id); }));
  CHECK(admin.get("/v1/prewarm").at("items").get_array().empty());
  CHECK(daemon.client().del("/v1/sandboxes/" + id).status == 204);
}

TEST_CASE("what a killed daemon had made ahead is reclaimed and counted") {
  Daemon daemon(with_pools());
  REQUIRE(daemon.local().put("/v1/prewarm/host", {{"size", 2}}).status == 200);
  REQUIRE(full(daemon, 4, 0, 2));
  const auto kept = make_sandbox(daemon.client(), {{"hostname", "kept"}});
  REQUIRE(full(daemon, 3, 4, 2));
  const auto before = machine::entries(daemon.data() + "/sandboxes");
  CHECK(before.size() == 14);
  daemon.kill_hard();
  CHECK(daemon.processes("").size() >= 7);  // whole ones do not end by themselves
  daemon.start();
  CHECK(metric(daemon, "talon_prewarm_reclaimed_total{outcome=\"removed\"}") == 13);
  CHECK(metric(daemon, "talon_prewarm_reclaimed_total{outcome=\"left\"}") == 0);
  REQUIRE(full(daemon, 4, 0, 2));
  for (const auto& name : machine::entries(daemon.data() + "/sandboxes")) {
    INFO(name);  // none of the dead daemon's is used again
    CHECK((name == kept || std::find(before.begin(), before.end(), name) == before.end()));
  }
  CHECK(run_in(daemon.client(), kept, "hostname").text("stdout") == "kept\n");
  CHECK(daemon.client().del("/v1/sandboxes/" + kept).status == 204);
  CHECK(daemon.stop() == 0);
  CHECK(daemon.processes("").empty());
  CHECK(machine::groups_below(daemon.cgroup()).empty());
  CHECK(machine::entries(daemon.data() + "/sandboxes").empty());
}
