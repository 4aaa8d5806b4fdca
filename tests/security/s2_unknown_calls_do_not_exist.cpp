// S2: a call the policy does not know answers ENOSYS, so that programs fall back, and so that a
// kernel newer than the policy offers nothing new.

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("S2: unknown, future and unlisted calls are ENOSYS") {
  TALON_NEED_SANDBOXES();
  const std::string statmount = "457";  // known to 6.8 and newer, in no list of the policy
  const std::string listmount = "458";
  from_every_side([&](Attacker& a) {
    CHECK(a.attempt({"unknown-syscall"}) == "ENOSYS");
    CHECK(a.attempt({"future-syscall"}) == "ENOSYS");
    CHECK(a.attempt({"syscall", "511"}) == "ENOSYS");
    CHECK(a.attempt({"syscall", "1000"}) == "ENOSYS");
    CHECK(a.attempt({"syscall", statmount, "0", "0", "0", "0"}) == "ENOSYS");
    CHECK(a.attempt({"syscall", listmount, "0", "0", "0", "0"}) == "ENOSYS");
  });
  if (attempt_outside({"syscall", statmount, "0", "0", "0", "0"}) == "ENOSYS") {
    return;  // this kernel has no such call: no control
  }
  from_every_side(
      [&](Attacker& a) {
        CHECK(a.attempt({"syscall", statmount, "0", "0", "0", "0"}) == "EFAULT");
      },
      {.spec = without_filter});
}
