// Bodies: what is taken, and that every bad one is refused with the name of its field.
#include <catch2/catch.hpp>

#include "server/api/decode.h"
#include "server/api/decode_requests.h"
#include "server/node/codec.h"

using namespace talon;
using namespace talon::server;

namespace {

template <class T>
Error refused(const Result<T>& result) {
  return result ? Error{.code = Code::internal, .sys = 0, .message = "it was taken", .field = "?"}
                : result.error();
}

Error bad_create(const std::string& body) {
  return refused(api::decode_create(body, isolate::ProcMode::full));
}
Error bad_run(const std::string& body) {
  return refused(api::decode_exec(body, api::ExecKind::run));
}

}  // namespace

TEST_CASE("create: defaults and every form of a value") {
  const auto empty = api::decode_create("", isolate::ProcMode::pid_only);
  REQUIRE(empty);
  CHECK(empty->wish.image == "host");
  CHECK(empty->wish.cwd == "/workspace");
  CHECK(empty->wish.proc == isolate::ProcMode::pid_only);
  CHECK_FALSE(empty->wish.limits.memory_bytes);

  const auto full = api::decode_create(
      R"({"name":"a.b-C_1","image":"base","labels":{"k":""},"env":{"A":"b c","E":""},
          "user":"1000:4","cwd":"/","hostname":"box","resources":{"memory":"64MiB","cpu":0.5,"pids":7,
          "disk":"2GiB"},
          "shm_size":"1k","storage":"readonly","proc":"full","timeout":"15m",
          "network":{"mode":"sealed"},"network_policy":"offline",
          "workspace":{"new":{"size":"16MiB"}},
          "isolation":{"min":"namespace"},"idle":null})",
      isolate::ProcMode::pid_only);
  REQUIRE(full);
  CHECK(full->wish.limits.memory_bytes == 64u << 20);
  CHECK(full->wish.limits.cpu_cores == 0.5);
  CHECK(full->wish.limits.pids == 7u);
  CHECK(full->wish.disk_bytes == 2ull << 30);
  CHECK(full->wish.workspace_bytes == 16u << 20);
  CHECK(full->wish.shm_bytes == 1000);
  CHECK(full->wish.storage == isolate::Storage::readonly);
  CHECK(full->wish.timeout == Millis{900'000});
  CHECK(full->wish.proc == isolate::ProcMode::full);
  const auto back = node::decode_wish(node::encode(full->wish));
  REQUIRE(back);
  CHECK(*back == full->wish);
}

TEST_CASE("limits: a size is there if it was asked for, with its method") {
  const std::string none = node::encode(isolate::CgroupApplied{});
  CHECK_FALSE(node::has_size(none, "disk"));
  const std::string applied = node::encode(
      isolate::CgroupApplied{},
      {.root = {.bytes = 4096, .method = isolate::DiskMethod::project_quota}, .workspace = {}});
  CHECK(node::has_size(applied, "disk"));
  CHECK_FALSE(node::has_size(applied, "workspace"));
  CHECK(applied.find(R"("disk":{"value":4096,"enforced":true,"asked":true,)"
                     R"("method":"project_quota"})") != std::string::npos);
  CHECK_FALSE(node::has_size("", "disk"));
}

TEST_CASE("create: what is wrong is named") {
  struct Case {
    std::string body;
    std::string field;
    Code code = Code::invalid_request;
  };
  const std::vector<Case> cases{
      {R"({"colour":"red"})", "colour"},
      {R"({"resources":{"disks":1}})", "resources.disks"},
      {R"({"name":7})", "name"},
      {R"({"name":""})", "name"},
      {R"({"name":"a/b"})", "name"},
      {R"({"name":".."})", "name"},
      {R"({"name":"a\u0000b"})", "name"},
      {R"({"name":")" + std::string(129, 'a') + R"("})", "name"},
      {R"({"name":"a","name":"a"})", "name"},
      {R"({"resources":{"cpu":1,"cpu":2}})", "cpu"},
      {R"({"image":"no/such"})", "image"},
      {R"({"image":"../x"})", "image"},
      {R"({"resources":[]})", "resources"},
      {R"({"resources":{"memory":0}})", "resources.memory"},
      {R"({"resources":{"memory":-1}})", "resources.memory"},
      {R"({"resources":{"memory":1.5}})", "resources.memory"},
      {R"({"resources":{"memory":"12 parsecs"}})", "resources.memory"},
      {R"({"resources":{"memory":1e300}})", "resources.memory"},
      {R"({"resources":{"cpu":-1}})", "resources.cpu"},
      {R"({"resources":{"cpu":0}})", "resources.cpu"},
      {R"({"resources":{"cpu":"1"}})", "resources.cpu"},
      {R"({"resources":{"pids":0}})", "resources.pids"},
      {R"({"resources":{"pids":1.5}})", "resources.pids"},
      {R"({"storage":"tape"})", "storage"},
      {R"({"storage":1})", "storage"},
      {R"({"env":{"A=B":"c"}})", "env"},
      {R"({"env":{"":"c"}})", "env"},
      {R"({"env":["A=B"]})", "env"},
      {R"({"env":{"A":1}})", "env.A"},
      {R"({"env":{"A":"x\u0000"}})", "env.A"},
      {R"({"labels":{"a":1}})", "labels.a"},
      {R"({"labels":{"a=b":"1"}})", "labels"},
      {R"({"cwd":"not/absolute"})", "cwd"},
      {R"({"hostname":"-x"})", "hostname"},
      {R"({"hostname":"a.b"})", "hostname"},
      {R"({"timeout":0})", "timeout"},
      {R"({"timeout":-5})", "timeout"},
      {R"({"timeout":"soon"})", "timeout"},
      {R"({"network":"wide"})", "network"},
      {R"({"network":7})", "network"},
      {R"({"network":{"mod":"deny"}})", "network.mod"},
      {R"({"workspace":{"newer":{}}})", "workspace.newer"},
      {R"({"network":"open"})", "network", Code::not_supported_yet},
      {R"({"network":{"mode":"allowlist"}})", "network.mode", Code::not_supported_yet},
      {R"({"network":{"mode":"deny","allow":["a"]}})", "network.allow", Code::not_supported_yet},
      {R"({"workspace":"ws1"})", "workspace", Code::not_supported_yet},
      {R"({"workspace":{"new":{"size":1}}})", "workspace.new.size"},
      {R"({"isolation":{"min":"vm"}})", "isolation.min", Code::not_supported_yet},
      {R"({"resources":{"disk":1}})", "resources.disk"},
      {R"({"resources":{"io":{"write":1}}})", "resources.io.write"},
      {R"({"resources":{"io":{"iops":1}}})", "resources.io.iops"},
      {R"({"command":""})", "command"},
      {R"({"restart":"always"})", "command"},
      {R"({"command":"true","restart":"maybe"})", "restart"},
      {R"({"ports":[1]})", "ports", Code::not_supported_yet},
      {R"({"secrets":{}})", "secrets", Code::not_supported_yet},
      {R"({"idle":{}})", "idle", Code::not_supported_yet},
      {R"({"nested":true})", "nested", Code::not_supported_yet},
      {R"({"from":{}})", "from", Code::not_supported_yet},
  };
  for (const Case& one : cases) {
    INFO(one.body);
    const Error error = bad_create(one.body);
    INFO(error.message);
    CHECK(error.code == one.code);
    CHECK(error.field == one.field);
    CHECK(error.message.size() > 10);
  }
}

TEST_CASE("a body that is not one JSON object is refused") {
  for (const std::string& body :
       {std::string{"{\"name\":"}, std::string{"[1]"}, std::string{"\"x\""}, std::string{"{} {}"},
        std::string{"{}x"}, std::string{"{\"name\":\"\xff\xfe\"}"}, std::string{"{'a':1}"},
        std::string{"{\"a\":01}"}, std::string{"{\"a\":1,}"}, std::string{"nul"},
        std::string("{\"a\":1}\0", 8)}) {
    INFO(body);
    CHECK(bad_create(body).code == Code::invalid_request);
  }
  std::string deep;
  for (int i = 0; i < 2000; ++i) {
    deep += "{\"a\":";
  }
  CHECK(bad_create(deep).message.find("deeper") != std::string::npos);
  CHECK(api::parse_body(" \r\n\t{ } \n"));
  CHECK(api::parse_body("  "));
}

TEST_CASE("run: command or argv, limits of the kernel, numbers") {
  const auto good = api::decode_exec(
      R"({"argv":["a",""],"stdin":"aGk=","stdin_encoding":"base64","timeout":0.25,"grace":"1s",
          "max_output":"200MiB","env":{"X":"y"},"user":"u:g","cwd":"/tmp"})",
      api::ExecKind::run);
  REQUIRE(good);
  CHECK(good->stdin_head == "hi");
  CHECK(good->timeout == Millis{250});
  CHECK(good->max_output == 200u << 20);
  CHECK(good->log_cap == 0);

  CHECK(bad_run("{}").field == "command");
  CHECK(bad_run(R"({"command":"a","argv":["b"]})").field == "argv");
  CHECK(bad_run(R"({"command":""})").field == "command");
  CHECK(bad_run(R"({"argv":[]})").field == "argv");
  CHECK(bad_run(R"({"argv":[""]})").field == "argv");
  CHECK(bad_run(R"({"argv":["a",1]})").field == "argv[1]");
  CHECK(bad_run(R"({"argv":["a","b\u0000"]})").field == "argv[1]");
  CHECK(bad_run(R"({"command":"a","cwd":"x"})").field == "cwd");
  CHECK(bad_run(R"({"command":"a","timeout":0})").field == "timeout");
  CHECK(bad_run(R"({"command":"a","max_output":"2GiB"})").field == "max_output");
  CHECK(bad_run(R"({"command":"a","stdin":true})").field == "stdin");
  CHECK(bad_run(R"({"command":"a","stdin":"?","stdin_encoding":"base64"})").field == "stdin");
  CHECK(bad_run(R"({"command":"a","log":{}})").field == "log");
  CHECK(bad_run(R"({"command":"a","tty":true})").field == "tty");

  const Error argument = bad_run(R"({"argv":["a",")" + std::string(200'000, 'x') + R"("]})");
  CHECK(argument.code == Code::too_large);
  CHECK(argument.field == "argument_bytes@argv[1]");
  std::string many = R"({"command":"a","env":{)";
  for (int i = 0; i < 30; ++i) {
    many +=
        (i == 0 ? "\"V" : ",\"V") + std::to_string(i) + "\":\"" + std::string(100'000, 'e') + "\"";
  }
  const Error environment = bad_run(many + "}}");
  CHECK(environment.code == Code::too_large);
  CHECK(environment.field == "arguments_bytes@env");

  const auto fed = api::decode_exec(R"({"argv":["cat"],"stdin":true,"log":{"cap":"1MiB"}})",
                                    api::ExecKind::spawn);
  REQUIRE(fed);
  CHECK(fed->stdin_open);
  CHECK(fed->log_cap == 1u << 20);
  CHECK(refused(api::decode_exec(R"({"argv":["a"],"max_output":1})", api::ExecKind::spawn)).field ==
        "max_output");
}

TEST_CASE("patch: null takes the timeout away, leaving it out does not") {
  const auto none = api::decode_patch(R"({"timeout":null})");
  REQUIRE(none);
  REQUIRE(none->timeout);
  CHECK_FALSE(*none->timeout);
  const auto absent = api::decode_patch(R"({"name":""})");
  REQUIRE(absent);
  CHECK_FALSE(absent->timeout);
  CHECK(absent->name == std::string{});
  CHECK(refused(api::decode_patch(R"({"state":"running"})")).field == "state");
}

TEST_CASE("signals by name and number") {
  CHECK(api::signal_number("TERM") == 15);
  CHECK(api::signal_number("SIGKILL") == 9);
  CHECK(api::signal_number("34") == 34);
  CHECK_FALSE(api::signal_number("0"));
  CHECK_FALSE(api::signal_number("65"));
  CHECK_FALSE(api::signal_number("TERMINATE"));
  CHECK_FALSE(api::signal_number(""));
  CHECK(api::decode_signal(R"({"signal":2,"scope":"all"})")->scope == 2);
  CHECK(refused(api::decode_signal(R"({})")).field == "signal");
  CHECK(refused(api::decode_signal(R"({"signal":"X"})")).field == "signal");
  CHECK(refused(api::decode_signal(R"({"signal":1,"scope":"some"})")).field == "scope");
}

TEST_CASE("query values") {
  CHECK(api::query_time("since", "0") == 0u);
  CHECK(api::query_time("since", "1767225600.5") == 1767225600'500'000'000u);
  CHECK(api::query_time("since", "2026-01-01T00:00:00Z") == 1767225600'000'000'000u);
  CHECK(api::query_time("since", "2026-01-01T01:00:00.25+01:00") == 1767225600'250'000'000u);
  for (const char* text : {"", "yesterday", "2026-02-30T00:00:00Z", "2026-01-01T00:00:00",
                           "2026-01-01T24:00:00Z", "-1", "1e99", "2026-01-01T00:00:00.Z"}) {
    INFO(text);
    CHECK(refused(api::query_time("since", text)).field == "since");
  }
  CHECK(refused(api::query_whole("limit", "0", 1, 10)).field == "limit");
  CHECK(refused(api::query_whole("limit", "3x", 1, 10)).field == "limit");
  CHECK(api::query_whole("limit", "10", 1, 10) == 10u);
  CHECK(refused(api::query_flag("follow", "yes")).field == "follow");
}
