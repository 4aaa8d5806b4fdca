#include "server/api/errors.h"

#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <set>

#include "server/node/lifecycle.h"

using namespace talon;
using namespace talon::server;

TEST_CASE("every code has a problem of its own name") {
  for (int i = 0; i <= static_cast<int>(Code::io); ++i) {
    const auto code = static_cast<Code>(i);
    Error error = fail(code, "why").error();
    const api::Problem problem = api::to_problem(error);
    INFO(to_string(code));
    CHECK(problem.code == to_string(code));
    CHECK(problem.status >= 400);
    CHECK(problem.detail == "why");
    CHECK_FALSE(problem.title.empty());
  }
}

TEST_CASE("the subject of an error is named by its code") {
  const auto member = [](const Error& error, const char* name) {
    const api::Problem problem = api::to_problem(error);
    const auto* found = problem.extra.if_contains(name);
    return found == nullptr ? std::string{} : std::string{found->as_string()};
  };
  CHECK(member(bad_field("a.b", "x").error(), "field") == "a.b");
  CHECK(member(node::wrong_state(node::State::paused, "x").error(), "state") == "paused");
  CHECK(member(node::busy("stop").error(), "operation") == "stop");
  const Error both = api::passed_limit(Code::too_large, "bytes", "argv[3]", "x").error();
  CHECK(member(both, "limit") == "bytes");
  CHECK(member(both, "field") == "argv[3]");
  CHECK(member(node::over_limit(Code::unavailable, "descriptors", "x").error(), "limit") ==
        "descriptors");
}

TEST_CASE("statuses that clients act on, and their headers") {
  const auto status = [](Code code) { return api::to_problem(fail(code, "x").error()).status; };
  CHECK(status(Code::invalid_request) == 400);
  CHECK(status(Code::unauthenticated) == 401);
  CHECK(status(Code::forbidden) == 403);
  CHECK(status(Code::not_found) == 404);
  CHECK(status(Code::conflict) == 409);
  CHECK(status(Code::busy) == 409);
  CHECK(status(Code::wrong_state) == 409);
  CHECK(status(Code::gone) == 410);
  CHECK(status(Code::too_large) == 413);
  CHECK(status(Code::unenforceable) == 422);
  CHECK(status(Code::not_supported_yet) == 422);
  CHECK(status(Code::too_many) == 429);
  CHECK(status(Code::unavailable) == 503);
  CHECK(status(Code::timeout) == 504);
  CHECK(status(Code::disk_full) == 507);
  CHECK(api::to_problem(node::over_limit(Code::conflict, "If-Match", "x").error()).status == 412);

  const auto render = [](Code code) {
    return api::render(api::to_problem(fail(code, "x").error()), "rq1");
  };
  std::set<std::string> names;
  for (const auto& [name, value] : render(Code::unavailable).headers) {
    names.insert(name);
  }
  for (const auto& [name, value] : render(Code::unauthenticated).headers) {
    names.insert(name);
  }
  CHECK(names == std::set<std::string>{"Retry-After", "WWW-Authenticate"});
  CHECK(render(Code::io).content_type == "application/problem+json");
  CHECK(boost::json::parse(render(Code::io).body).at("request_id").as_string() == "rq1");
}
