// LC-07 and the leak bar: after N rounds of create, run and delete the daemon and the machine hold
// what they held before. TALON_TEST_ROUNDS=1000 is the full length.
#include <catch2/catch.hpp>

#include "support/daemon.h"
#include "support/machine.h"

using namespace talon::test;
namespace json = boost::json;

TEST_CASE("many rounds of create, run and delete leave nothing") {
  const int total = std::max(rounds(200), 120);
  constexpr int kWarm = 100;
  Daemon daemon;
  const auto client = daemon.client();
  for (int i = 0; i < 5; ++i) {  // what is made once (threads, caches, groups) is made here
    client.del("/v1/sandboxes/" + make_sandbox(client));
  }
  const auto before = daemon.snapshot();
  const auto namespaces = machine::network_namespaces().size();
  ProcessUse start;
  REQUIRE(eventually(Seconds(10), [&] {
    start = daemon.use();
    return daemon.processes("").empty();
  }));

  ProcessUse warm;
  std::string curve;  // RSS over the rounds: a leak is a line, a cache fills and stays
  for (int i = 1; i <= total; ++i) {
    const auto id = make_sandbox(client);
    const auto ran = run_in(client, id, "echo x > /workspace/f; head -c 100000 /dev/zero");
    REQUIRE(exit_code(ran) == 0);
    REQUIRE(client.del("/v1/sandboxes/" + id).status == 204);
    if (i == kWarm) {
      warm = daemon.use();
    }
    if (i % kWarm == 0) {
      curve += " " + std::to_string(daemon.use().rss_bytes / 1024);
    }
  }
  CHECK(daemon.settled(before, Seconds(30)) == std::vector<std::string>());
  // Pools may hold a few more or fewer at the moment of looking; a leak is one per round.
  CHECK(eventually(Seconds(10), [&] {
    const auto now = daemon.use();
    return now.fds <= start.fds && now.threads <= start.threads;
  }));
  const auto end = daemon.use();
  WARN("rounds " << total << ": fds " << start.fds << " -> " << end.fds << ", threads "
                 << start.threads << " -> " << end.threads << ", RSS KiB at every hundredth round"
                 << curve << ", at the end " << end.rss_bytes / 1024);
  CHECK(end.fds <= start.fds);
  CHECK(end.threads <= start.threads);
  CHECK(machine::network_namespaces().size() <= namespaces);
  CHECK(end.rss_bytes <= warm.rss_bytes + (2u << 20));
}
