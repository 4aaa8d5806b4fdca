// R15: an overlay whose upper cannot be written becomes read-only without an error; a sandbox that
// was promised a writable root must have one, and its writes must not reach the image.

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("R15: the root takes writes of root inside, and the image stays as it was") {
  TALON_NEED_SANDBOXES();
  from_every_side([](Attacker& a) {
    const std::string before = read_text(a.lab.image() / "etc/marker");
    const std::string seen = a.run({"/bin/cat", "/etc/marker"}).out;
    CHECK(a.look({"stat", "/"})["readonly"] == "false");
    CHECK(a.sh("echo new > /etc/new-$$ && mkdir /opt-$$ && rm -r /opt-$$ /etc/new-$$").code ==
          (a.root() ? 0 : 1));
    CHECK(a.sh("echo changed >> /etc/marker").code == (a.root() ? 0 : 1));
    CHECK(a.run({"/bin/cat", "/etc/marker"}).out == seen + (a.root() ? "changed\n" : ""));
    CHECK(a.sh("echo mine > /tmp/mine-$$ && cat /tmp/mine-$$").out == "mine\n");
    CHECK(read_text(a.lab.image() / "etc/marker") == before);
    CHECK_FALSE(std::filesystem::exists(a.lab.image() / "tmp/mine"));
  });
}
