// LC-12 in part: the same Idempotency-Key is the same sandbox, whatever happens in between.
#include <catch2/catch.hpp>

#include <set>
#include <thread>

#include "support/daemon.h"

using namespace talon::test;
namespace json = boost::json;

TEST_CASE("a retried create makes one sandbox") {
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
