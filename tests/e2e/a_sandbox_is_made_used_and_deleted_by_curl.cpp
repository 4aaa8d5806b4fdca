#include <catch2/catch.hpp>

#include "support/daemon.h"

using namespace talon::test;
namespace json = boost::json;

TEST_CASE("a sandbox is made, used and deleted by curl") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto before = daemon.snapshot();

  const auto made =
      client.post("/v1/sandboxes?wait=running",
                  json::object{{"name", "story"}, {"env", json::object{{"GREETING", "hi"}}}});
  INFO(made.status << " " << made.body);
  REQUIRE(made.status == 201);
  CHECK(made.text("state") == "running");
  CHECK(made.text("image") == "host");
  CHECK_FALSE(made.header("x-request-id").empty());
  const auto id = made.text("id");
  CHECK(id.size() == 22);

  const auto ran = run_in(client, id, "echo $GREETING; echo oops >&2; pwd; exit 3");
  CHECK(exit_code(ran) == 3);
  CHECK(ran.text("stdout") == "hi\n/workspace\n");
  CHECK(ran.text("stderr") == "oops\n");
  CHECK(ran.at("signal").is_null());
  CHECK(ran.at("timed_out") == json::value(false));
  CHECK(ran.text("id").starts_with("px"));

  SECTION("it is in the list and by its id, for this tenant only with a key") {
    const auto list = client.get("/v1/sandboxes");
    REQUIRE(list.status == 200);
    const auto items = list.at("items");
    REQUIRE(items.is_array());
    REQUIRE(items.get_array().size() == 1);
    CHECK(items.get_array()[0].at("id") == json::value(id));
    CHECK(client.get("/v1/sandboxes/" + id).text("name") == "story");
    CHECK(Client(daemon.tcp(), "").get("/v1/sandboxes/" + id).status == 401);
    CHECK(Client(daemon.tcp(), "wrong").get("/v1/sandboxes/" + id).status == 401);
  }

  SECTION("the unix socket knows root without a key") {
    const auto reply = daemon.local().get("/v1/sandboxes/" + id);
    INFO(reply.body << reply.error);
    CHECK(reply.status == 200);
    CHECK(daemon.local().get("/v1/host").status == 200);
  }

  SECTION("a name and labels can be changed") {
    const auto patched =
        client.request("PATCH", "/v1/sandboxes/" + id, R"({"name":"other","labels":{"team":"a"}})");
    INFO(patched.body);
    CHECK(patched.status == 200);
    CHECK(client.get("/v1/sandboxes/" + id).text("name") == "other");
    CHECK(client.get("/v1/sandboxes?label=team=a").at("items").get_array().size() == 1);
    CHECK(client.get("/v1/sandboxes?label=team=b").at("items").get_array().empty());
  }

  SECTION("its events and statistics can be read") {
    const auto events = client.get("/v1/sandboxes/" + id + "/events");
    INFO(events.body);
    CHECK(events.status == 200);
    CHECK(events.body.find("created") != std::string::npos);
    const auto stats = client.get("/v1/sandboxes/" + id + "/stats");
    INFO(stats.body);
    CHECK(stats.status == 200);
    CHECK(stats.json().is_object());
  }

  CHECK(client.del("/v1/sandboxes/" + id).status == 204);
  CHECK(client.del("/v1/sandboxes/" + id).status == 204);
  const auto gone = client.get("/v1/sandboxes/" + id);
  CHECK(gone.status == 410);
  CHECK(gone.text("code") == "gone");
  CHECK(gone.body.find("user") != std::string::npos);  // the death certificate's reason
  CHECK(client.post("/v1/sandboxes/" + id + "/run", json::object{{"command", "true"}}).status ==
        410);
  CHECK(daemon.settled(before, Seconds(10)) == std::vector<std::string>());
}

TEST_CASE("a process is spawned, followed by cursor, signalled and listed") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto base = "/v1/sandboxes/" + id + "/processes";

  const auto px =
      spawn_in(client, id, json::object{{"command", "echo one; echo two >&2; sleep 300"}});
  const auto logs = base + "/" + px + "/logs";
  // The raw log shows both streams as they were written.
  REQUIRE(eventually(Seconds(10), [&] { return client.get(logs).body == "one\ntwo\n"; }));
  CHECK(client.get(logs + "?stream=stdout").body == "one\n");
  CHECK(client.get(logs + "?stream=stderr").body == "two\n");

  const auto first = client.get(logs);
  std::string cursor;
  for (const auto& [name, value] : first.trailers) {
    if (name == "talon-cursor") {
      cursor = value;
    }
  }
  INFO("trailers " << first.trailers.size());
  REQUIRE_FALSE(cursor.empty());
  CHECK(client.get(logs + "?from=" + cursor).body.empty());

  CHECK(client.get(base + "/" + px).text("state") == "running");
  const auto signalled =
      client.post(base + "/" + px + "/signal", json::object{{"signal", "TERM"}, {"scope", "all"}});
  INFO(signalled.body);
  CHECK(signalled.status / 100 == 2);
  const auto ended = wait_exec(client, id, px, Seconds(10));
  INFO(ended.body);
  CHECK(ended.text("state") == "exited");
  const auto list = client.get(base);
  REQUIRE(list.status == 200);
  CHECK(list.body.find(px) != std::string::npos);
  CHECK(client.get(base + "/px00000000000000000000").status == 404);
}

TEST_CASE("follow streams what is written and ends with the process") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto px =
      spawn_in(client, id,
               json::object{{"argv", json::array{"sh", "-c", "read line; echo got $line"}},
                            {"stdin", true}});
  Reply head;
  auto stream = client.stream("/v1/sandboxes/" + id + "/processes/" + px + "/logs?follow=1", head);
  REQUIRE(head.status == 200);
  const auto fed =
      client.request("POST", "/v1/sandboxes/" + id + "/processes/" + px + "/stdin?close=1",
                     "word\n", {{"Content-Type", "application/octet-stream"}});
  INFO(fed.body);
  CHECK(fed.status / 100 == 2);
  std::string text;
  while (auto piece = stream.read_piece(Seconds(20))) {
    text += *piece;
  }
  CHECK_FALSE(stream.failed());
  CHECK(text == "got word\n");
}
