// Services through the API, over the fake isolator.
#include <catch2/catch.hpp>

#include "fake_isolator.h"
#include "harness.h"
#include "server/node/services.h"

using namespace talon;
using namespace talon::test;
namespace node = talon::server::node;
namespace json = boost::json;

namespace {

json::value field(Harness& h, const std::string& path, std::string_view name) {
  const json::value view = h.call("GET", path).json();
  const json::value* found = view.is_object() ? view.as_object().if_contains(name) : nullptr;
  return found != nullptr ? *found : json::value("missing");
}

bool becomes(Harness& h, const std::string& path, std::string_view state) {
  return h.until([&] { return h.call("GET", path).text("state") == state; });
}

std::int64_t restarts(Harness& h, const std::string& path) {
  return field(h, path, "restarts").as_int64();
}

}  // namespace

TEST_CASE("the delay doubles up to its limit, and restart says after which ends") {
  node::ServiceSpec spec;
  spec.backoff = Millis{500};
  spec.backoff_max = Millis{3000};
  CHECK(node::backoff_delay(spec, 0) == Millis{500});
  CHECK(node::backoff_delay(spec, 1) == Millis{1000});
  CHECK(node::backoff_delay(spec, 2) == Millis{2000});
  CHECK(node::backoff_delay(spec, 3) == Millis{3000});
  CHECK(node::backoff_delay(spec, 4'000'000'000u) == Millis{3000});
  for (const bool failed : {true, false}) {
    CHECK_FALSE(node::wants_restart(node::Restart::no, failed));
    CHECK(node::wants_restart(node::Restart::on_failure, failed) == failed);
    CHECK(node::wants_restart(node::Restart::always, failed));
  }
}

TEST_CASE("the spec of a service survives the store") {
  node::ServiceSpec spec;
  spec.exec.argv = {"a b", "", "ü"};
  spec.exec.env = {{"Z", "1"}, {"A", "x=y"}};
  spec.exec.cwd = "/w";
  spec.exec.user = "user";
  spec.exec.log_cap = 5 << 20;
  spec.restart = node::Restart::on_failure;
  spec.backoff = Millis{250};
  spec.backoff_max = Millis{4000};
  const auto back = node::decode_service_spec(node::encode(spec));
  REQUIRE(back);
  CHECK(node::encode(*back) == node::encode(spec));
  CHECK(back->exec.argv == spec.exec.argv);
  CHECK(back->exec.env == spec.exec.env);
  CHECK(back->restart == spec.restart);
  CHECK(back->exec.log_cap == spec.exec.log_cap);
  CHECK_FALSE(node::decode_service_spec("[]"));
  CHECK_FALSE(node::decode_service_spec(R"({"argv":[1]})"));
}

TEST_CASE("a service is started, started again, and replaced") {
  Harness h;
  const std::string path = "/v1/sandboxes/" + h.make();
  const std::string web = path + "/services/web";
  CHECK(h.call("GET", web).status == 404);
  const std::string body = R"({"argv":["out","up","hang"],"restart":"always"})";
  const Reply made = h.call("PUT", web, body);
  INFO(made.body);
  REQUIRE(made.status == 201);
  REQUIRE(becomes(h, web, "running"));
  const std::string px = h.call("GET", web).text("process");
  const std::string log = path + "/processes/" + px + "/logs";
  CHECK(h.until([&] { return h.call("GET", log).body == "up"; }));
  CHECK(h.call("GET", path + "/processes/" + px).text("service") == "web");
  // The same again is nothing new.
  CHECK(h.call("PUT", web, body).status == 200);
  CHECK(h.call("GET", web).text("process") == px);

  // Another spec ends the one and starts the other.
  REQUIRE(h.call("PUT", web, R"({"argv":["out","two","hang"]})").status == 200);
  REQUIRE(h.until([&] { return h.call("GET", web).text("process") != px; }));
  CHECK(h.call("GET", path + "/processes/" + px).text("state") == "exited");
  CHECK(field(h, web, "restarts") == json::value(0));

  REQUIRE(h.call("PUT", path + "/services/crash",
                 R"({"argv":["exit","3"],"restart":"on-failure","backoff":{"first":"100ms"}})")
              .status == 201);
  CHECK(h.until([&] { return restarts(h, path + "/services/crash") >= 2; }));
  const json::value last = field(h, path + "/services/crash", "last_exit");
  CHECK(last.at("exit_code") == json::value(3));
  REQUIRE(h.call("PUT", path + "/services/job", R"({"argv":["exit","0"],"restart":"on-failure"})")
              .status == 201);
  CHECK(h.until([&] { return field(h, path + "/services/job", "last_exit").is_object(); }));
  CHECK(becomes(h, path + "/services/job", "stopped"));
  CHECK(restarts(h, path + "/services/job") == 0);
  // What cannot be started says why.
  REQUIRE(h.call("PUT", path + "/services/bad", R"({"argv":["baduser"],"restart":"no"})").status ==
          201);
  CHECK(h.until([&] { return field(h, path + "/services/bad", "last_exit").is_object(); }));
  CHECK(field(h, path + "/services/bad", "last_exit").as_object().contains("error"));
  CHECK(h.call("GET", path + "/services").json().at("items").as_array().size() == 4);

  const std::string second = h.call("GET", web).text("process");
  CHECK(h.call("DELETE", web).status == 204);
  CHECK(h.call("GET", web).status == 404);
  CHECK(h.call("DELETE", web).status == 404);
  CHECK(h.call("GET", path + "/processes/" + second).text("state") == "exited");
  CHECK(h.call("DELETE", path).status == 204);
  CHECK(h.call("GET", path + "/services").status == 410);
}

TEST_CASE("services are back after stop and start, and a new daemon finds them") {
  Harness h;
  const std::string path =
      "/v1/sandboxes/" +
      h.make(R"({"image":"base","command":"hang","restart":"always","backoff":{"first":0.1}})");
  const std::string main = path + "/services/main";
  // The fake runs the words of argv, and `command` is `/bin/sh -c hang`.
  REQUIRE(becomes(h, main, "running"));
  const std::string first = h.call("GET", main).text("process");
  CHECK(h.until([&] { return h.call("GET", path + "/processes/" + first).status == 200; }));

  REQUIRE(h.call("POST", path + "/stop").status == 200);
  CHECK(h.call("GET", main).text("state") == "stopped");
  REQUIRE(h.call("PUT", path + "/services/late", R"({"argv":["hang"]})").status == 201);
  CHECK(h.call("GET", path + "/services/late").text("state") == "stopped");
  REQUIRE(h.call("POST", path + "/start").status == 200);
  REQUIRE(becomes(h, main, "running"));
  REQUIRE(becomes(h, path + "/services/late", "running"));
  const std::string second = h.call("GET", main).text("process");
  CHECK(second != first);

  // A paused sandbox starts nothing; the resume does.
  REQUIRE(h.call("POST", path + "/pause").status == 200);
  CHECK(h.call("POST", path + "/processes/" + second + "/signal", R"({"signal":"KILL"})").status ==
        204);
  REQUIRE(becomes(h, main, "backoff"));
  REQUIRE(h.call("POST", path + "/resume").status == 200);
  REQUIRE(becomes(h, main, "running"));
  CHECK(h.call("GET", main).text("process") != second);
  CHECK(restarts(h, main) == 1);

  const std::string third = h.call("GET", main).text("process");
  h.restart();
  CHECK(h.call("GET", main).text("state") == "running");
  CHECK(h.call("GET", main).text("process") == third);
  CHECK(h.call("GET", path + "/processes/" + third).text("state") == "running");
}

TEST_CASE("bad services are refused") {
  Harness h;
  const std::string path = "/v1/sandboxes/" + h.make();
  for (const auto& [name, body, wanted] : std::vector<std::array<std::string, 3>>{
           {"web", "{}", "command"},
           {"web", R"({"command":"x","restart":"sometimes"})", "restart"},
           {"web", R"({"command":"x","backoff":{"first":"1ms"}})", "backoff.first"},
           {"web", R"({"command":"x","backoff":1})", "backoff"},
           {"web", R"({"command":"x","stdin":"y"})", "stdin"},
           {"web", R"({"command":"x","timeout":3})", "timeout"},
           {"web", R"({"command":"x","colour":3})", "colour"},
           {"a%20b", R"({"command":"x"})", "name"}}) {
    const Reply refused = h.call("PUT", path + "/services/" + name, body);
    INFO(name << " " << body << ": " << refused.body);
    CHECK(refused.status == 400);
    CHECK(refused.text("field") == wanted);
  }
  CHECK(h.call("POST", "/v1/sandboxes", R"({"image":"base","restart":"always"})").text("field") ==
        "command");
  for (int i = 0; i < 32; ++i) {
    REQUIRE(h.call("PUT", path + "/services/s" + std::to_string(i),
                   R"({"argv":["exit","0"],"restart":"no"})")
                .status == 201);
  }
  const Reply full = h.call("PUT", path + "/services/more", R"({"argv":["exit","0"]})");
  CHECK(full.status == 429);
  CHECK(full.text("limit") == "services");
}
