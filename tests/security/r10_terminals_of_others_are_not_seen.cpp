// R10: each sandbox has a devpts of its own: the host's terminals and other sandboxes' are not in
// it, and a terminal's number is no way to another's.

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "security/attack.h"

using namespace talon;
using namespace talon::testing;
using namespace std::chrono_literals;

TEST_CASE("R10: /dev/pts shows own terminals only") {
  TALON_NEED_SANDBOXES();
  const int host = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  REQUIRE(host >= 0);
  in_every_column([](Field& field) {
    Lab& lab = field.lab;
    Box one = field.create();
    Box two = field.create();
    isolate::ExecSpec terminal;
    terminal.id = "pxterminal";
    terminal.argv = {"/bin/sleep", "1000"};
    terminal.tty = true;
    REQUIRE(one->exec(terminal).has_value());
    REQUIRE(std::holds_alternative<isolate::event::Started>(one->wait_event(10s).value()));
    CHECK(lab.run(one, {"/bin/ls", "/dev/pts"}).out == "0\nptmx\n");
    CHECK(lab.run(two, {"/bin/ls", "/dev/pts"}).out == "ptmx\n");
    // Not even its own root's terminal is a user's to read or write.
    const auto at = parse_findings(lab.run(one, {"/bin/probe", "write", "/dev/pts/0"}, "user").out);
    CHECK(at.at(0)["name"] == "EACCES");
    lab.destroy(one);
    lab.destroy(two);
  });
  close(host);
}
