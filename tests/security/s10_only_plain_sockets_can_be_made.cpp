// S10: socket families with much code and no use here; raw sockets; netlink beyond routes.

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("S10: unix, inet, inet6 and route sockets only") {
  TALON_NEED_SANDBOXES();
  from_every_side([](Attacker& a) {
    for (const char* family : {"unix", "inet", "inet6", "netlink"}) {
      INFO(family);
      CHECK(a.attempt({"socket", family}) == "OK");
    }
    for (const char* family : {"packet", "alg", "vsock", "bluetooth", "can", "xdp", "rds", "tipc",
                               "kcm", "smc", "nfc", "45"}) {
      INFO(family);
      CHECK(a.attempt({"socket", family}) == "EAFNOSUPPORT");
    }
    CHECK(a.attempt({"socketpair", "unix"}) == "OK");
    for (const char* family :
         {"inet", "netlink", "packet", "alg", "vsock", "rds", "tipc", "kcm", "0x7f0000001e"}) {
      INFO(family);
      CHECK(a.attempt({"socketpair", family}) == "EAFNOSUPPORT");
    }
    for (const char* netlink :
         {"netlink-audit", "netlink-netfilter", "netlink-uevent", "netlink-diag"}) {
      INFO(netlink);
      CHECK(a.attempt({netlink}) == "EAFNOSUPPORT");
    }
    CHECK(a.attempt({"raw-icmp"}) == "EPERM");
    CHECK(a.attempt({"route-change"}) == "EPERM");
    // The kernel looks at 32 bits of the family.
    CHECK(a.attempt({"socket", "0x7f00000028"}) == "EAFNOSUPPORT");
  });
  CHECK(attempt_outside({"netlink-netfilter"}) == "OK");  // the control
  CHECK(attempt_outside({"raw-icmp"}) == "OK");
  CHECK(attempt_outside({"socketpair", "inet"}) == "EOPNOTSUPP");  // made, then found unable
  CHECK(attempt_outside({"packet"}) == "OK");
}
