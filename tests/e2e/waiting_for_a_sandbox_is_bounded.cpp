#include <catch2/catch.hpp>

#include "support/daemon.h"

using namespace talon::test;
namespace json = boost::json;

TEST_CASE("waiting for a sandbox is bounded") {
  Daemon daemon;
  const auto client = daemon.client();

  const auto too_long = client.post("/v1/sandboxes?wait=running&wait_timeout=301s", json::object());
  INFO(too_long.body);
  CHECK(too_long.status == 400);
  CHECK(too_long.text("code") == "invalid_request");
  CHECK(too_long.text("field") == "wait_timeout");
  CHECK(client.get("/v1/sandboxes").at("items").get_array().empty());

  // A deadline that has passed before anything can run: 504 with the state of now, and the
  // sandbox is made all the same.
  const auto late = client.post("/v1/sandboxes?wait=running&wait_timeout=0.001", json::object());
  INFO(late.status << " " << late.body);
  if (late.status != 201) {  // a fast machine may have made it within a millisecond
    CHECK(late.status == 504);
    CHECK(late.text("state") == "creating");
    const auto id = late.text("id");
    REQUIRE(id.starts_with("sb"));
    CHECK(eventually(Seconds(60),
                     [&] { return client.get("/v1/sandboxes/" + id).text("state") == "running"; }));
  }

  const auto at_once = client.post("/v1/sandboxes", json::object());
  CHECK(at_once.status == 201);
  CHECK(at_once.text("state") == "creating");
}
