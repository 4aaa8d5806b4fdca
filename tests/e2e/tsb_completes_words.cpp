#include <catch2/catch.hpp>
#include <filesystem>

#include "tsb_support.h"

using namespace talon::test;

namespace {

// What bash offers for a line whose last word the cursor stands behind.
Args completed(const Daemon& daemon, const Args& words) {
  std::string line;
  for (const std::string& word : words) {
    line += " '" + word + "'";
  }
  const std::string script = "source <(" + Tsb::binary() + " completion bash) && COMP_WORDS=('" +
                             Tsb::binary() + "'" + line +
                             ") && COMP_CWORD=$((${#COMP_WORDS[@]} - "
                             "1)) && _tsb && printf '%s\\n' \"${COMPREPLY[@]}\"";
  RunProcess bash({"/usr/bin/env", "TALON_RUN_DIR=" + daemon.run(), "/bin/bash", "-c", script},
                  false);
  const auto result = bash.finish(Seconds(20));
  INFO(result.err);
  CHECK(result.err.empty());
  return lines_of(result.out);
}

}  // namespace

TEST_CASE("bash completes verbs, options, their values, names and ids", "[e2e][tsb]") {
  Daemon daemon;
  const Tsb tsb(daemon);
  const std::string id = make_sandbox(daemon.client(), {{"name", "web-1"}});
  const std::string px = spawn_in(daemon.client(), id, {{"command", "sleep 1000"}});
  CHECK(completed(daemon, {"cre"}) == Args{"create"});
  CHECK(completed(daemon, {"st"}) == Args{"stop", "start"});
  CHECK(completed(daemon, {"list", "--st"}) == Args{"--state"});
  CHECK(completed(daemon, {"list", "-o", "j"}) == Args{"json"});
  CHECK(completed(daemon, {"list", "--output", "=", "t"}) == Args{"table"});
  CHECK(completed(daemon, {"get", "w"}) == Args{"web-1"});
  CHECK(completed(daemon, {"get", id.substr(0, 8)}) == Args{id});
  CHECK(completed(daemon, {"logs", "-f", "web-1", ""}) == Args{px});
  CHECK(completed(daemon, {"completion", "f"}) == Args{"fish"});
  CHECK(completed(daemon, {"exec", "web-1", "--", "l"}) == Args{""});
  CHECK(completed(daemon, {"nosuchverb", ""}) == Args{""});
  CHECK(daemon.stop() == 0);
  CHECK(completed(daemon, {"get", ""}) == Args{""});  // and nothing on stderr
}

TEST_CASE("The completion scripts are scripts", "[e2e][tsb]") {
  const Tsb tsb{Args{}};
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    const auto script = tsb({"completion", shell});
    REQUIRE(script.code == 0);
    CHECK(script.out.find("__complete") != std::string::npos);
    const std::string program = "/usr/bin/" + shell;
    if (!std::filesystem::exists(program)) {
      CHECK(shell != "bash");
      continue;
    }
    RunProcess check({program, shell == "fish" ? "--no-execute" : "-n", "/dev/stdin"}, false);
    check.write(script.out);
    check.close_stdin();
    const auto parsed = check.finish(Seconds(20));
    INFO(shell << ": " << parsed.err);
    CHECK(parsed.code == 0);
  }
  CHECK(tsb({"completion", "tcsh"}).code == 2);
}
