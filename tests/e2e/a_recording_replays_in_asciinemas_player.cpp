// A terminal that a person works in (xterm.js, fed by the PTY's WebSocket, resized twice), and its
// recording in asciinema's own player: the same cells at the end and before each resize, played and
// sought. tests/player has the two; they come from npm, so without it or a network this is skipped.
#include <catch2/catch.hpp>

#include "e2e/run_support.h"

using namespace talon::test;

namespace {

const std::string kPlayer = std::string{TALON_SOURCE_DIR} + "/tests/player";
const std::string kInstalled = std::string{TALON_BUILD_DIR} + "/player";

RunResult run_program(const std::vector<std::string>& args) {
  RunProcess process{args, false};
  process.close_stdin();
  return process.finish(Seconds(200));
}

void replays(const std::string& program) {
  const auto installed = run_program({"/bin/sh", kPlayer + "/install", kInstalled});
  if (installed.code != 0) {
    WARN("SKIP: " << installed.out);
    return;
  }
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  if (exit_code(run_in(client, id, "command -v " + program)) != 0) {
    WARN("SKIP: the image has no " << program);
    return;
  }
  const auto base = "http://127.0.0.1:" + std::to_string(client.endpoint().port);
  const auto seen = run_program(
      {"/usr/bin/env", "node", kInstalled + "/replay.mjs", base, client.key(), id, program});
  INFO(seen.err);
  REQUIRE(seen.code == 0);
  boost::system::error_code ec;
  const auto result = boost::json::parse(seen.out, ec);
  REQUIRE_FALSE(ec);
  for (const auto& difference : result.at("different").as_array()) {
    FAIL_CHECK(std::string_view{difference.as_string()});
  }
  CHECK(result.at("same").as_array().size() == 5);
}

}  // namespace

TEST_CASE("a recording of vim, resized twice, replays to the screens that the terminal had") {
  replays("vim");
}

TEST_CASE("a recording of top, resized twice, replays to the screens that the terminal had") {
  replays("top");
}
