// The daemon is disposable: a client that was cut off goes on with its cursor.

#include <catch2/catch.hpp>

#include "tsb_support.h"

using namespace talon::test;

namespace {

std::string numbers(int from, int to) {
  std::string text;
  for (int i = from; i <= to; ++i) {
    text += std::to_string(i) + "\n";
  }
  return text;
}

// Kills talond hard and starts it again.
void restart(Daemon& daemon) {
  daemon.kill_hard();
  daemon.start();
}

constexpr const char* kCount =
    "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo $i; [ $((i % 20)) = 0 ] && sleep 0.02; done; "
    "exit 9";
constexpr std::string_view kLost = "tsb: the connection is lost; trying to reach talond again";

}  // namespace

TEST_CASE("tsb exec loses no byte and no exit code to a killed talond", "[e2e][tsb]") {
  Daemon daemon;
  const Tsb tsb(daemon);
  const std::string id = make_sandbox(daemon.client());
  const auto exec = tsb.start({"exec", id, "--", "sh", "-c", kCount});
  for (const char* seen : {"\n200\n", "\n1000\n", "\n2000\n"}) {
    REQUIRE(exec->wait_for(seen, Seconds(60)));
    restart(daemon);
  }
  const auto result = exec->finish(Seconds(60));
  CHECK(result.code == 9);
  CHECK(result.out == numbers(1, 3000));
  // At most a line for each time; none when talond was back at once.
  const auto said = lines_of(result.err);
  CHECK(said.size() <= 3);
  for (const std::string& line : said) {
    CHECK(line == kLost);
  }
}

TEST_CASE("tsb exec -i gives every byte of its input once", "[e2e][tsb]") {
  Daemon daemon;
  const Tsb tsb(daemon);
  const std::string id = make_sandbox(daemon.client());
  const auto exec = tsb.start({"exec", "-i", id, "--", "cat"});
  for (int i = 0; i < 30; ++i) {
    REQUIRE(exec->write(numbers(i * 100 + 1, i * 100 + 100)));
    if (i % 10 == 5) {
      REQUIRE(exec->wait_for("\n" + std::to_string(i * 100) + "\n", Seconds(60)));
      daemon.kill_hard();
      REQUIRE(exec->write(""));
    } else if (i % 10 == 6) {
      daemon.start();
    }
  }
  exec->close_stdin();
  const auto result = exec->finish(Seconds(60));
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK(result.out == numbers(1, 3000));
}

TEST_CASE("tsb logs -f goes on where it was", "[e2e][tsb]") {
  Daemon daemon;
  const Tsb tsb(daemon);
  const std::string id = make_sandbox(daemon.client());
  const std::string px = spawn_in(daemon.client(), id, {{"command", kCount}});
  const auto logs = tsb.start({"logs", "-f", id, px});
  REQUIRE(logs->wait_for("\n500\n", Seconds(60)));
  restart(daemon);
  // A talond that is asked to stop ends its streams properly, and still it is no end.
  REQUIRE(logs->wait_for("\n1500\n", Seconds(60)));
  CHECK(daemon.stop() == 0);
  daemon.start();
  const auto result = logs->finish(Seconds(60));
  CHECK(result.code == 0);
  CHECK(result.out == numbers(1, 3000));
}

TEST_CASE("tsb exec meets the end of a command that ended without talond", "[e2e][tsb]") {
  Daemon daemon;
  const Tsb tsb(daemon);
  const std::string id = make_sandbox(daemon.client());
  const auto exec =
      tsb.start({"exec", id, "--", "sh", "-c", "echo started; sleep 0.3; echo done; exit 4"});
  REQUIRE(exec->wait_for("started\n", Seconds(20)));
  daemon.kill_hard();
  REQUIRE(eventually(Seconds(20), [&] { return daemon.processes(id).size() <= 1; }));
  daemon.start();
  const auto result = exec->finish(Seconds(60));
  CHECK(result.code == 4);
  CHECK(result.out == "started\ndone\n");
}
