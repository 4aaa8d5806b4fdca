// S3: the x32 numbers and the 32-bit entry would pass a filter that looks at numbers only.

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("S3: x32 calls do not exist and a 32-bit call kills") {
  TALON_NEED_SANDBOXES();
#ifdef __x86_64__
  from_every_side([](Attacker& a) {
    CHECK(a.attempt({"x32"}) == "ENOSYS");
    CHECK(a.attempt({"int80"}) == "signal 31");
  });
  // The control: without the filter, where the kernel has the entry, it works.
  const std::string host = attempt_outside({"int80"});
  from_every_side([&](Attacker& a) { CHECK(a.attempt({"int80"}) == host); },
                  {.spec = without_filter});
  CHECK(host != "signal 31");
#else
  WARN("SKIP: x32 and int 0x80 are of x86_64");
#endif
}

TEST_CASE("S3: compat32 opens the 32-bit table under a filter of its own, x32 never") {
  TALON_NEED_SANDBOXES();
#ifdef __x86_64__
  from_every_side(
      [](Attacker& a) {
        CHECK(a.attempt({"x32"}) == "ENOSYS");
        CHECK(a.attempt({"int80"}) != "signal 31");
        CHECK(a.attempt({"bpf"}) == "EPERM");
      },
      {.spec = [](auto& spec) { spec.compat32 = true; }});
#else
  WARN("SKIP: 32-bit x86 calls are of x86_64");
#endif
}
