#include <signal.h>
#include <catch2/catch.hpp>

#include "run_support.h"

using namespace talon::test;

namespace {

const std::string kTrap =
    "trap 'echo got INT; exit 10' INT; trap 'echo got TERM; exit 11' TERM; "
    "trap 'echo got HUP; exit 12' HUP; trap 'echo got QUIT; exit 13' QUIT; "
    "echo ready; while :; do sleep 0.05; done";

}  // namespace

TEST_CASE("talond run passes INT, TERM, HUP and QUIT on to the command") {
  const RunHome home;
  struct Case {
    int number;
    const char* name;
    int code;
  };
  for (const Case& one : {Case{SIGINT, "INT", 10}, Case{SIGTERM, "TERM", 11},
                          Case{SIGHUP, "HUP", 12}, Case{SIGQUIT, "QUIT", 13}}) {
    CAPTURE(one.name);
    RunProcess process{home.args({"--", "sh", "-c", kTrap}), false};
    REQUIRE(process.wait_for("ready", Seconds(60)));
    process.signal(one.number);
    const auto result = process.finish(Seconds(60));
    CHECK(result.code == one.code);
    CHECK(result.out == std::string("ready\ngot ") + one.name + "\n");
  }
  CHECK(home.clean());
}

TEST_CASE("a signal without a handler ends the command and talond run cleans up") {
  const RunHome home;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    RunProcess process{home.args({"--", "sh", "-c", "echo ready; exec sleep 600"}), false};
    REQUIRE(process.wait_for("ready", Seconds(60)));
    process.signal(number);
    CHECK(process.finish(Seconds(60)).code == 128 + number);
    CHECK(home.clean());
  }
}

TEST_CASE("a second SIGINT kills a command that ignores the first") {
  const RunHome home;
  RunProcess process{
      home.args({"--", "sh", "-c",
                 "trap 'echo ignored' INT TERM; echo ready; while :; do sleep 0.05; done"}),
      false};
  REQUIRE(process.wait_for("ready", Seconds(60)));
  process.signal(SIGINT);
  REQUIRE(process.wait_for("ignored", Seconds(60)));
  process.signal(SIGINT);
  CHECK(process.finish(Seconds(60)).code == 128 + SIGKILL);
  CHECK(home.clean());
}

TEST_CASE("signals end a run whose reader reads nothing") {
  const RunHome home;
  RunProcess process{home.args({"--", "yes"}), false};
  REQUIRE(process.wait_for("y\n", Seconds(60)));
  // Nothing is read any more: one signal asks, one kills, one gives the output up.
  for (int i = 0; i < 3; ++i) {
    nap(Seconds(0.2));
    process.signal(SIGTERM);
  }
  CHECK(home.clean());
}

TEST_CASE("a command inherits no ignored or blocked signal from talond run") {
  const RunHome home;
  const auto result = home.run({"--", "grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"});
  CHECK(result.out == "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}
