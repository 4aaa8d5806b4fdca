#include <signal.h>
#include <catch2/catch.hpp>

#include "run_support.h"
#include "support/machine.h"

using namespace talon::test;

TEST_CASE("talond run leaves no directory, cgroup or process, however it ended") {
  const RunHome home;
  CHECK(home.run({"--", "sh", "-c", "echo x > /root/f; echo y > f; sleep 600 & exit 4"}).code == 4);
  CHECK(home.clean());
  CHECK(home.run({"--user", "nobody-of-this-name", "--", "true"}).code == 125);
  CHECK(home.clean());
  CHECK(home.run({"--storage", "memory", "--", "sh", "-c", "echo x > /root/f"}).code == 0);
  CHECK(home.run({"--storage", "readonly", "--", "sh", "-c", "echo x > /root/f"}).code != 0);
  CHECK(home.clean());
}

TEST_CASE("after a kill -9 of talond run its sandbox ends, and the next run sweeps the rest") {
  const RunHome home;
  {
    RunProcess process{home.args({"--", "sh", "-c", "echo ready; exec sleep 600"}), false};
    REQUIRE(process.wait_for("ready", Seconds(60)));
    process.signal(SIGKILL);
    CHECK(process.finish(Seconds(60)).code == 128 + SIGKILL);
  }
  // Its init sees the end of its socket: no process stays, even if nobody ever sweeps.
  CHECK(eventually(Seconds(30),
                   [&] { return machine::processes_below(home.home().cgroup()).empty(); }));
  CHECK_FALSE(home.leftovers().empty());
  CHECK(home.run({"--", "true"}).code == 0);
  CHECK(home.clean());
}

TEST_CASE("a sweep leaves living runs alone") {
  const RunHome home;
  RunProcess first{home.args({"--", "sh", "-c", "echo ready; read x; echo alive"}), false};
  REQUIRE(first.wait_for("ready", Seconds(60)));
  for (int i = 0; i < 3; ++i) {
    CHECK(home.run({"--", "true"}).code == 0);
  }
  REQUIRE(first.write("go\n"));
  const auto result = first.finish(Seconds(60));
  CHECK(result.code == 0);
  CHECK(result.out == "ready\nalive\n");
  CHECK(home.clean());
}

TEST_CASE("many runs at once do not disturb each other") {
  const RunHome home;
  REQUIRE(home.run({"--", "true"}).code == 0);  // the image is there
  std::vector<std::unique_ptr<RunProcess>> all;
  for (int i = 0; i < 12; ++i) {
    all.push_back(std::make_unique<RunProcess>(
        home.args({"--", "sh", "-c",
                   "echo " + std::to_string(i) + " > f; cat f; exit " + std::to_string(i)}),
        false));
  }
  for (int i = 0; i < 12; ++i) {
    const auto result = all[static_cast<std::size_t>(i)]->finish(Seconds(120));
    CHECK(result.code == i);
    CHECK(result.out == std::to_string(i) + "\n");
    CHECK(result.err.empty());
  }
  CHECK(home.clean());
}
