#include <catch2/catch.hpp>

#include "run_support.h"
#include "support/machine.h"

using namespace talon::test;

TEST_CASE("talond run refuses wrong usage with 125, one line, and nothing made") {
  const RunHome home;
  struct Case {
    std::vector<std::string> args;
    const char* says;
  };
  const Case cases[] = {
      {{}, "no command"},
      {{"--"}, "no command"},
      {{"--net", "open", "--", "true"}, "--net open comes with a later release"},
      {{"--net", "allowlist", "--", "true"}, "--net allowlist comes with a later release"},
      {{"--net", "banana", "--", "true"},
       "--net is deny, sealed or offline (allowlist, open and "
       "learn come with a later release), not \"banana\""},
      {{"--memroy", "1GiB", "--", "true"}, "--memroy"},
      {{"--memory", "lots", "--", "true"}, "\"lots\" is not a size"},
      {{"--memory", "1MiB", "--", "true"}, "at least 16MiB"},
      {{"--cpu", "-1", "--", "true"}, "--cpu"},
      {{"--cpu", "0", "--", "true"}, "--cpu"},
      {{"--pids", "0", "--", "true"}, "--pids"},
      {{"--timeout", "0", "--", "true"}, "--timeout"},
      {{"--timeout", "soon", "--", "true"}, "\"soon\" is not a duration"},
      {{"--env", "NOVALUE", "--", "true"}, "--env needs NAME=VALUE"},
      {{"--storage", "tape", "--", "true"}, "--storage is disk, memory or readonly"},
      {{"--cwd", "relative", "--", "true"}, "--cwd needs an absolute path"},
      {{"--workspace", "/nonexistent", "--", "true"}, "--workspace: open /nonexistent"},
      {{"--image", "no-such-image", "--", "true"}, "no-such-image"},
      {{"--image", "../host", "--", "true"}, "image name"},
      {{"--user", "no-such-user", "--", "true"}, "--user"},
      {{"--cwd", "/no/such/dir", "--", "true"}, "--cwd"},
  };
  for (const Case& one : cases) {
    CAPTURE(one.args);
    const auto result = home.run(one.args);
    CHECK(result.code == 125);
    CHECK(result.out.empty());
    CHECK(result.err.find(one.says) != std::string::npos);
    CHECK(result.err.starts_with("talond: "));
    CHECK(std::ranges::count(result.err, '\n') == 1);
    CHECK(home.clean());
  }
}

TEST_CASE("a verb that does not exist is named, with those that do") {
  const auto ran = Daemon::run_talond({"srve"}, Seconds(10));
  CHECK(ran.code == 2);
  CHECK(ran.output.starts_with("talond: there is no verb \"srve\"; there are serve run doctor"));
  CHECK(std::ranges::count(ran.output, '\n') == 1);
}

TEST_CASE("talond run refuses a limit that this host cannot enforce and names the controller") {
  const RunHome home;
  const auto here = machine::read_file(home.home().cgroup() + "/cgroup.controllers");
  struct Case {
    const char* flag;
    const char* value;
    const char* controller;
  };
  for (const Case& one : {Case{"--memory", "64MiB", "memory"}, Case{"--cpu", "0.5", "cpu"},
                          Case{"--pids", "50", "pids"}}) {
    CAPTURE(one.flag);
    const auto result = home.run({one.flag, one.value, "--", "true"});
    if (here.find(one.controller) != std::string::npos) {
      CHECK(result.code == 0);
      continue;
    }
    CHECK(result.code == 125);
    CHECK(result.err.find(std::string("'") + one.controller + "'") != std::string::npos);
  }
  CHECK(home.clean());
}

TEST_CASE("an unknown key in the configuration file is refused with file and line") {
  const RunHome home;
  const std::string file = home.home().data() + "/talond.toml";
  FILE* out = std::fopen(file.c_str(), "w");
  REQUIRE(out != nullptr);
  std::fputs("strict = false\nmemroy = 5\n", out);
  std::fclose(out);
  const auto result = home.run({"--config", file, "--", "true"});
  CHECK(result.code == 125);
  CHECK(result.err.starts_with("talond: " + file + ":2: unknown key memroy"));
}
