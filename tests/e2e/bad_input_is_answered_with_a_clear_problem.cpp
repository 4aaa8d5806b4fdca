// Each kind of bad input: a problem that names what is wrong, nothing left behind, and a daemon
// that lives.
#include <catch2/catch.hpp>

#include <fstream>

#include "support/daemon.h"
#include "support/machine.h"

using namespace talon::test;
namespace json = boost::json;

namespace {

// What every refusal must look like (RFC 9457).
void check_problem(const Reply& reply, int status, const std::string& code) {
  INFO("answer: " << reply.status << " " << reply.error << " " << reply.body.substr(0, 500));
  CHECK(reply.status == status);
  CHECK(reply.header("content-type").starts_with("application/problem+json"));
  CHECK(reply.text("code") == code);
  CHECK_FALSE(reply.text("detail").empty());
  CHECK_FALSE(reply.text("request_id").empty());
  CHECK(reply.text("request_id") == reply.header("x-request-id"));
}

std::string field_of(const Reply& reply) { return reply.text("field"); }

}  // namespace

TEST_CASE("a create with a bad body is refused and makes no row") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto before = daemon.snapshot();
  struct Bad {
    const char* body;
    const char* field;
  };
  const Bad bodies[] = {
      {R"({"colour":"red"})", "colour"},
      {R"({"resources":{"disks":1}})", "resources.disks"},
      {R"({"name":7})", "name"},
      {R"({"name":"a/b"})", "name"},
      {R"({"name":"a\u0000b"})", "name"},
      {R"({"image":"no/such"})", "image"},
      {R"({"resources":{"memory":0}})", "resources.memory"},
      {R"({"resources":{"memory":"12 parsecs"}})", "resources.memory"},
      {R"({"resources":{"cpu":-1}})", "resources.cpu"},
      {R"({"resources":{"pids":-5}})", "resources.pids"},
      {R"({"storage":"tape"})", "storage"},
      {R"({"env":{"A=B":"c"}})", "env"},
      {R"({"env":["A=B"]})", "env"},
      {R"({"cwd":"not/absolute"})", "cwd"},
      {R"({"name":"a","name":"b"})", "name"},
  };
  for (const auto& bad : bodies) {
    INFO(bad.body);
    const auto reply = client.request("POST", "/v1/sandboxes", bad.body);
    check_problem(reply, 400, "invalid_request");
    CHECK_THAT(field_of(reply), Catch::StartsWith(std::string(bad.field).substr(0, 3)));
    CHECK(field_of(reply) == bad.field);
  }
  for (const auto* body : {"{\"name\":", "[1,2]", "\"text\"", "{} {}", "{\"name\":\"\xff\xfe\"}",
                           "not json", "{'name':'x'}"}) {
    INFO(body);
    check_problem(client.request("POST", "/v1/sandboxes", body), 400, "invalid_request");
  }
  std::string deep;
  for (int i = 0; i < 2000; ++i) {
    deep += "{\"a\":";
  }
  check_problem(client.request("POST", "/v1/sandboxes", deep), 400, "invalid_request");

  const auto unknown = client.request("POST", "/v1/sandboxes", R"({"image":"nosuchimage"})");
  INFO(unknown.body);
  CHECK((unknown.status == 404 || unknown.status == 400));
  CHECK(unknown.text("detail").find("nosuchimage") != std::string::npos);

  for (const auto* later : {R"({"network":"open"})", R"({"network":"allowlist"})",
                            R"({"idle":{"after":60}})", R"({"ports":[80]})"}) {
    INFO(later);
    check_problem(client.request("POST", "/v1/sandboxes", later), 422, "not_supported_yet");
  }
  check_problem(client.request("POST", "/v1/sandboxes?colour=red", "{}"), 400, "invalid_request");
  check_problem(client.get("/v1/nothing"), 404, "not_found");
  check_problem(client.get("/v1/sandboxes/sb00000000000000000000"), 404, "not_found");
  check_problem(client.get("/v1/sandboxes/..%2f..%2fetc"), 404, "not_found");
  check_problem(client.request("PUT", "/v1/sandboxes", "{}"), 405, "method_not_allowed");

  CHECK(client.get("/v1/sandboxes").at("items").get_array().empty());
  CHECK(daemon.settled(before, Seconds(5)) == std::vector<std::string>());
}

TEST_CASE("a limit that the host cannot hold is refused, naming the controller") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto controllers = machine::read_file(machine::cgroup2_mount() + "/cgroup.controllers");
  const auto reply =
      client.post("/v1/sandboxes?wait=running", {{"resources", json::object{{"memory", "64MiB"}}}});
  INFO(reply.body);
  if (controllers.find("memory") != std::string::npos) {
    CHECK(reply.status == 201);
    return;
  }
  check_problem(reply, 422, "unenforceable");
  CHECK(reply.text("detail").find("memory") != std::string::npos);
  CHECK(client.get("/v1/sandboxes").at("items").get_array().empty());
}

TEST_CASE("a run with bad input is refused and starts nothing") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto run = "/v1/sandboxes/" + id + "/run";
  const auto processes = daemon.processes(id).size();

  check_problem(client.post(run, json::object()), 400, "invalid_request");
  check_problem(client.post(run, {{"command", "true"}, {"argv", json::array{"true"}}}), 400,
                "invalid_request");
  check_problem(client.post(run, {{"argv", json::array()}}), 400, "invalid_request");
  check_problem(client.post(run, {{"command", "true"}, {"timeout", "soon"}}), 400,
                "invalid_request");
  check_problem(client.post(run, {{"command", "true"}, {"max_output", "2GiB"}}), 400,
                "invalid_request");
  // cwd and user are known only inside; the answer names the field and says why.
  const auto cwd = client.post(run, {{"command", "true"}, {"cwd", "/no/such/dir"}});
  check_problem(cwd, 400, "invalid_request");
  CHECK(field_of(cwd) == "cwd");
  const auto user = client.post(run, {{"command", "true"}, {"user", "nobodyhere"}});
  check_problem(user, 400, "invalid_request");
  CHECK(field_of(user) == "user");

  CHECK(daemon.processes(id).size() == processes);
  CHECK(exit_code(run_in(client, id, "true")) == 0);
}

// EX-20: an argument, an environment or a text that is too long is refused whole, naming the
// limit; a long text that fits runs.
TEST_CASE("what is too long for the kernel is refused whole or runs whole") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto run = "/v1/sandboxes/" + id + "/run";

  const auto argument =
      client.post(run, {{"argv", json::array{"true", std::string(200 * 1000, 'a')}}});
  check_problem(argument, 413, "too_large");
  CHECK_FALSE(argument.text("limit").empty());

  json::object env;
  for (int i = 0; i < 30; ++i) {
    env["V" + std::to_string(i)] = std::string(100 * 1000, 'e');
  }
  const auto environment = client.post(run, {{"command", "true"}, {"env", env}});
  check_problem(environment, 413, "too_large");
  CHECK_FALSE(environment.text("limit").empty());

  check_problem(client.request("POST", run, std::string(10 * 1000 * 1000, ' ')), 413, "too_large");

  std::string script;
  while (script.size() < 1000 * 1000) {
    script += "x=$((x+1)) # " + std::string(80, 'c') + "\n";
  }
  const auto lines = std::count(script.begin(), script.end(), '\n');
  script += "echo $x END $#";
  const auto ran = run_in(client, id, script);
  CHECK(exit_code(ran) == 0);
  CHECK(ran.text("stdout") == std::to_string(lines) + " END 0\n");
}

TEST_CASE("malformed HTTP is answered or closed, and the daemon lives") {
  Daemon daemon;
  const auto client = daemon.client();
  const std::string auth = "Host: x\r\nAuthorization: Bearer " + daemon.key() + "\r\n";
  const std::string requests[] = {
      "POST /v1/sandboxes HTTP/1.1\r\n" + auth +
          "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
      "POST /v1/sandboxes HTTP/1.1\r\n" + auth +
          "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "POST /v1/sandboxes HTTP/1.1\r\n" + auth + "Content-Length: -1\r\n\r\n",
      "GET /v1/sandboxes HTTP/1.1\r\nHost : x\r\n\r\n",
      "GARBAGE\r\n\r\n",
      "GET /v1/sandboxes HTTP/1.1\r\nX: " + std::string(40000, 'x') + "\r\n\r\n",
      "GET /" + std::string(20000, 'p') + " HTTP/1.1\r\nHost: x\r\n\r\n",
      std::string("GET /v1/\0 HTTP/1.1\r\nHost: x\r\n\r\n", 32),
  };
  for (const auto& request : requests) {
    INFO(request.substr(0, 120));
    Connection connection(daemon.tcp());
    REQUIRE(connection.open());
    connection.send(request);
    const auto reply = connection.read_reply(Seconds(10));
    CHECK(((reply.status >= 400 && reply.status < 600) || reply.status == 0));
    CHECK(connection.closed_by_peer(Seconds(10)));
  }
  {  // A request cut in the middle of its body leaves no sandbox.
    Connection cut(daemon.tcp());
    cut.send("POST /v1/sandboxes HTTP/1.1\r\n" + auth + "Content-Length: 100\r\n\r\n{\"name\":");
  }
  CHECK(client.get("/v1/sandboxes").at("items").get_array().empty());
}

TEST_CASE("two thousand half-open connections do not keep others out") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto fds = daemon.use().fds;
  {
    std::vector<Connection> open;
    for (int i = 0; i < 2000; ++i) {
      open.emplace_back(daemon.tcp());
      if (!open.back().open()) {
        break;
      }
      open.back().send("GET /healthz HTTP/1.1\r\nHo");
    }
    CHECK(open.size() == 2000);
    const auto reply = client.get("/healthz");
    CHECK(reply.status == 200);
    CHECK(reply.seconds < 5);
    CHECK(exit_code(run_in(client, make_sandbox(client), "true")) == 0);
  }
  // The sandbox that was made above holds a few; the two thousand are gone.
  CHECK(eventually(Seconds(20), [&] { return daemon.use().fds < fds + 40; }));
}
