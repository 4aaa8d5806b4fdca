// R10: the nodes of /dev, exactly; none can be added, none replaced.

#include <set>

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("R10: /dev holds the safe nodes, takes no other, and no node can be made anywhere") {
  TALON_NEED_SANDBOXES();
  const std::map<std::string, std::string> nodes = {{"null", "1:3"},    {"zero", "1:5"},
                                                    {"full", "1:7"},    {"random", "1:8"},
                                                    {"urandom", "1:9"}, {"tty", "5:0"}};
  from_every_side([&](Attacker& a) {
    std::map<std::string, std::string> devices;
    std::set<std::string> others;
    // Before Linux 6.3 a tmpfs cannot be idmapped, and the shared nodes are nobody's.
    const std::string owner = a.lab.launcher().host().idmapped_tmpfs ? "0" : "65534";
    for (const Finding& entry : a.probe({"list", "/dev"})) {
      if (entry["major"].empty()) {
        others.insert(entry["entry"]);
      } else {
        devices[entry["entry"]] = entry["major"] + ":" + entry["minor"];
        CHECK(entry["uid"] == owner);
      }
    }
    CHECK(devices == nodes);
    CHECK(others == std::set<std::string>{"ptmx", "pts", "shm", "fd", "stdin", "stdout", "stderr"});
    CHECK(a.attempt({"create-in-dev"}) == "EROFS");
    CHECK(a.attempt({"mknod"}) == "EPERM");
    CHECK(a.attempt({"mknod-null"}) == "EPERM");
    CHECK(a.attempt({"console"}) == "ENOENT");
    CHECK(a.look({"write-to", "/dev/null", "x"})["result"] == "1");
    CHECK(a.look({"write-to", "/dev/full", "x"})["name"] == "ENOSPC");
    CHECK(a.attempt({"pty"}) == "OK");
  });
  CHECK(attempt_outside({"mknod"}) == "OK");  // the control
}
