// Why a sandbox and its processes ended can be read after both are gone, also by a later daemon.
#include <catch2/catch.hpp>

#include <signal.h>

#include "support/daemon.h"

using namespace talon::test;
namespace json = boost::json;

namespace {

// What was printed last comes a moment after the end.
json::value certificate_with_lines(const Client& client, const std::string& path) {
  json::value found;
  eventually(Seconds(10), [&] {
    found = client.get(path).json().at("certificate");
    return found.is_object() && found.as_object().contains("last_lines");
  });
  return found;
}

}  // namespace

TEST_CASE("a deleted sandbox and its processes answer 410 with what is known of their end") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const std::string path = "/v1/sandboxes/" + id;
  const auto px = run_in(client, id, "echo bye; exit 3").text("id");
  const auto before = certificate_with_lines(client, path + "/processes/" + px);
  CHECK(before.at("reason") == json::value("exit"));
  CHECK(before.at("exit_code") == json::value(3));
  CHECK(before.at("last_lines") == json::value(json::array{"bye"}));
  REQUIRE(client.del(path).status == 204);

  for (int life = 0; life < 2; ++life) {
    const auto now = daemon.client();  // a later daemon has another port
    const auto sandbox = now.get(path);
    INFO(sandbox.body);
    CHECK(sandbox.status == 410);
    CHECK(sandbox.json().at("certificate").at("reason") == json::value("user"));
    CHECK(sandbox.json().at("certificate").at("last_process") == json::value(px));
    CHECK(sandbox.json().at("certificate").at("last_lines") == json::value(json::array{"bye"}));
    const auto process = now.get(path + "/processes/" + px);
    INFO(process.body);
    CHECK(process.status == 410);
    CHECK(process.json().at("certificate") == before);
    if (life == 0) {
      daemon.kill_hard();
      daemon.start();
    }
  }
}

TEST_CASE("a sandbox whose init was killed says by which signal, adopted or not") {
  Daemon daemon;
  for (const bool adopted : {false, true}) {
    const auto id = make_sandbox(daemon.client());
    const std::string path = "/v1/sandboxes/" + id;
    const auto all = daemon.processes(id);
    REQUIRE(all.size() == 1);  // init alone
    if (adopted) {
      daemon.kill_hard();
      daemon.start();
    }
    const auto client = daemon.client();
    REQUIRE(::kill(all[0], SIGKILL) == 0);
    CHECK(eventually(Seconds(10), [&] { return client.get(path).text("state") == "stopped"; }));
    const auto why = client.get(path).json().at("certificate");
    INFO(json::serialize(why));
    // After an adoption nobody of ours is its parent; since Linux 6.15 the kernel still tells.
    if (!adopted || why.as_object().contains("signal")) {
      CHECK(why.at("reason") == json::value("signal"));
      CHECK(why.at("signal") == json::value(SIGKILL));
    } else {
      CHECK(why.at("reason") == json::value("error"));
    }
  }
}

TEST_CASE("a call that the filter kills for is told as seccomp, a signal as a signal") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  for (const auto& [command, reason] : {std::pair{"kill -SYS $$", "seccomp"},
                                        {"kill -SEGV $$", "signal"},
                                        {"exit 0", "exit"},
                                        {"exec /no/such/program", "exit"}}) {
    const auto px = run_in(client, id, command).text("id");
    const auto record = client.get("/v1/sandboxes/" + id + "/processes/" + px);
    INFO(record.body);
    CHECK(record.json().at("certificate").at("reason") == json::value(reason));
  }
}
