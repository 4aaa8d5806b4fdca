// F1 (CVE-2024-21626, CVE-2016-9962): the daemon's open directories reach neither execs nor init,
// though they were inheritable when the spawner was started.

#include <fcntl.h>
#include <unistd.h>

#include <set>

#include "security/attack.h"

using namespace talon::testing;
namespace fs = std::filesystem;

namespace {

std::set<std::string> numbers(const std::vector<Finding>& fds) {
  std::set<std::string> out;
  for (const Finding& fd : fds) {
    out.insert(fd["fd"]);
  }
  return out;
}

// Inheritable on purpose.
struct Bait {
  int root = open("/", O_RDONLY | O_DIRECTORY);
  int high = fcntl(root, F_DUPFD, 200);
  ~Bait() {
    close(root);
    close(high);
  }
};

}  // namespace

TEST_CASE("F1: an exec sees 0 to 2 and what was named, init nothing of the host") {
  TALON_NEED_SANDBOXES();
  const Bait bait;
  REQUIRE(bait.high >= 200);
  from_every_side([](Attacker& a) {
    CHECK(numbers(a.probe({"fds"})) == std::set<std::string>{"0", "1", "2"});

    talon::isolate::ExecSpec script;
    script.argv = {"/bin/probe", "fds"};
    script.user = a.user;
    script.script = "true\n";
    CHECK(numbers(parse_findings(a.lab.run(a.box, script).out)) ==
          std::set<std::string>{"0", "1", "2", "3"});

    talon::isolate::ExecSpec terminal;
    terminal.argv = script.argv;
    terminal.user = a.user;
    terminal.tty = true;
    std::string shown = a.lab.run(a.box, terminal).out;
    std::erase(shown, '\r');
    const auto on_tty = parse_findings(shown);
    CHECK(numbers(on_tty) == std::set<std::string>{"0", "1", "2"});
    for (const Finding& fd : on_tty) {
      CHECK(fd["target"].starts_with("/dev/pts/"));
    }

    const fs::path held = "/proc/" + std::to_string(a.box->identity().host_pid) + "/fd";
    for (const auto& entry : fs::directory_iterator{held}) {
      CHECK(std::stoi(entry.path().filename()) < 200);
      std::error_code closed_since;  // init lets go of an ended exec's pipes meanwhile
      CHECK(fs::read_symlink(entry.path(), closed_since) != "/proc");
    }
  });
  // The control: a plain child of this process does inherit them.
  CHECK(numbers(outside({"fds"})).contains(std::to_string(bait.high)));
}
