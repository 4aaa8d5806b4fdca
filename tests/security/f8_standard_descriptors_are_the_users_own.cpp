// F8: 0 to 2 belong to the exec's user, so that it may reopen them; where one is the null device it
// is the sandbox's own view of it, through which the host's cannot be changed.

#include <sys/stat.h>

#include "security/attack.h"

using namespace talon::testing;

namespace {

struct stat facts_of(const char* path) {
  struct stat facts{};
  CHECK(stat(path, &facts) == 0);
  return facts;
}

}  // namespace

TEST_CASE("F8: standard descriptors are the user's, and /dev/null cannot be changed by them") {
  TALON_NEED_SANDBOXES();
  const struct stat before = facts_of("/dev/null");
  from_every_side([](Attacker& a) {
    const std::string id = a.root() ? "0" : "1000";
    const std::string null_dev = a.look({"stat", "/dev/null"})["dev"];
    for (const Finding& fd : a.probe({"fds"})) {
      INFO(fd["fd"] << " " << fd["target"]);
      if (fd["type"] == "device") {
        CHECK(fd["target"] == "/dev/null");
        for (const char* change : {"fd-mode", "fd-owner", "fd-times"}) {
          CHECK(a.attempt({change, fd["fd"]}) == "EROFS");
        }
      } else {
        CHECK(fd["type"] == "pipe");
        CHECK(fd["uid"] == id);
      }
    }
    // Opened by the user itself it is no other: one read-only mount.
    CHECK(a.sh("probe try fd-mode 0 < /dev/null").out.find("EROFS") != std::string::npos);
    CHECK(a.look({"stat", "/dev"})["readonly"] == "true");
    CHECK(a.look({"stat", "/dev/null"})["dev"] == null_dev);

    talon::isolate::ExecSpec terminal;
    terminal.argv = {"/bin/probe", "fds"};
    terminal.user = a.user;
    terminal.tty = true;
    std::string shown = a.lab.run(a.box, terminal).out;
    std::erase(shown, '\r');
    for (const Finding& fd : parse_findings(shown)) {
      CHECK(fd["target"].starts_with("/dev/pts/"));
      CHECK(fd["uid"] == id);
      CHECK(fd["mode"] == std::to_string(0620));
    }
  });
  const struct stat after = facts_of("/dev/null");
  CHECK(after.st_mode == before.st_mode);
  CHECK(after.st_uid == before.st_uid);
  CHECK(after.st_mtim.tv_sec == before.st_mtim.tv_sec);
}
