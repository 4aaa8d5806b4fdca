#include <catch2/catch.hpp>

#include "support/daemon.h"

using namespace talon::test;
namespace json = boost::json;

// LC-05: a sleeper that nobody waits for and groups that the workload tried to nest.
TEST_CASE("no cgroup is left when a detached sleeper was running") {
  Daemon daemon;
  const auto client = daemon.client();
  client.del("/v1/sandboxes/" + make_sandbox(client));
  const auto before = daemon.snapshot();
  const int times = std::min(rounds(20), 100);
  for (int i = 0; i < times; ++i) {
    const auto id = make_sandbox(client);
    spawn_in(client, id, {{"command", "sleep 1000"}});
    spawn_in(client, id,
             {{"command", "mkdir -p /sys/fs/cgroup/a/b/c 2>/dev/null; setsid sleep 1000 & "}});
    const auto reply = client.del("/v1/sandboxes/" + id);
    INFO(reply.body);
    REQUIRE(reply.status == 204);
    REQUIRE(daemon.group_of(id).empty());
  }
  CHECK(daemon.settled(before, Seconds(5)) == std::vector<std::string>());
  CHECK(daemon.log().find("\"level\":\"error\"") == std::string::npos);
}

// LC-09
TEST_CASE("zombies do not pile up and execs stay quick") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  // The middle parent starts children and ends without waiting for any: they become init's.
  const auto made = run_in(client, id,
                           "for i in 1 2 3 4 5 6 7 8 9 10; do sh -c 'for k in 1 2 3 4 5; do "
                           "true & done; exec true'; done; echo done");
  CHECK(made.text("stdout") == "done\n");
  const auto defunct =
      "n=0; for s in /proc/[0-9]*/stat; do read line < $s 2>/dev/null || continue; "
      "case \"$line\" in *') Z '*) n=$((n+1));; esac; done; echo $n";
  CHECK(
      eventually(Seconds(5), [&] { return run_in(client, id, defunct).text("stdout") == "0\n"; }));

  const auto many = run_in(client, id, "for i in $(seq 100); do echo $i & done | wc -l");
  CHECK(many.text("stdout") == "100\n");
  double slowest = 0;
  for (int i = 0; i < 100; ++i) {
    const auto reply = run_in(client, id, "echo x");
    CHECK(reply.text("stdout") == "x\n");
    slowest = std::max(slowest, reply.seconds);
  }
  CHECK(slowest < 1);
  CHECK(run_in(client, id, defunct).text("stdout") == "0\n");
}
