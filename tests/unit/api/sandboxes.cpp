// The life of a sandbox through the API, over the fake isolator.
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <thread>

#include "fake_isolator.h"
#include "harness.h"
#include "store/tables.h"

using namespace talon;
using namespace talon::test;

namespace {

std::string reason(const Reply& reply) {
  const auto value = reply.json();
  const auto* certificate = value.as_object().if_contains("certificate");
  return certificate != nullptr && certificate->is_object()
             ? std::string{certificate->at("reason").as_string()}
             : std::string{};
}

}  // namespace

TEST_CASE("create, get, list, patch, delete") {
  Harness h;
  const Reply made = h.call("POST", "/v1/sandboxes?wait=running",
                            R"({"image":"base","name":"one","labels":{"t":"a"},"user":"user"})");
  INFO(made.body);
  REQUIRE(made.status == 201);
  CHECK(made.text("state") == "running");
  const std::string id = made.text("id");
  const std::string path = "/v1/sandboxes/" + id;
  CHECK(made.header("etag") == h.call("GET", path).header("etag"));
  CHECK(std::filesystem::exists(h.dir() + "/data/sandboxes/" + id + "/logs"));

  const auto list = [&](const std::string& query) {
    return h.call("GET", "/v1/sandboxes" + query).json().at("items").as_array().size();
  };
  CHECK(list("") == 1);
  CHECK(list("?label=t%3Da") == 1);
  CHECK(list("?label=t%3Db") == 0);
  CHECK(list("?state=stopped") == 0);
  CHECK(list("?state=stopped&state=running") == 1);

  CHECK(h.call("POST", "/v1/sandboxes", R"({"image":"base","name":"one"})").text("code") ==
        "conflict");

  const std::string tag = h.call("GET", path).header("etag");
  const Reply changed = h.call("PATCH", path, R"({"labels":{"t":"b"}})", {{"If-Match", tag}});
  INFO(changed.body);
  CHECK(changed.status == 200);
  CHECK(changed.json().at("labels").at("t").as_string() == "b");
  const Reply stale = h.call("PATCH", path, R"({"labels":{}})", {{"If-Match", tag}});
  CHECK(stale.status == 412);
  CHECK(stale.text("code") == "precondition_failed");

  CHECK(h.call("DELETE", path).status == 204);
  CHECK(h.call("DELETE", path).status == 204);
  const Reply gone = h.call("GET", path);
  CHECK(gone.status == 410);
  CHECK(reason(gone) == "user");
  CHECK(h.call("POST", path + "/run", R"({"argv":["x"]})").status == 410);
  CHECK(list("") == 0);
  CHECK(list("?state=deleted") == 1);
  CHECK_FALSE(std::filesystem::exists(h.dir() + "/data/sandboxes/" + id));
  CHECK(h.until([&] { return std::filesystem::is_empty(h.dir() + "/data/trash"); }));
  CHECK(std::filesystem::is_empty(h.dir() + "/data/workspaces"));
  const auto events = h.call("GET", path + "/events").json().at("items").as_array();
  std::vector<std::string> types;
  for (const auto& event : events) {
    types.emplace_back(event.at("type").as_string());
  }
  CHECK(types == std::vector<std::string>{"sandbox.created", "sandbox.running", "sandbox.changed",
                                          "sandbox.deleting", "sandbox.deleted"});
}

TEST_CASE("what cannot be made makes no row, what fails keeps its reason") {
  Harness h;
  const Reply image = h.call("POST", "/v1/sandboxes", R"({"image":"nosuch"})");
  CHECK(image.status == 400);
  CHECK(image.text("field") == "image");
  const Reply user = h.call("POST", "/v1/sandboxes", R"({"image":"base","user":"zork"})");
  CHECK(user.status == 400);
  CHECK(user.text("field") == "user");
  CHECK(h.call("POST", "/v1/sandboxes", R"({"image":"base","user":"user:zork"})").text("field") ==
        "user");
  const Reply limit = h.call("POST", "/v1/sandboxes", R"({"image":"base","resources":{"cpu":1}})");
  CHECK(limit.status == 422);
  CHECK(limit.text("code") == "unenforceable");
  CHECK(h.call("GET", "/v1/sandboxes").json().at("items").as_array().empty());

  h.fake().fail_create = fail_sys(EPERM, "step 7, mount overlay").error();
  const Reply failed = h.call("POST", "/v1/sandboxes?wait=running", R"({"image":"base"})");
  CHECK(failed.status == 500);
  CHECK(failed.text("code") == "create_failed");
  CHECK(failed.text("detail").find("step 7") != std::string::npos);
  const std::string path = "/v1/sandboxes/" + failed.text("id");
  const Reply row = h.call("GET", path);
  CHECK(row.text("state") == "failed");
  CHECK(reason(row) == "error");
  CHECK(h.call("POST", path + "/run", R"({"argv":["x"]})").text("state") == "failed");
  CHECK(h.call("POST", path + "/stop").status == 409);
  CHECK(std::filesystem::is_empty(h.dir() + "/data/sandboxes"));
  CHECK(h.call("DELETE", path).status == 204);
  CHECK(reason(h.call("GET", path)) == "error");
}

TEST_CASE("waiting is bounded, and the sandbox is made all the same") {
  Harness h;
  h.fake().during_create = [] { std::this_thread::sleep_for(std::chrono::milliseconds(150)); };
  const Reply late =
      h.call("POST", "/v1/sandboxes?wait=running&wait_timeout=0.01", R"({"image":"base"})");
  CHECK(late.status == 504);
  CHECK(late.text("state") == "creating");
  const std::string path = "/v1/sandboxes/" + late.text("id");
  CHECK(h.until([&] { return h.call("GET", path).text("state") == "running"; }));
  CHECK(h.call("POST", "/v1/sandboxes?wait=running&wait_timeout=301s", "{}").text("field") ==
        "wait_timeout");
  const Reply unwaited = h.call("POST", "/v1/sandboxes?wait_timeout=5", R"({"image":"base"})");
  CHECK(unwaited.status == 400);
  CHECK(unwaited.text("code") == "invalid_request");
  CHECK(unwaited.text("field") == "wait_timeout");
  CHECK(h.call("POST", "/v1/sandboxes?wait=stopped", "{}").text("field") == "wait");
}

TEST_CASE("the descriptor budget and the disk reserve refuse new sandboxes, naming the limit") {
  Harness h;
  for (int i = 0; i < 5; ++i) {
    REQUIRE_FALSE(h.make().empty());
  }
  const Reply full = h.call("POST", "/v1/sandboxes", R"({"image":"base"})");
  CHECK(full.status == 503);
  CHECK(full.text("limit") == "descriptors");
  CHECK_FALSE(full.header("retry-after").empty());

  Harness other;
  other.fake().fail_create = fail_sys(ENOSPC, "make directory").error();
  CHECK(other.call("POST", "/v1/sandboxes?wait=running", R"({"image":"base"})").status == 500);
  // The reserve was given up; the reaper makes it again as soon as it can, so look at once.
  const Reply disk = other.call("POST", "/v1/sandboxes", R"({"image":"base"})");
  CHECK((disk.status == 507 || disk.status == 201));
  CHECK(other.until([&] { return other.node().reserve_present(); }));
}

TEST_CASE("init's death stops the sandbox with a reason, and it can be started") {
  Harness h;
  const std::string id = h.make();
  const std::string path = "/v1/sandboxes/" + id;
  const std::string px =
      h.call("POST", path + "/processes", R"({"argv":["out","x","hang"]})").text("id");
  h.fake().live[id]->die();
  REQUIRE(h.until([&] { return h.call("GET", path).text("state") == "stopped"; }));
  CHECK(reason(h.call("GET", path)) == "error");
  const Reply exec = h.call("GET", path + "/processes/" + px);
  CHECK(exec.text("state") == "exited");
  const Reply refused = h.call("POST", path + "/run", R"({"argv":["out","x"]})");
  CHECK(refused.status == 409);
  CHECK(refused.text("state") == "stopped");
  CHECK(h.call("POST", path + "/start").text("state") == "running");
  CHECK(h.call("POST", path + "/run", R"({"argv":["out","again"]})").text("stdout") == "again");
  CHECK(h.call("POST", path + "/start").text("state") == "running");
  CHECK(h.call("POST", path + "/stop").text("state") == "stopped");
}

TEST_CASE("a second operation waits its turn and says what holds the sandbox") {
  Harness h;
  h.fake().during_create = [] { std::this_thread::sleep_for(std::chrono::milliseconds(300)); };
  const Reply made = h.call("POST", "/v1/sandboxes", R"({"image":"base"})");
  REQUIRE(made.status == 201);
  CHECK(made.text("state") == "creating");
  CHECK(made.text("operation") == "create");
  // DELETE meets the create at work and comes after it.
  CHECK(h.call("DELETE", "/v1/sandboxes/" + made.text("id")).status == 204);
  CHECK(h.call("GET", "/v1/sandboxes/" + made.text("id")).status == 410);
}

TEST_CASE("the life timeout deletes the sandbox, with its reason") {
  Harness h;
  const std::string path = "/v1/sandboxes/" + h.make(R"({"image":"base","timeout":1})");
  REQUIRE(h.until([&] { return h.call("GET", path).status == 410; }));
  CHECK(reason(h.call("GET", path)) == "timeout");
}

TEST_CASE("a restart adopts what lives, and settles the rest with a reason") {
  Harness h;
  const std::string lives = h.make();
  const std::string dies = h.make();
  const std::string path = "/v1/sandboxes/" + lives;
  const std::string px =
      h.call("POST", path + "/processes", R"({"argv":["out","tick","hang"]})").text("id");
  const std::string done = h.call("POST", path + "/run", R"({"argv":["exit","3"]})").text("id");
  h.fake().live[dies]->die();
  h.restart();
  CHECK(h.fake().kept == std::vector<std::string>{lives});
  CHECK(h.call("GET", path).text("state") == "running");
  CHECK(reason(h.call("GET", "/v1/sandboxes/" + dies)) == "error");
  CHECK(h.call("GET", path + "/processes/" + px).text("state") == "running");
  CHECK(h.call("GET", path + "/processes/" + done).json().at("result").at("exit_code") == 3);
  CHECK(h.call("GET", path + "/processes/" + px + "/logs").body == "tick");
  CHECK(h.call("POST", path + "/run", R"({"argv":["out","new"]})").text("stdout") == "new");
}

TEST_CASE("another boot id is host_reboot") {
  Harness h;
  const std::string path = "/v1/sandboxes/" + h.make();
  std::string old_identity;
  REQUIRE(h.store().write([&](store::Db& db) -> Result<> {
    TALON_TRY(row, store::get_sandbox(db, "", path.substr(path.rfind('/') + 1)));
    row.identity_json.replace(row.identity_json.find("boot-1"), 6, "boot-0");
    return store::update_sandbox(db, row);
  }));
  h.restart();
  CHECK(h.call("GET", path).text("state") == "stopped");
  CHECK(reason(h.call("GET", path)) == "host_reboot");
}

TEST_CASE("orphan directories go to trash at start") {
  Harness h;
  const std::string id = h.make();
  std::filesystem::create_directories(h.dir() + "/data/sandboxes/sbforgotten/upper/a/b");
  std::filesystem::create_directories(h.dir() + "/data/workspaces/wsforgotten/g1");
  h.restart();
  CHECK_FALSE(std::filesystem::exists(h.dir() + "/data/sandboxes/sbforgotten"));
  CHECK_FALSE(std::filesystem::exists(h.dir() + "/data/workspaces/wsforgotten"));
  CHECK(std::filesystem::exists(h.dir() + "/data/sandboxes/" + id));
  CHECK(h.until([&] { return std::filesystem::is_empty(h.dir() + "/data/trash"); }));
}
