#include <catch2/catch.hpp>

#include "support/daemon.h"

using namespace talon::test;
namespace json = boost::json;

// What one process of a sandbox writes wakes the followers of all; it must not put off the
// heartbeat by which a dead client of a silent one is seen (15 s).
TEST_CASE("followers of a silent process that left give their descriptors back") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  spawn_in(client, id, json::object{{"command", "while :; do echo x; sleep 0.1; done"}});
  const auto px = spawn_in(client, id, json::object{{"command", "sleep 3000"}});
  const auto before = daemon.use().fds;
  for (int i = 0; i < 20; ++i) {
    Reply head;
    auto stream =
        client.stream("/v1/sandboxes/" + id + "/processes/" + px + "/logs?follow=1", head);
    REQUIRE(head.status == 200);
  }
  const bool back = eventually(Seconds(30), [&] { return daemon.use().fds < before + 10; });
  INFO("descriptors before: " << before << ", now: " << daemon.use().fds);
  CHECK(back);
}

TEST_CASE("a stream ends soon after its key was revoked") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto px =
      spawn_in(client, id, json::object{{"command", "while :; do echo x; sleep 0.1; done"}});
  const auto made = client.post("/v1/api-keys", json::object{{"role", "viewer"}});
  REQUIRE(made.status == 201);
  const Client viewer(daemon.tcp(), made.text("key"));
  Reply head;
  auto stream = viewer.stream("/v1/sandboxes/" + id + "/processes/" + px + "/logs?follow=1", head);
  REQUIRE(head.status == 200);
  REQUIRE(stream.read_piece(Seconds(10)));
  REQUIRE(client.del("/v1/api-keys/" + made.text("id")).status == 204);
  const auto start = std::chrono::steady_clock::now();
  bool open = true;
  while (open && std::chrono::steady_clock::now() - start < std::chrono::seconds(10)) {
    open = stream.read_piece(Seconds(10)).has_value();
  }
  CHECK_FALSE(open);
  CHECK(stream.failed());  // cut off: nobody takes it for a whole log
}
