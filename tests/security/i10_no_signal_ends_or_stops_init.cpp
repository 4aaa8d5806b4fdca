// I10: every signal there is, from root inside with CAP_KILL, at PID 1. Those without a handler the
// kernel drops; those that init has blocked for its own use are queued and must do no harm.

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("I10: no signal ends or stops init, a user may not even send one") {
  TALON_NEED_SANDBOXES();
  from_every_side([](Attacker& a) {
    for (int number = 1; number <= 64; ++number) {
      INFO(number);
      // Root may send; what comes of it is below.
      CHECK(a.attempt({"signal-init", std::to_string(number)}) == (a.root() ? "OK" : "EPERM"));
    }
    a.sh("i=0; while [ $i -lt 300 ]; do kill -CHLD 1; kill -9 1; i=$((i+1)); done");
    const std::string stat =
        read_text("/proc/" + std::to_string(a.box->identity().host_pid) + "/status");
    CHECK(status_field(stat, "State").find_first_of("SR") == 0);
    CHECK(a.run({"/bin/echo", "serves"}).out == "serves\n");
  });
}
