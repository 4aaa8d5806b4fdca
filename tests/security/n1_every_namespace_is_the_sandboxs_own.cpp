// N1: the seven namespaces differ from the host's and from any other sandbox's; init and every exec
// of one sandbox are in the same.

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("N1: seven namespaces, none the host's, none shared by two sandboxes") {
  TALON_NEED_SANDBOXES();
  in_every_column([](Field& field) {
    Box one = field.create();
    Box two = field.create();
    Attacker a{field.lab, one, field.column.user};
    Attacker b{field.lab, two, field.column.user};
    const Finding here = a.look({"ns"});
    const Finding there = b.look({"ns"});
    const Finding host = outside({"ns"}).at(0);
    for (const std::string kind : {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"}) {
      INFO(kind << " " << here[kind] << " " << there[kind]);
      CHECK(here[kind].starts_with(kind + ":["));
      CHECK(here[kind] != there[kind]);
      const std::string link = "/ns/" + kind;
      CHECK(here[kind] != std::filesystem::read_symlink("/proc/self" + link));
      const std::string init = "/proc/" + std::to_string(one->identity().host_pid);
      CHECK(here[kind] == std::filesystem::read_symlink(init + link));
    }
    CHECK(a.look({"ns"})["pid"] == here["pid"]);
    CHECK(host["user"] != here["user"]);
    field.lab.destroy(one);
    field.lab.destroy(two);
  });
}
