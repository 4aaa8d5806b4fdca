// I4: the map covers the sandbox's range and nothing else, and two sandboxes share no id.

#include <sstream>

#include "base/limits.h"
#include "security/attack.h"

using namespace talon;
using namespace talon::testing;

TEST_CASE("I4: 65536 ids from 0, no other, and the map cannot be changed") {
  TALON_NEED_SANDBOXES();
  from_every_side([](Attacker& a) {
    for (const char* map : {"/proc/self/uid_map", "/proc/self/gid_map"}) {
      std::istringstream in{a.run({"/bin/cat", map}).out};
      unsigned long inside = 1, outside_id = 0, count = 0, more = 0;
      in >> inside >> outside_id >> count;
      CHECK(inside == 0);
      CHECK(outside_id ==
            limits::kIdBase + std::uint64_t{a.box->identity().lease} * limits::kIdRange);
      CHECK(count == 65536);
      CHECK_FALSE(in >> more);
      CHECK(a.look({"write-to", map, "0 0 1"})["name"] == "EPERM");
    }
    CHECK(a.run({"/bin/cat", "/proc/self/setgroups"}).out == "allow\n");
    for (const char* id : {"65536", "65537", "1000000000", "4294967294"}) {
      CHECK(a.attempt({"setresuid", id}) == "EINVAL");
    }
    CHECK(a.attempt({"setfsuid-unmapped"}) == "EINVAL");
    CHECK(a.attempt({"setresuid", "65535"}) == (a.root() ? "OK" : "EPERM"));
  });
}

TEST_CASE("I4: two sandboxes have ranges apart") {
  TALON_NEED_SANDBOXES();
  in_every_column([](Field& field) {
    Box one = field.create();
    Box two = field.create();
    const auto first = [](Box& box) {
      return limits::kIdBase + std::uint64_t{box->identity().lease} * limits::kIdRange;
    };
    CHECK(std::max(first(one), first(two)) - std::min(first(one), first(two)) >= limits::kIdRange);
    field.lab.destroy(one);
    field.lab.destroy(two);
  });
}
