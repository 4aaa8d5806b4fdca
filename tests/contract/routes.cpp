// The route table and the API file, in both directions.
#include "server/api/routes.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "schema.h"
#include "server/api/errors.h"
#include "server/api/openapi.h"
#include "server/api/text.h"

using namespace talon::test;
namespace json = boost::json;
namespace api = talon::server::api;

namespace {

const std::set<std::string> kVerbs{"get", "post", "put", "patch", "delete", "head", "options"};

std::string upper(std::string text) {
  for (char& c : text) {
    c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return text;
}

struct Described {
  std::string verb;
  std::string path;
  std::set<std::string> query;
  bool open = false;
  bool idempotent = false;
};

std::map<std::string, Described> described() {
  std::map<std::string, Described> all;
  for (const auto& path : openapi().at("paths").as_object()) {
    for (const auto& method : path.value().as_object()) {
      if (!kVerbs.contains(std::string{method.key()})) {
        continue;
      }
      const json::object& operation = method.value().as_object();
      Described one;
      one.verb = upper(std::string{method.key()});
      one.path = std::string{path.key()};
      if (const auto* security = operation.if_contains("security")) {
        one.open = security->as_array().empty();
      }
      if (const auto* parameters = operation.if_contains("parameters")) {
        for (const json::value& raw : parameters->as_array()) {
          const json::object& parameter = resolve(raw).as_object();
          const std::string name{parameter.at("name").as_string()};
          if (parameter.at("in") == "query") {
            one.query.insert(name);
          }
          one.idempotent = one.idempotent || name == "Idempotency-Key";
        }
      }
      all[std::string{operation.at("operationId").as_string()}] = one;
    }
  }
  return all;
}

}  // namespace

TEST_CASE("every route is described, and every description has its route") {
  const auto file = described();
  std::set<std::string> table;
  for (const api::Route& route : api::routes()) {
    INFO(route.operation);
    CHECK(table.insert(std::string{route.operation}).second);
    const auto found = file.find(std::string{route.operation});
    REQUIRE(found != file.end());
    CHECK(found->second.verb == route.verb);
    CHECK(found->second.path == route.path);
    CHECK(found->second.open == (route.role == api::Role::open));
    CHECK(found->second.idempotent == (route.kind == api::Kind::create));
    std::istringstream words{std::string{route.query}};
    const std::set<std::string> query{std::istream_iterator<std::string>(words), {}};
    CHECK(found->second.query == query);
    CHECK(route.handler != nullptr);
  }
  for (const auto& [operation, one] : file) {
    INFO(operation);
    CHECK(table.contains(operation));
  }
}

TEST_CASE("every operation names its path parameters and the problem answer") {
  for (const auto& path : openapi().at("paths").as_object()) {
    std::set<std::string> given;
    if (const auto* shared = path.value().as_object().if_contains("parameters")) {
      for (const json::value& raw : shared->as_array()) {
        given.insert(std::string{resolve(raw).as_object().at("name").as_string()});
      }
    }
    const std::string text{path.key()};
    for (std::size_t at = text.find('{'); at != std::string::npos; at = text.find('{', at + 1)) {
      INFO(text);
      CHECK(given.contains(text.substr(at + 1, text.find('}', at) - at - 1)));
    }
    for (const auto& method : path.value().as_object()) {
      if (kVerbs.contains(std::string{method.key()})) {
        INFO(text << " " << method.key());
        const json::object& answers = method.value().as_object().at("responses").as_object();
        REQUIRE(answers.contains("default"));
        CHECK(resolve(answers.at("default"))
                  .as_object()
                  .at("content")
                  .as_object()
                  .contains("application/problem+json"));
      }
    }
  }
}

TEST_CASE("every problem code is described, and no other") {
  std::set<std::string> in_file;
  const json::object& schemas = openapi().at("components").as_object().at("schemas").as_object();
  const json::object& properties = schemas.at("Problem").as_object().at("properties").as_object();
  for (const json::value& code : properties.at("code").as_object().at("enum").as_array()) {
    in_file.insert(std::string{code.as_string()});
  }
  std::set<std::string> in_code;
  for (const api::ProblemKind& kind : api::problem_kinds()) {
    in_code.insert(std::string{kind.code});
  }
  CHECK(in_file == in_code);
}

TEST_CASE("the JSON form of the API file was made from the YAML form") {
  std::ifstream file(std::string{TALON_SOURCE_DIR} + "/api/openapi.yaml");
  const std::string yaml{std::istreambuf_iterator<char>(file), {}};
  REQUIRE_FALSE(yaml.empty());
  CHECK(api::openapi_yaml() == yaml);
  INFO("run python3 api/to_json.py");
  const auto& source = openapi().at("info").as_object().at("x-source-sha256").as_string();
  CHECK(std::string{source} == api::sha256_hex(yaml));
}

TEST_CASE("paths match segment by segment, decoded, and say which verbs there are") {
  const auto run = api::match("POST", "/v1/sandboxes/sb1/run");
  REQUIRE(run.route != nullptr);
  CHECK(run.route->operation == "runCommand");
  CHECK(run.params == std::vector<std::string>{"sb1"});
  CHECK(api::match("POST", "/v1/sandboxes/sb1/run/").route == nullptr);
  CHECK(api::match("GET", "/v1/sandboxes//run").route == nullptr);
  CHECK(api::match("GET", "/v1/%73andboxes").route != nullptr);
  CHECK(api::match("GET", "/v1/sandboxes/a%2Fb").params == std::vector<std::string>{"a/b"});
  CHECK(api::match("GET", "/v1/sandboxes/a%00b").route == nullptr);
  CHECK(api::match("HEAD", "/healthz").route != nullptr);
  const auto put = api::match("PUT", "/v1/sandboxes");
  CHECK(put.route == nullptr);
  CHECK(put.allowed == std::vector<std::string_view>{"POST", "GET"});
}
