#include <catch2/catch.hpp>

#include "tsb_support.h"

using namespace talon::test;

namespace {

// An answer in JSON.
Reply json_of(const RunResult& result) {
  Reply reply;
  reply.body = result.out;
  return reply;
}

}  // namespace

TEST_CASE("tsb makes, shows, changes and removes sandboxes", "[e2e][tsb]") {
  Daemon daemon;
  const Tsb tsb(daemon);
  CHECK(lines_of(tsb({"list"}).out) == Args{"ID  NAME  STATE  IMAGE  AGE"});

  const auto made = tsb({"create", "--name", "web", "-o", "id", "-e", "A=1 2", "-l", "team=core",
                         "--cwd", "/tmp", "--timeout", "1h"});
  INFO(made.err);
  REQUIRE(made.code == 0);
  REQUIRE(made.out.size() == 23);
  const std::string id = made.out.substr(0, 22);
  CHECK(id.starts_with("sb"));
  CHECK(made.err.empty());

  const auto got = json_of(tsb({"get", "web", "-ojson"}));
  CHECK(got.text("id") == id);
  CHECK(got.text("state") == "running");
  CHECK(got.text("env.A") == "1 2");
  CHECK(got.text("labels.team") == "core");
  CHECK(got.text("cwd") == "/tmp");
  CHECK(got.at("timeout").to_number<double>() == 3600);
  // By id or name, with names and values in two columns.
  const auto shown = lines_of(tsb({"get", id}).out);
  REQUIRE(shown.size() > 10);
  CHECK(shown[0].starts_with("id "));
  CHECK(shown[0].find(id) == shown[1].find("web"));

  // As a body, with an option over it.
  const auto second = tsb({"create", "-f", "-", "--name", "two", "--output=json"},
                          R"({"storage":"memory","name":"other","labels":{"team":"edge"}})");
  INFO(second.err);
  REQUIRE(second.code == 0);
  CHECK(json_of(second).text("name") == "two");
  CHECK(json_of(second).text("storage") == "memory");

  CHECK(lines_of(tsb({"list", "-o", "id"}).out).size() == 2);
  CHECK(tsb({"list", "-o", "id", "-l", "team=core"}).out == id + "\n");
  CHECK(json_of(tsb({"list", "-o", "json"})).at("items").as_array().size() == 2);
  const auto table = lines_of(tsb({"list", "--label", "team=core", "--state", "running"}).out);
  REQUIRE(table.size() == 2);
  CHECK(table[0].find("NAME") == table[1].find("web"));
  CHECK(table[0].find("STATE") == table[1].find("running"));

  const auto stopped = tsb({"stop", "web", "two", "-o", "json"});
  CHECK(stopped.code == 0);
  CHECK(lines_of(stopped.out).size() == 2);
  CHECK(tsb({"list", "--state", "stopped", "-o", "id"}).out.size() == 46);
  CHECK(tsb({"start", "web", "-o", "id"}).out == id + "\n");
  CHECK(tsb({"exec", "web", "--", "true"}).code == 0);

  CHECK(json_of(tsb({"pause", "web", "-o", "json"})).text("state") == "paused");
  const auto refused = tsb({"exec", "web", "--", "true"});
  CHECK(refused.code == 125);
  CHECK(refused.err.starts_with("tsb: wrong_state: "));
  CHECK(tsb({"exec", "--resume", "web", "--", "echo", "awake"}).out == "awake\n");
  CHECK(tsb({"pause", "web"}).code == 0);
  CHECK(json_of(tsb({"resume", "web", "-o", "json"})).text("state") == "running");

  const auto gone = tsb({"rm", "web", "two"});
  CHECK(gone.code == 0);
  CHECK(gone.out.empty());
  CHECK(tsb({"list", "-o", "id"}).out.empty());
  CHECK(tsb({"rm", id, "-o", "id"}).out == id + "\n");  // once more is no error
}

TEST_CASE("tsb starts processes and reads their logs", "[e2e][tsb]") {
  Daemon daemon;
  const Tsb tsb(daemon);
  const std::string id = make_sandbox(daemon.client());
  const auto spawned = tsb({"spawn", "-o", "id", id, "--", "sh", "-c",
                            "for i in 1 2 3; do echo out $i; done; printf 'err \\377' >&2; "
                            "read x; exit 3"});
  INFO(spawned.err);
  REQUIRE(spawned.code == 0);
  const std::string px = spawned.out.substr(0, 22);
  REQUIRE(px.starts_with("px"));
  // Its standard input is empty: it ends by itself.
  CHECK(wait_exec(daemon.client(), id, px, Seconds(20)).text("state") == "exited");

  const auto whole = tsb({"logs", id, px});
  CHECK(whole.code == 0);
  CHECK(whole.out == "out 1\nout 2\nout 3\n");
  CHECK(whole.err == "err \xff");
  CHECK(tsb({"logs", "-f", id}).out == whole.out);  // the newest one
  CHECK(tsb({"logs", id, px, "--tail", "1", "--stream", "stdout"}).out == "out 3\n");
  CHECK(tsb({"logs", id, px, "--stream", "stderr"}).out.empty());
  CHECK(tsb({"logs", id, px, "--since", "1h"}).out == whole.out);
  CHECK(tsb({"logs", id, px, "--until", "1h"}).out.empty());

  const auto table = lines_of(tsb({"list", id}).out);
  REQUIRE(table.size() == 2);
  CHECK(table[1].starts_with(px + "  exited  exit 3  "));
  CHECK(table[1].find("sh -c for i in") != std::string::npos);
  CHECK(json_of(tsb({"get", id, px, "-o", "json"})).at("result.exit_code") ==
        boost::json::value(3));

  const auto second = tsb({"spawn", "-o", "id", id, "sleep", "1000"}).out.substr(0, 22);
  CHECK(tsb({"stop", id, "--process", second, "--grace", "1s"}).code == 0);
  CHECK(wait_exec(daemon.client(), id, second, Seconds(20)).text("state") == "exited");
  CHECK(tsb({"exec", id, "--", "true"}).code == 0);  // the sandbox itself runs on
}

TEST_CASE("tsb follows a log while it grows", "[e2e][tsb]") {
  Daemon daemon;
  const Tsb tsb(daemon);
  const std::string id = make_sandbox(daemon.client());
  const std::string px =
      spawn_in(daemon.client(), id, {{"command", "echo first; read x; echo $x"}, {"stdin", true}});
  const auto reader = tsb.start({"logs", "-f", id, px});
  REQUIRE(reader->wait_for("first\n", Seconds(20)));
  CHECK(daemon.client()
            .request("POST", "/v1/sandboxes/" + id + "/processes/" + px + "/stdin", "second\n")
            .status == 200);
  const auto read = reader->finish(Seconds(20));
  CHECK(read.code == 0);
  CHECK(read.out == "first\nsecond\n");
}

TEST_CASE("tsb logs ends quietly when its reader has seen enough", "[e2e][tsb]") {
  Daemon daemon;
  const Tsb tsb(daemon);
  const std::string id = make_sandbox(daemon.client());
  const std::string px = spawn_in(daemon.client(), id, {{"command", "seq 1000000"}});
  const auto reader = tsb.start({"logs", "-f", id, px});
  REQUIRE(reader->wait_for("1\n2\n", Seconds(20)));
  reader->close_stdout();
  const auto read = reader->finish(Seconds(20));
  CHECK((read.code == 0 || read.code == 128 + 13));  // SIGPIPE, as any filter
  CHECK(read.err.empty());
}

TEST_CASE("The verbs of tsb are verbs of talond, but for version", "[e2e][tsb]") {
  Daemon daemon;
  const Tsb tsb(daemon);
  const auto version = tsb({"version"});
  CHECK(version.code == 0);
  CHECK(version.out == "tsb " TALON_VERSION "\ntalond " TALON_VERSION "\n");
  CHECK(json_of(tsb({"version", "-o", "json"})).text("talond") == TALON_VERSION);
  CHECK(tsb({"--version"}).out == "tsb " TALON_VERSION "\n");

  RunProcess list({"/usr/bin/env", "TALON_RUN_DIR=" + daemon.run(), Daemon::binary(), "list"},
                  false);
  CHECK(list.finish(Seconds(20)).out == "ID  NAME  STATE  IMAGE  AGE\n");
  RunProcess exec({"/usr/bin/env", "TALON_RUN_DIR=" + daemon.run(), Daemon::binary(), "exec", "no",
                   "--", "true"},
                  false);
  const auto failed = exec.finish(Seconds(20));
  CHECK(failed.code == 125);
  CHECK(failed.err.starts_with("talond: not_found: "));
  // What is talond's alone is none of tsb's.
  CHECK(tsb({"serve"}).code == 2);
  CHECK(tsb({"doctor"}).code == 2);
}
