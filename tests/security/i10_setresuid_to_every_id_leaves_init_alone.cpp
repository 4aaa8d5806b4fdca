// I10: a workload's root takes each mapped id in turn and tries to limit, renice, trace, stop and
// end init from there. Init's own id is in no map, so no id matches.

#include <sys/resource.h>

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("I10: setresuid to every mapped id leaves init alone") {
  TALON_NEED_SANDBOXES();
  from_every_side(
      [](Attacker& a) {
        const pid_t init = a.box->identity().host_pid;
        rlimit before{};
        REQUIRE(prlimit(init, RLIMIT_NOFILE, nullptr, &before) == 0);
        const Finding got = a.look({"init-from-every-id"});
        CHECK(got["became"] == "65536");
        CHECK(got["limited"] == "0");
        CHECK(got["limit_error"] == "EPERM");
        CHECK(got["niced"] == "0");
        CHECK(got["io"] == "0");
        CHECK(got["scheduled"] == "0");
        CHECK(got["traced"] == "0");
        CHECK(got["trace_error"] == "EPERM");
        rlimit after{};
        REQUIRE(prlimit(init, RLIMIT_NOFILE, nullptr, &after) == 0);
        CHECK(after.rlim_cur == before.rlim_cur);
        CHECK(after.rlim_max == before.rlim_max);
        CHECK(getpriority(PRIO_PROCESS, static_cast<id_t>(init)) == 0);
        const std::string stat = read_text("/proc/" + std::to_string(init) + "/status");
        CHECK(status_field(stat, "TracerPid") == "0");
        CHECK(status_field(stat, "State").find_first_of("SR") == 0);  // neither stopped nor traced
      },
      {.left_out = {
           {"user", "taking an id needs SETUID; what a user may do to init: i10_no_signal"}}});
}
