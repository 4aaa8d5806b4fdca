// The same Idempotency-Key is the same sandbox, whatever happens in between.
#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "support/daemon.h"

using namespace talon::test;
namespace json = boost::json;

namespace {

// There is no call that makes tenants yet: one is written into the store of a daemon that is not
// running, with a key of its own. The key's text; "" when this machine has no Python.
std::string add_tenant(const Daemon& daemon) {
  const std::string script = daemon.run() + ".tenant.py";
  std::ofstream(script) << "import sqlite3, hashlib, sys\n"
                           "db = sqlite3.connect(sys.argv[1])\n"
                           "secret = 'tl_' + 'b' * 40\n"
                           "db.execute(\"INSERT INTO tenants (id, name, created_ms)"
                           " VALUES ('tn2', 'second', 1)\")\n"
                           "db.execute(\"INSERT INTO api_keys (id, tenant, name, role, hash, hint,"
                           " created_ms) VALUES ('ky2', 'tn2', 'k', 'developer', ?, 'b', 1)\","
                           " [hashlib.sha256(secret.encode()).hexdigest()])\n"
                           "db.commit()\n";
  const std::string command = "/usr/bin/python3 " + script + " " + daemon.data() + "/talon.db";
  const bool done = std::system(command.c_str()) == 0;
  std::filesystem::remove(script);
  return done ? "tl_" + std::string(40, 'b') : "";
}

}  // namespace

TEST_CASE("LC-12: a retried create makes one sandbox, in parallel and after a restart") {
  Daemon daemon;
  auto client = daemon.client();
  const Headers key = {{"Idempotency-Key", "order-17"}};
  const json::object body = {{"name", "once"}};
  const std::string target = "/v1/sandboxes?wait=running";

  {  // The first answer is lost: the client goes away as soon as it has asked.
    Connection lost(daemon.tcp());
    REQUIRE(lost.send(client.raw("POST", target, json::serialize(body), key)));
  }
  std::vector<Reply> replies(5);
  std::vector<std::thread> threads;
  for (auto& reply : replies) {
    threads.emplace_back([&reply, &client, &key, &body, &target] {
      for (int i = 0; i < 200; ++i) {  // `busy` while the first one is at work
        reply = client.post(target, body, key);
        if (reply.status != 409) {
          return;
        }
        nap(Seconds(0.05));
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  std::set<std::string> ids;
  for (const auto& reply : replies) {
    INFO(reply.status << " " << reply.error << " " << reply.body);
    CHECK(reply.status == 201);
    ids.insert(reply.text("id"));
  }
  REQUIRE(ids.size() == 1);
  CHECK(client.get("/v1/sandboxes").at("items").get_array().size() == 1);

  const auto other = client.post(target, json::object{{"name", "twice"}}, key);
  CHECK(other.status == 409);
  CHECK(other.text("code") == "conflict");

  daemon.kill_hard();
  daemon.start();
  client = daemon.client();
  const auto again = client.post(target, body, key);
  INFO(again.body);
  CHECK(again.status == 201);
  CHECK(again.text("id") == *ids.begin());
  CHECK(client.get("/v1/sandboxes").at("items").get_array().size() == 1);
}

TEST_CASE("LC-12: a key of one tenant is none of another's") {
  Daemon daemon;
  auto client = daemon.client();
  const Headers key = {{"Idempotency-Key", "order-17"}};
  const json::object body = {{"name", "once"}};
  const auto mine = client.post("/v1/sandboxes?wait=running", body, key);
  REQUIRE(mine.status == 201);
  REQUIRE(daemon.stop() == 0);
  const auto secret = add_tenant(daemon);
  REQUIRE_FALSE(secret.empty());
  daemon.start();
  const Client other(daemon.tcp(), secret);
  // The same key with other parameters would be a conflict of the first tenant's.
  const auto theirs = other.post("/v1/sandboxes?wait=running", json::object{{"name", "else"}}, key);
  INFO(theirs.body);
  CHECK(theirs.status == 201);
  CHECK(theirs.text("id") != mine.text("id"));
  CHECK(other.post("/v1/sandboxes?wait=running", json::object{{"name", "else"}}, key).text("id") ==
        theirs.text("id"));
  CHECK(daemon.client().post("/v1/sandboxes?wait=running", body, key).text("id") ==
        mine.text("id"));
  CHECK(other.get("/v1/sandboxes").at("items").get_array().size() == 1);
  CHECK(other.get("/v1/sandboxes/" + mine.text("id")).status == 404);
  CHECK(other.del("/v1/sandboxes/" + theirs.text("id")).status == 204);
}
