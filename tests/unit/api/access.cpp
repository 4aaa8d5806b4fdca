// Who may do what, keys, audit, idempotency.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "fake_isolator.h"
#include "harness.h"
#include "store/tables.h"

using namespace talon;
using namespace talon::test;

namespace {

std::vector<store::AuditRow> audit(Harness& h) {
  h.store().flush();
  std::vector<store::AuditRow> rows;
  const auto read = h.store().read([&](store::Db& db) -> Result<> {
    TALON_TRY(mine, store::find_tenant_by_name(db, "default"));
    TALON_TRY(found, store::list_audit(db, mine->id, 0, 1000));
    rows = std::move(found);
    return {};
  });
  REQUIRE(read);
  return rows;
}

Headers bearer(const std::string& key) { return {{"authorization", "Bearer " + key}}; }

}  // namespace

TEST_CASE("credentials: one, known, not in the query") {
  Harness h;
  CHECK(h.call("GET", "/healthz", "", {{"authorization", ""}}).status == 200);
  CHECK(h.call("GET", "/readyz", "", {{"authorization", ""}}).status == 200);
  CHECK(h.call("GET", "/openapi.json", "", {{"authorization", ""}}).json().is_object());
  const Reply nobody = h.call("GET", "/v1/sandboxes", "", {{"authorization", ""}});
  CHECK(nobody.status == 401);
  CHECK_FALSE(nobody.header("www-authenticate").empty());
  CHECK(h.call("GET", "/v1/sandboxes", "", bearer("tk_wrong")).status == 401);
  CHECK(h.call("GET", "/v1/sandboxes", "", {{"authorization", "Basic eDp5"}}).status == 401);
  CHECK(h.call("GET", "/v1/sandboxes", "", {{"x-api-key", h.admin_key()}}).status == 200);
  CHECK(h.call("GET", "/v1/sandboxes", "", {{"authorization", "bearer " + h.admin_key()}}).status ==
        200);
  Headers both = bearer(h.admin_key());
  both.emplace_back("x-api-key", h.admin_key());
  CHECK(h.call("GET", "/v1/sandboxes", "", both).status == 401);
  const Reply query = h.call("GET", "/v1/sandboxes?api_key=" + h.admin_key());
  CHECK(query.status == 400);
  CHECK(query.text("detail").find("Authorization") != std::string::npos);
  CHECK(query.body.find(h.admin_key()) == std::string::npos);
  CHECK(h.call("GET", "/v1/sandboxes?limit=1&limit=2").text("field") == "limit");
}

TEST_CASE("roles: each may what its role needs and no more") {
  Harness h;
  const std::string id = h.make();
  const auto key = [&](const std::string& body) {
    const Reply made = h.call("POST", "/v1/api-keys", body);
    REQUIRE(made.status == 201);
    return made.text("key");
  };
  const std::string viewer = key(R"({"role":"viewer"})");
  const std::string developer = key(R"({"name":"dev"})");
  const std::string owner = key(R"({"role":"owner"})");
  CHECK(viewer.starts_with("tk_"));
  CHECK(viewer.size() == 51);
  const std::string path = "/v1/sandboxes/" + id;
  CHECK(h.call("GET", path, "", bearer(viewer)).status == 200);
  const Reply denied = h.call("DELETE", path, "", bearer(viewer));
  CHECK(denied.status == 403);
  CHECK(denied.text("code") == "forbidden");
  CHECK(h.call("POST", path + "/run", R"({"argv":["out","x"]})", bearer(developer)).status == 200);
  CHECK(h.call("GET", "/v1/api-keys", "", bearer(developer)).status == 403);
  CHECK(h.call("GET", "/v1/api-keys", "", bearer(owner)).status == 200);
  CHECK(h.call("GET", "/v1/host", "", bearer(owner)).status == 403);
  CHECK(h.call("GET", "/metrics", "", bearer(owner)).status == 403);
  CHECK(h.call("POST", "/v1/api-keys", R"({"role":"node_admin"})", bearer(owner)).status == 403);
  // Nor may an owner shut the administrators out.
  const Reply admin = h.call("POST", "/v1/api-keys", R"({"role":"node_admin"})");
  REQUIRE(admin.status == 201);
  const std::string admin_path = "/v1/api-keys/" + admin.text("id");
  CHECK(h.call("DELETE", admin_path, "", bearer(owner)).text("code") == "forbidden");
  CHECK(h.call("GET", "/v1/host", "", bearer(admin.text("key"))).status == 200);
  CHECK(h.call("DELETE", admin_path, "", bearer(admin.text("key"))).status == 204);
  CHECK(h.call("GET", "/metrics").body.find("talon_sandboxes{state=\"running\"} 1") !=
        std::string::npos);

  const auto rows = audit(h);
  const auto count = [&](const std::string& action, const std::string& outcome) {
    return std::count_if(rows.begin(), rows.end(), [&](const store::AuditRow& row) {
      return row.action == action && row.outcome == outcome;
    });
  };
  CHECK(count("createSandbox", "allowed") == 1);
  CHECK(count("deleteSandbox", "denied") == 1);
  CHECK(count("listApiKeys", "denied") == 1);
  CHECK(count("listApiKeys", "allowed") == 0);
  CHECK(count("runCommand", "allowed") == 1);
  CHECK(count("createApiKey", "denied") == 1);
}

TEST_CASE("keys: expiry, revocation, scope to one sandbox; secrets are shown once") {
  Harness h;
  const std::string id = h.make();
  const std::string other = h.make();
  const Reply scoped = h.call("POST", "/v1/api-keys", R"({"sandbox":")" + id + R"("})");
  REQUIRE(scoped.status == 201);
  const Headers use = bearer(scoped.text("key"));
  CHECK(h.call("GET", "/v1/sandboxes/" + id, "", use).status == 200);
  CHECK(h.call("GET", "/v1/sandboxes/" + other, "", use).status == 404);
  CHECK(h.call("GET", "/v1/sandboxes", "", use).status == 403);
  CHECK(h.call("POST", "/v1/sandboxes", "{}", use).status == 403);

  CHECK(h.call("DELETE", "/v1/api-keys/" + scoped.text("id")).status == 204);
  CHECK(h.call("GET", "/v1/sandboxes/" + id, "", use).status == 401);
  CHECK(h.call("DELETE", "/v1/api-keys/ky00000000000000000000").status == 404);

  const Reply odd = h.call("POST", "/v1/api-keys", R"({"name":"a\u001b[31mb"})");
  CHECK(odd.status == 400);
  CHECK(odd.text("field") == "name");
  CHECK(h.call("POST", "/v1/api-keys", R"({"name":"a\u007fb"})").status == 400);
  const Reply named = h.call("POST", "/v1/api-keys", R"({"name":"é, CI runner"})");
  CHECK(named.status == 201);

  const Reply brief = h.call("POST", "/v1/api-keys", R"({"ttl":1})");
  CHECK(h.call("GET", "/v1/sandboxes", "", bearer(brief.text("key"))).status == 200);
  CHECK(h.until(
      [&] { return h.call("GET", "/v1/sandboxes", "", bearer(brief.text("key"))).status == 401; }));
  const Reply listed = h.call("GET", "/v1/api-keys");
  CHECK(listed.json().at("items").as_array().size() == 4);  // with the admin's own
  CHECK(listed.body.find("tk_") == std::string::npos);
  CHECK(h.call("POST", "/v1/api-keys", R"({"sandbox":"sb00000000000000000000"})").status == 400);
}

TEST_CASE("the same Idempotency-Key is the same sandbox, across a restart too") {
  Harness h;
  const Headers key{{"Idempotency-Key", "order-1"}};
  const std::string body = R"({"image":"base"})";
  const Reply first = h.call("POST", "/v1/sandboxes?wait=running", body, key);
  REQUIRE(first.status == 201);
  CHECK(first.header("idempotent-replayed").empty());
  const Reply again = h.call("POST", "/v1/sandboxes?wait=running", body, key);
  CHECK(again.status == 201);
  CHECK(again.body == first.body);
  CHECK(again.header("idempotent-replayed") == "true");
  const Reply changed =
      h.call("POST", "/v1/sandboxes?wait=running", R"({"image":"base","name":"x"})", key);
  CHECK(changed.status == 409);
  CHECK(changed.text("code") == "conflict");
  const Reply elsewhere = h.call("POST", "/v1/api-keys", body, key);
  CHECK(elsewhere.status == 409);
  h.restart();
  CHECK(h.call("POST", "/v1/sandboxes?wait=running", body, key).text("id") == first.text("id"));
  CHECK(h.call("GET", "/v1/sandboxes").json().at("items").as_array().size() == 1);
}

TEST_CASE("a refused request leaves its Idempotency-Key free") {
  Harness h;
  const Headers key{{"Idempotency-Key", "order-2"}};
  CHECK(h.call("POST", "/v1/sandboxes", R"({"image":"nosuch"})", key).status == 400);
  CHECK(h.call("POST", "/v1/sandboxes", R"({"image":"base"})", key).status == 201);
  const Reply run =
      h.call("POST", "/v1/sandboxes/" + h.make() + "/run", R"({"argv":["out"]})", key);
  CHECK(run.status == 422);
  CHECK(h.call("POST", "/v1/sandboxes", "{}", {{"Idempotency-Key", std::string(300, 'k')}})
            .text("field") == "Idempotency-Key");
  // A variable that was not set must not make the retry unsafe without a word.
  CHECK(h.call("POST", "/v1/sandboxes", "{}", {{"Idempotency-Key", ""}}).text("field") ==
        "Idempotency-Key");
}

TEST_CASE("a claim of a dead daemon finds what it made, or is taken over") {
  Harness h;
  const std::string id = h.make();
  const Headers key{{"Idempotency-Key", "order-3"}};
  const std::string body = R"({"image":"base"})";
  // As the claim lies in the store when talond dies after the row and before the answer.
  REQUIRE(h.call("POST", "/v1/sandboxes", body, key).status == 201);
  const auto rewrite = [&](const std::string& target) {
    REQUIRE(h.store().write([&](store::Db& db) -> Result<> {
      TALON_TRY(mine, store::find_tenant_by_name(db, "default"));
      store::IdempotencyRow row;
      row.tenant = mine->id;
      row.key = "order-3";
      row.status = 0;
      row.target = target;
      return store::finish_idempotency(db, row);
    }));
  };
  rewrite(id);
  const Reply busy = h.call("POST", "/v1/sandboxes", body, key);
  // Claimed after this daemon's start: somebody is at work on it.
  CHECK(busy.status == 409);
  CHECK(busy.text("code") == "busy");
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  h.restart();
  const Reply found = h.call("POST", "/v1/sandboxes", body, key);
  INFO(found.body);
  CHECK(found.status == 201);
  CHECK(found.text("id") == id);
  CHECK(found.header("idempotent-replayed") == "true");
  rewrite("");
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  h.restart();
  const Reply fresh = h.call("POST", "/v1/sandboxes", body, key);
  CHECK(fresh.status == 201);
  CHECK(fresh.text("id") != id);
}

TEST_CASE("a key's secret is in no replay") {
  Harness h;
  const Headers key{{"Idempotency-Key", "key-1"}};
  const Reply first = h.call("POST", "/v1/api-keys", R"({"name":"a"})", key);
  const Reply again = h.call("POST", "/v1/api-keys", R"({"name":"a"})", key);
  CHECK(again.text("id") == first.text("id"));
  CHECK(again.json().at("key").is_null());
  CHECK_FALSE(first.text("key").empty());
}

TEST_CASE("paths and verbs that are not there") {
  Harness h;
  CHECK(h.call("GET", "/v1/nothing").text("code") == "not_found");
  const Reply put = h.call("PUT", "/v1/sandboxes");
  CHECK(put.status == 405);
  CHECK(put.header("allow") == "POST, GET");
  CHECK(h.call("GET", "/v1/sandboxes/sb00000000000000000000").status == 404);
  CHECK(h.call("GET", "/v1/sandboxes/..%2fetc").status == 404);
  CHECK(h.call("DELETE", "/v1/sandboxes/sb00000000000000000000").status == 404);
}
