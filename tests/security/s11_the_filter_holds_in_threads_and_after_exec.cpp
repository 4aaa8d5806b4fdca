// S11: a filter that a thread or an execve could leave behind would be none.

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("S11: threads and later program images stay under the filter") {
  TALON_NEED_SANDBOXES();
  from_every_side([](Attacker& a) {
    for (const Args& command : {Args{"thread-status"}, Args{"exec", "thread-status"},
                                Args{"exec", "exec", "thread-status"}}) {
      const Finding thread = a.look(command);
      CHECK(thread["made"] == "OK");
      CHECK(thread["bpf"] == "EPERM");
      CHECK(thread["Seccomp"] == "2");
      CHECK(thread["Seccomp_filters"] == "1");
      CHECK(thread["NoNewPrivs"] == "1");
    }
    CHECK(a.attempt({"prctl-no-new-privs-off"}) == "EINVAL");
    CHECK(a.attempt({"seccomp"}) == "EFAULT");  // a filter more is everyone's right
    CHECK(a.sh("exec /bin/probe status").out.find("\"Seccomp\":\"2\"") != std::string::npos);
  });
  const Finding control = outside({"thread-status"}).at(0);
  CHECK(control["bpf"] != "EPERM");
}
