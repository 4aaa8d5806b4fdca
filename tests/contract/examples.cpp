// Every JSON sample of the API file is valid by its schema and is taken by the codec; what the
// codec writes is valid by the schema too.
#include <catch2/catch.hpp>
#include <functional>
#include <map>

#include "base/metrics.h"
#include "schema.h"
#include "server/api/decode_requests.h"
#include "server/api/errors.h"
#include "server/api/prewarm.h"
#include "server/api/views.h"
#include "server/node/codec.h"

using namespace talon::test;
namespace json = boost::json;
namespace api = talon::server::api;
namespace node = talon::server::node;
using talon::Error;

namespace {

// Calls `fn(where, schema, value)` for each example of each body in the file.
void each_example(
    const std::function<void(const std::string&, const json::value&, const json::value&)>& fn) {
  const auto content = [&](const std::string& where, const json::object& holder) {
    const auto* found = holder.if_contains("content");
    if (found == nullptr) {
      return;
    }
    for (const auto& media : found->as_object()) {
      const json::object& body = media.value().as_object();
      const auto* examples = body.if_contains("examples");
      if (examples == nullptr) {
        continue;
      }
      for (const auto& example : examples->as_object()) {
        fn(where + " " + std::string{example.key()}, body.at("schema"),
           resolve(example.value()).as_object().at("value"));
      }
    }
  };
  for (const auto& path : openapi().at("paths").as_object()) {
    for (const auto& method : path.value().as_object()) {
      if (!method.value().is_object()) {
        continue;
      }
      const json::object& operation = method.value().as_object();
      const std::string id{operation.at("operationId").as_string()};
      if (const auto* body = operation.if_contains("requestBody")) {
        content("request " + id, body->as_object());
      }
      for (const auto& answer : operation.at("responses").as_object()) {
        content("answer " + id, resolve(answer.value()).as_object());
      }
    }
  }
}

const json::value& schema(const char* name) {
  return openapi().at("components").as_object().at("schemas").as_object().at(name);
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) {
    text += line + "\n";
  }
  return text;
}

template <class T>
std::string refusal(const talon::Result<T>& result) {
  return result ? "" : result.error().message;
}

api::Api& some_api() {
  static talon::Metrics metrics;
  static api::Api instance(api::ApiParts{.offload = nullptr,
                                         .store = nullptr,
                                         .node = nullptr,
                                         .metrics = &metrics,
                                         .default_tenant = "tn1"},
                           api::ApiConfig{});
  return instance;
}

}  // namespace

TEST_CASE("every example is valid by its schema") {
  int count = 0;
  each_example([&](const std::string& where, const json::value& rule, const json::value& value) {
    ++count;
    CHECK(joined(violations(rule, value, where)).empty());
  });
  CHECK(count > 30);
}

TEST_CASE("every request example is taken by the codec") {
  const std::map<std::string, std::function<std::string(const std::string&)>> codecs{
      {"createSandbox",
       [](const std::string& body) {
         return refusal(api::decode_create(body, talon::isolate::ProcMode::full));
       }},
      {"updateSandbox", [](const std::string& body) { return refusal(api::decode_patch(body)); }},
      {"runCommand",
       [](const std::string& body) { return refusal(api::decode_exec(body, api::ExecKind::run)); }},
      {"createProcess",
       [](const std::string& body) {
         return refusal(api::decode_exec(body, api::ExecKind::spawn));
       }},
      {"putService", [](const std::string& body) { return refusal(api::decode_service(body)); }},
      {"signalProcess", [](const std::string& body) { return refusal(api::decode_signal(body)); }},
      {"createPty",
       [](const std::string& body) { return refusal(api::decode_exec(body, api::ExecKind::pty)); }},
      {"resizePty", [](const std::string& body) { return refusal(api::decode_resize(body)); }},
      {"createApiKey", [](const std::string& body) { return refusal(api::decode_key(body)); }},
      {"putPrewarm", [](const std::string& body) { return refusal(api::decode_prewarm(body)); }},
  };
  std::map<std::string, int> seen;
  each_example([&](const std::string& where, const json::value&, const json::value& value) {
    if (!where.starts_with("request ")) {
      return;
    }
    const std::string operation = where.substr(8, where.rfind(' ') - 8);
    INFO(where);
    REQUIRE(codecs.contains(operation));
    CHECK(codecs.at(operation)(json::serialize(value)).empty());
    ++seen[operation];
  });
  CHECK(seen.size() == codecs.size());
}

TEST_CASE("a field that the schema does not have is refused by the codec too") {
  for (const char* name : {"CreateSandbox", "UpdateSandbox", "Run", "Spawn", "CreatePty", "Signal",
                           "CreateKey", "PrewarmRequest"}) {
    INFO(name);
    CHECK(schema(name).as_object().at("additionalProperties") == json::value(false));
  }
  const auto refused = api::decode_create(R"({"colour":1})", talon::isolate::ProcMode::full);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().field == "colour");
}

TEST_CASE("what is answered is valid by its schema") {
  talon::store::SandboxRow row;
  row.id = "sb00000000000000000001";
  row.tenant = "tn1";
  row.state = "stopped";
  row.image = "host";
  row.image_generation = 3;
  node::SandboxWish wish;
  wish.limits.memory_bytes = 64 << 20;
  wish.limits.cpu_cores = 0.5;
  wish.env = {{"A", "b"}};
  wish.timeout = talon::Millis{90'000};
  row.spec_json = node::encode(wish);
  row.labels_json = node::encode(node::Labels{{"a", "b"}});
  row.applied_json = node::encode(talon::isolate::CgroupApplied{});
  row.certificate_json =
      node::encode(node::Certificate{.reason = "host_reboot", .detail = "", .by = "", .at_ms = 1});
  row.expires_ms = 5;
  CHECK(
      joined(violations(schema("Sandbox"), api::sandbox_view(row, some_api()), "sandbox")).empty());
  row.spec_json = "";
  row.applied_json = "";
  row.certificate_json = "";
  CHECK(
      joined(violations(schema("Sandbox"), api::sandbox_view(row, some_api()), "sandbox")).empty());

  talon::store::ExecRow exec;
  exec.id = "px00000000000000000001";
  exec.state = "exited";
  node::ExecRequest request;
  request.argv = {"/bin/true"};
  exec.spec_json = node::encode(request);
  talon::wire::ExitInfo info{};
  info.signal = 9;
  info.code = -1;
  info.flags = talon::wire::kTimedOut;
  exec.result_json = node::encode(info);
  CHECK(joined(violations(schema("Process"), api::process_view(exec), "process")).empty());
  for (const auto record :
       {node::Recording::none, node::Recording::output, node::Recording::input}) {
    request.tty = true;
    request.record = record;
    exec.spec_json = node::encode(request);
    CHECK(joined(violations(schema("Process"), api::process_view(exec), "terminal")).empty());
    REQUIRE(node::terminal_of(exec));
    CHECK(node::terminal_of(exec)->record == record);
  }
  CHECK(joined(violations(schema("Result"), node::result_object(info), "result")).empty());
  node::Prewarmed warm{
      .state = {.image = "host", .generation = 2, .size = 3, .ready = 1, .problem = {}}};
  CHECK(joined(violations(schema("Prewarm"), api::prewarm_view(warm), "prewarm")).empty());
  warm.state.problem = "no space";
  CHECK(joined(violations(schema("Prewarm"), api::prewarm_view(warm), "prewarm")).empty());

  talon::store::ApiKeyRow key;
  key.id = "ky1";
  key.role = "viewer";
  CHECK(joined(violations(schema("Key"), api::key_view(key), "key")).empty());
  talon::store::EventRow event;
  event.type = "sandbox.running";
  event.data_json = "{}";
  CHECK(joined(violations(schema("Event"), api::event_view(event), "event")).empty());

  for (const api::ProblemKind& kind : api::problem_kinds()) {
    const auto response = api::render(api::make_problem(kind.code, "why"), "rq1");
    CHECK(response.status == kind.status);
    const json::value body = json::parse(response.body);
    CHECK(joined(violations(schema("Problem"), body, "problem")).empty());
    CHECK(std::string_view{body.at("code").as_string()} == kind.code);
  }
}

TEST_CASE("the schema checker sees what is wrong") {
  const json::value rule = json::parse(
      R"({"type":"object","required":["a"],"additionalProperties":false,
          "properties":{"a":{"type":"integer","minimum":1},"b":{"enum":["x"]}}})");
  CHECK(violations(rule, json::parse(R"({"a":1,"b":"x"})"), "").empty());
  CHECK(violations(rule, json::parse(R"({"a":0})"), "").size() == 1);
  CHECK(violations(rule, json::parse(R"({"b":"y"})"), "").size() == 2);
  CHECK(violations(rule, json::parse(R"({"a":1,"c":2})"), "").size() == 1);
  CHECK(violations(json::parse(R"({"pattern":"x"})"), "text", "").size() == 1);
}
