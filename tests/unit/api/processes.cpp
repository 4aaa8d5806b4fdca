// run, spawn, logs, signals, stdin over the fake isolator and real log files.
#include <catch2/catch.hpp>

#include "fake_isolator.h"
#include "harness.h"
#include "server/api/text.h"

using namespace talon;
using namespace talon::test;
namespace json = boost::json;

namespace {

std::string argv(const std::vector<std::string>& words) {
  json::array list;
  for (const std::string& word : words) {
    list.emplace_back(word);
  }
  return json::serialize(json::object{{"argv", list}});
}

}  // namespace

TEST_CASE("run answers text when the joined output is UTF-8, else base64, each for itself") {
  Harness h;
  const std::string run = "/v1/sandboxes/" + h.make() + "/run";
  const Reply split = h.call("POST", run, argv({"out", "x\u00e9", "y", "err", "e", "exit", "3"}));
  INFO(split.body);
  REQUIRE(split.status == 200);
  CHECK(split.text("stdout") == "x\u00e9y");
  CHECK(split.text("stdout_encoding") == "utf-8");
  CHECK(split.text("stderr") == "e");
  CHECK(split.json().at("exit_code") == 3);
  CHECK(split.json().at("signal").is_null());
  CHECK(split.json().at("duration_ms") == 2.5);
  CHECK(split.text("id").starts_with("px"));
  CHECK(h.call("POST", run, argv({"exit", "0"})).text("stdout").empty());
  CHECK(h.call("POST", run, argv({"baduser"})).text("field") == "user");
}

TEST_CASE("a long answer is written from the log and is the same JSON") {
  Harness h;
  const std::string run = "/v1/sandboxes/" + h.make() + "/run";
  std::vector<std::string> words{"out"};
  std::string expected;
  for (int i = 0; i < 40; ++i) {
    std::string piece(40'000, static_cast<char>('a' + i % 26));
    piece += "\"\\\n\u20ac";
    expected += piece;
    words.push_back(piece);
  }
  words.insert(words.end(), {"err", "short"});
  const Reply reply = h.call("POST", run, argv(words));
  REQUIRE(reply.status == 200);
  CHECK_FALSE(reply.cut);
  CHECK(reply.text("stdout") == expected);
  CHECK(reply.text("stderr") == "short");
  CHECK(reply.json().at("usage").is_object());
}

TEST_CASE("streams of a run: events with cursors, raw bytes with trailers") {
  Harness h;
  const std::string run = "/v1/sandboxes/" + h.make() + "/run";
  const Reply sse =
      h.call("POST", run, argv({"out", "a", "err", "b"}), {{"Accept", "text/event-stream"}});
  INFO(sse.body);
  CHECK(sse.header("content-type") == "text/event-stream");
  CHECK(sse.body.find("event: start\ndata: {\"id\":\"px") != std::string::npos);
  CHECK(sse.body.find("id: 2.0\nevent: stdout\ndata: {\"text\":\"a\"}\n\n") != std::string::npos);
  CHECK(sse.body.find("id: 3.0\nevent: stderr\ndata: {\"text\":\"b\"}\n\n") != std::string::npos);
  CHECK(sse.body.find("event: end\ndata: {\"exit_code\":0") != std::string::npos);

  const Reply lines = h.call("POST", run, argv({"out", "a"}), {{"Accept", "application/x-ndjson"}});
  std::size_t count = 0;
  for (std::size_t at = 0; (at = lines.body.find('\n', at)) != std::string::npos; ++at) {
    ++count;
  }
  CHECK(count == 3);

  const Reply raw = h.call("POST", run, argv({"out", "a", "err", "b", "exit", "5"}),
                           {{"Accept", "application/octet-stream"}});
  CHECK(raw.body == "ab");
  const Headers expected{{"Talon-Cursor", "4.0"}, {"Talon-Exit-Code", "5"}, {"Talon-Signal", "0"}};
  CHECK(raw.trailers == expected);
}

TEST_CASE("logs: from a cursor, one stream, the tail, the end") {
  Harness h;
  const std::string base = "/v1/sandboxes/" + h.make() + "/processes";
  const std::string px =
      h.call("POST", base, argv({"out", "l1\nl2\n", "err", "e1\n", "out", "l3\nl4\n"})).text("id");
  const std::string logs = base + "/" + px + "/logs";
  CHECK(h.call("GET", logs).body == "l1\nl2\ne1\nl3\nl4\n");
  CHECK(h.call("GET", logs + "?stream=stdout").body == "l1\nl2\nl3\nl4\n");
  CHECK(h.call("GET", logs + "?stream=stderr").body == "e1\n");
  CHECK(h.call("GET", logs + "?from=1.3").body == "l2\ne1\nl3\nl4\n");
  CHECK(h.call("GET", logs + "?tail=2").body == "l3\nl4\n");
  CHECK(h.call("GET", logs + "?tail=3").body == "e1\nl3\nl4\n");
  CHECK(h.call("GET", logs + "?tail=3&stream=stdout").body == "l2\nl3\nl4\n");
  CHECK(h.call("GET", logs + "?tail=0").body.empty());
  CHECK(h.call("GET", logs + "?from=end").body.empty());
  CHECK(h.call("GET", logs + "?since=2100-01-01T00:00:00Z").body.empty());
  CHECK(h.call("GET", logs + "?until=1").body.empty());
  const Reply whole = h.call("GET", logs, "", {{"accept", "application/x-ndjson"}});
  CHECK(whole.body.find("\"event\":\"exit\"") != std::string::npos);
  CHECK(whole.body.find("\"event\":\"end\"") != std::string::npos);
  const std::string cursor = h.call("GET", logs).trailers.at(0).second;
  CHECK(h.call("GET", logs + "?from=" + cursor).body.empty());
  for (const char* bad : {"?from=x", "?stream=both", "?follow=maybe", "?tail=-1", "?since=never",
                          "?tail=1&from=0", "?form=0"}) {
    INFO(bad);
    CHECK(h.call("GET", logs + bad).status == 400);
  }
  CHECK(h.call("GET", base + "/px00000000000000000000/logs").status == 404);
}

TEST_CASE("follow ends with the process; stdin and signals reach it") {
  Harness h;
  const std::string base = "/v1/sandboxes/" + h.make() + "/processes";
  const Reply made = h.call("POST", base, R"({"argv":["hang"],"stdin":true})");
  REQUIRE(made.status == 201);
  CHECK(made.text("state") == "running");
  const std::string path = base + "/" + made.text("id");
  const Reply fed = h.call("POST", path + "/stdin", std::string(40'000, 'x'));
  CHECK(fed.json().at("accepted") == 40'000);
  CHECK(fed.json().at("closed") == false);
  const Reply closed = h.call("POST", path + "/stdin?offset=40000&close=1", "end");
  CHECK(closed.json().at("closed") == true);
  const Reply followed = h.call("GET", path + "/logs?follow=1");
  CHECK(followed.body == std::string(40'000, 'x') + "end");
  CHECK(h.call("GET", path).text("state") == "exited");
  CHECK(h.call("POST", path + "/stdin", "more").text("code") == "wrong_state");

  const std::string other = base + "/" + h.call("POST", base, argv({"hang"})).text("id");
  CHECK(h.call("POST", other + "/signal", R"({"signal":"HUP"})").status == 204);
  REQUIRE(h.until([&] { return h.call("GET", other).text("state") == "exited"; }));
  CHECK(h.call("GET", other).json().at("result").at("signal") == 1);
  CHECK(h.call("POST", other + "/signal", R"({"signal":"HUP"})").text("state") == "exited");

  const std::string third = base + "/" + h.call("POST", base, argv({"hang"})).text("id");
  CHECK(h.call("DELETE", third + "?grace=0").status == 204);
  CHECK(h.call("DELETE", third).status == 204);
  CHECK(h.call("GET", base).json().at("items").as_array().size() == 3);
  CHECK(h.call("GET", base + "?limit=2").json().at("items").as_array().size() == 2);
  CHECK_FALSE(h.call("GET", base + "?limit=2").text("next_cursor").empty());
}

TEST_CASE("env: the process's own over the sandbox's, secrets of neither in the record") {
  Harness h;
  const std::string id = h.make(R"({"image":"base","env":{"A":"sandbox","B":"sandbox"}})");
  const Reply made = h.call("POST", "/v1/sandboxes/" + id + "/processes",
                            R"({"argv":["exit","0"],"env":{"A":"hidden-value"}})");
  REQUIRE(made.status == 201);
  CHECK(made.body.find("hidden-value") == std::string::npos);
  CHECK(made.body.find("\"env_names\":[\"A\"]") != std::string::npos);
}

TEST_CASE("many processes: ended ones leave memory and stay readable") {
  Harness h;
  const std::string base = "/v1/sandboxes/" + h.make() + "/processes";
  std::vector<std::string> ids;
  for (int i = 0; i < 80; ++i) {
    ids.push_back(h.call("POST", base, argv({"out", std::to_string(i), "exit", "1"})).text("id"));
  }
  h.store().flush();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    INFO(i);
    CHECK(h.call("GET", base + "/" + ids[i]).json().at("result").at("exit_code") == 1);
    CHECK(h.call("GET", base + "/" + ids[i] + "/logs?follow=all").body == std::to_string(i));
  }
}
