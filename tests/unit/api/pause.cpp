// Pause and resume through the API, over the fake isolator.
#include <catch2/catch.hpp>

#include "fake_isolator.h"
#include "harness.h"
#include "store/tables.h"

using namespace talon;
using namespace talon::test;

TEST_CASE("a paused sandbox refuses what needs a process and answers the rest") {
  Harness h;
  const std::string path = "/v1/sandboxes/" + h.make();
  const std::string px =
      h.call("POST", path + "/processes", R"({"argv":["out","tick","hang"],"stdin":true})")
          .text("id");
  const std::string done =
      h.call("POST", path + "/processes", R"({"argv":["out","x"]})").text("id");

  const Reply paused = h.call("POST", path + "/pause");
  INFO(paused.body);
  REQUIRE(paused.status == 200);
  CHECK(paused.text("state") == "paused");
  CHECK(h.fake().live.at(paused.text("id"))->paused());
  CHECK(h.call("POST", path + "/pause").status == 409);

  for (const auto& [target, body] : std::vector<std::pair<std::string, std::string>>{
           {"/run", R"({"argv":["out","y"]})"},
           {"/processes", R"({"argv":["out","y"]})"},
           {"/processes/" + px + "/stdin", "bytes"},
           {"/processes/" + px + "/signal", R"({"signal":"TERM"})"}}) {
    const Reply refused = h.call("POST", path + target, body);
    INFO(target << ": " << refused.body);
    CHECK(refused.status == 409);
    CHECK(refused.text("code") == "wrong_state");
    CHECK(refused.text("state") == "paused");
    CHECK(refused.text("detail").find("?resume=1") != std::string::npos);
  }
  CHECK(h.call("GET", path).text("state") == "paused");
  CHECK(h.call("GET", path + "/processes/" + px + "/logs").body == "tick");
  CHECK(h.call("GET", path + "/processes/" + done + "/logs").body == "x");
  CHECK(h.call("GET", path + "/stats").status == 200);
  CHECK(h.call("GET", "/v1/sandboxes?state=paused").json().at("items").as_array().size() == 1);
  CHECK(h.call("POST", path + "/processes/" + px + "/signal", R"({"signal":"KILL"})").status ==
        204);

  CHECK(h.call("POST", path + "/run?resume=maybe", R"({"argv":["out","y"]})").status == 400);
  CHECK(h.call("POST", path + "/run?resume=0", R"({"argv":["out","y"]})").status == 409);
  CHECK(h.call("POST", path + "/run?resume=1", R"({"argv":["out","y"]})").text("stdout") == "y");
  CHECK(h.call("GET", path).text("state") == "running");
  CHECK_FALSE(h.fake().live.at(paused.text("id"))->paused());
  CHECK(h.call("POST", path + "/resume").text("code") == "wrong_state");
  // With nothing to resume the flag changes nothing.
  CHECK(h.call("POST", path + "/run?resume=1", R"({"argv":["out","z"]})").text("stdout") == "z");

  REQUIRE(h.call("POST", path + "/pause").status == 200);
  CHECK(h.call("POST", path + "/stop").text("state") == "stopped");
  CHECK(h.call("POST", path + "/pause").text("code") == "wrong_state");
  CHECK(h.call("POST", path + "/resume").text("code") == "wrong_state");
  CHECK(h.call("POST", path + "/run?resume=1", R"({"argv":["out","y"]})").text("state") ==
        "stopped");
  REQUIRE(h.call("POST", path + "/start").status == 200);
  REQUIRE(h.call("POST", path + "/pause").status == 200);
  CHECK(h.call("DELETE", path).status == 204);
  CHECK(h.call("POST", path + "/pause").status == 410);
}

TEST_CASE("a paused sandbox is adopted as paused") {
  Harness h;
  const std::string id = h.make();
  const std::string path = "/v1/sandboxes/" + id;
  REQUIRE(h.call("POST", path + "/pause").status == 200);
  h.restart();
  CHECK(h.call("GET", path).text("state") == "paused");
  CHECK(h.fake().live.at(id)->paused());
  CHECK(h.call("POST", path + "/run", R"({"argv":["out","y"]})").status == 409);
  CHECK(h.call("POST", path + "/resume").text("state") == "running");
  CHECK(h.call("POST", path + "/run", R"({"argv":["out","y"]})").text("stdout") == "y");
}

// What a daemon that died in the middle left is made what the row says.
TEST_CASE("a half done pause or resume is settled by the row") {
  Harness h;
  const std::string id = h.make();
  const std::string path = "/v1/sandboxes/" + id;
  static_cast<void>(h.fake().live.at(id)->mark(true));
  REQUIRE(h.fake().live.at(id)->freeze(true, Millis{0}).has_value());
  h.restart();  // its row says `running`
  CHECK(h.call("GET", path).text("state") == "running");
  CHECK_FALSE(h.fake().live.at(id)->paused());

  REQUIRE(h.call("POST", path + "/pause").status == 200);
  REQUIRE(h.fake().live.at(id)->freeze(false, Millis{0}).has_value());
  static_cast<void>(h.fake().live.at(id)->mark(false));
  h.restart();  // its row says `paused`
  CHECK(h.call("GET", path).text("state") == "paused");
  CHECK(h.fake().live.at(id)->paused());
}
