// CI-02, and the codes of the other verbs (0 done, 1 refused, 2 usage, 3 not reachable, 4 no such
// thing).

#include <catch2/catch.hpp>

#include "tsb_support.h"

using namespace talon::test;

namespace {

void check(const RunResult& result, int code, const std::string& err) {
  INFO("stderr: " << result.err << "stdout: " << result.out);
  CHECK(result.code == code);
  CHECK(result.err.starts_with(err));
  CHECK(lines_of(result.err).size() == 1);
  CHECK(result.out.empty());
}

}  // namespace

TEST_CASE("tsb exec keeps its own failures apart from the command's", "[e2e][tsb]") {
  Daemon daemon;
  const Tsb tsb(daemon);
  const std::string id = make_sandbox(daemon.client(), {{"name", "box"}});
  const auto code = [&](const std::string& text) {
    return tsb({"exec", "box", "--", "sh", "-c", text}).code;
  };
  CHECK(code("exit 0") == 0);
  CHECK(code("exit 125") == 125);
  CHECK(code("kill -9 $$") == 137);
  CHECK(code("kill -TERM $$") == 143);
  const auto grep = tsb({"exec", "box", "--", "grep", "foo", "/dev/null"});
  CHECK(grep.code == 1);
  CHECK(grep.err.empty());
  const auto missing = tsb({"exec", "box", "--", "nosuchprogram"});
  CHECK(missing.code == 127);
  CHECK(missing.err.find("nosuchprogram") != std::string::npos);
  CHECK(tsb({"exec", "box", "--", "/etc/passwd"}).code == 126);
  check(tsb({"exec", "--timeout", "300ms", "box", "--", "sleep", "60"}), 124, "tsb: ");

  check(tsb({"exec", "nosuch", "--", "true"}), 125, "tsb: not_found: ");
  check(tsb({"exec", "sb00000000000000000000", "--", "true"}), 125, "tsb: not_found: ");
  check(tsb({"exec", "box"}), 125, "tsb: usage: ");
  check(tsb({"exec", "box", "-x", "--", "true"}), 125, "tsb: usage: ");
  check(tsb({"exec", "-u", "nobodyhere", "box", "--", "true"}), 125, "tsb: ");
  CHECK(daemon.stop() == 0);
  check(tsb({"exec", "box", "--", "true"}), 125, "tsb: not_reachable: ");
  check(tsb({"exec", id, "--", "true"}), 125, "tsb: not_reachable: ");
}

TEST_CASE("tsb says by its exit code who refused what", "[e2e][tsb]") {
  Daemon daemon;
  const Tsb tsb(daemon);
  const std::string id = make_sandbox(daemon.client(), {{"name", "box"}});

  check(tsb({"create", "--name", "box"}), 1, "tsb: conflict: ");
  check(tsb({"create", "--memory", "1"}), 1, "tsb: invalid_request: ");
  check(tsb({"resume", "box"}), 1, "tsb: wrong_state: ");

  check(tsb({}), 2, "tsb: usage: ");
  check(tsb({"nosuchverb"}), 2, "tsb: usage: there is no verb \"nosuchverb\"");
  check(tsb({"get"}), 2, "tsb: usage: ");
  check(tsb({"get", "a", "b", "c"}), 2, "tsb: usage: ");
  check(tsb({"get", ""}), 2, "tsb: usage: ");
  check(tsb({"list", "--nosuchoption"}), 2, "tsb: usage: --nosuchoption is not an option of list");
  check(tsb({"list", "-o", "yaml"}), 2, "tsb: usage: --output is table, json or id");
  check(tsb({"create", "-e", "NOVALUE"}), 2, "tsb: usage: --env needs NAME=VALUE");
  check(tsb({"create", "-f", "/nosuchfile"}), 2, "tsb: usage: ");
  check(tsb({"spawn", "box"}), 2, "tsb: usage: no command");
  check(tsb({"stop", "box", "--grace", "1s"}), 2, "tsb: usage: ");
  check(tsb({"pty", "box", "--steal"}), 2, "tsb: usage: ");
  check(tsb({"pty", "box", "--detach-keys", "f1"}), 2, "tsb: usage: ");
  check(Tsb(Args{"TALON_URL=ftp://x"})({"list"}), 2, "tsb: usage: TALON_URL");
  check(Tsb(Args{"TALON_API_KEY=a b"})({"list"}), 2, "tsb: usage: TALON_API_KEY");

  for (const char* verb : {"get", "rm", "pause", "resume", "stop", "start", "list", "logs"}) {
    INFO(verb);
    check(tsb({verb, "nosuch"}), 4, "tsb: not_found: ");
  }
  check(tsb({"spawn", "nosuch", "--", "true"}), 4, "tsb: not_found: ");
  check(tsb({"pty", "nosuch"}), 4, "tsb: not_found: ");
  check(tsb({"pty", "box", "--attach", "px00000000000000000000"}), 4, "tsb: not_found: ");
  check(tsb({"get", "box", "px00000000000000000000"}), 4, "tsb: not_found: ");
  check(tsb({"logs", "box"}), 4, "tsb: not_found: ");
  REQUIRE(tsb({"rm", id}).code == 0);
  check(tsb({"get", id}), 4, "tsb: gone: ");
  check(tsb({"get", "box"}), 4, "tsb: not_found: ");
  // The worst of several, and the good ones are done.
  const std::string other = make_sandbox(daemon.client());
  check(tsb({"rm", "nosuch", other}), 4, "tsb: not_found: ");
  CHECK(tsb({"list", "-o", "id"}).out.empty());
}

TEST_CASE("tsb reaches talond by its address and key, or says that it cannot", "[e2e][tsb]") {
  Daemon daemon;
  const std::string url = "TALON_URL=http://127.0.0.1:" + std::to_string(daemon.tcp().port);
  const Tsb good(Args{url, "TALON_API_KEY=" + daemon.key()});
  const auto made = good({"create", "-o", "id"});
  INFO(made.err);
  REQUIRE(made.code == 0);
  const std::string id = made.out.substr(0, 22);
  CHECK(good({"exec", "-i", id, "--", "cat"}, "over tcp").out == "over tcp");
  CHECK(Tsb(Args{"TALON_URL=unix:" + daemon.socket()})({"list", "-o", "id"}).out == made.out);

  const Tsb wrong(Args{url, "TALON_API_KEY=tk_wrong"});
  check(wrong({"list"}), 1, "tsb: unauthenticated: ");
  check(wrong({"exec", id, "--", "true"}), 125, "tsb: unauthenticated: ");
  check(Tsb(Args{url})({"list"}), 1, "tsb: unauthenticated: ");
  const auto viewer = daemon.client().post("/v1/api-keys", {{"role", "viewer"}});
  const Tsb looks(Args{url, "TALON_API_KEY=" + viewer.text("key")});
  CHECK(looks({"list", "-o", "id"}).out == made.out);
  check(looks({"rm", id}), 1, "tsb: forbidden: ");

  CHECK(daemon.stop() == 0);
  check(good({"list"}), 3, "tsb: not_reachable: ");
  check(good({"create"}), 3, "tsb: not_reachable: ");
  check(Tsb(Args{"TALON_RUN_DIR=/nosuchdir"})({"list"}), 3, "tsb: not_reachable: ");
  check(Tsb(Args{"TALON_URL=http://nosuch.invalid"})({"list"}), 3, "tsb: not_reachable: ");
}
