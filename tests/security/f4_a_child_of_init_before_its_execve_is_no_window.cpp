// F4: between clone and execve an exec's child runs in init's own memory and with init's
// descriptors, at the end under the exec's user. A workload of that user stops it there (as in
// F10) and tries ptrace, process_vm, /proc and pidfd_getfd.

#include <thread>

#include "security/attack.h"

using namespace talon;
using namespace talon::testing;
using namespace std::chrono_literals;

namespace {

bool wait_for_exit(Box& box, const std::string& px) {
  for (;;) {
    auto event = box->wait_event(60s);
    if (!event || std::holds_alternative<isolate::event::Closed>(*event)) {
      return false;
    }
    const auto* exited = std::get_if<isolate::event::Exited>(&*event);
    if (exited != nullptr && exited->px == px) {
      return true;
    }
  }
}

}  // namespace

TEST_CASE("F4: a child of init that is stopped before its execve cannot be entered") {
  TALON_NEED_SANDBOXES();
  from_every_side([](Attacker& a) {
    isolate::ExecSpec window;
    window.id = a.root() ? "pxwindowroot" : "pxwindowuser";
    window.argv = {"/bin/sh", "-c", "exec /bin/probe window 2 > /tmp/window-$PPID"};
    window.user = a.user;
    REQUIRE(a.box->exec(window).has_value());
    // A search this long holds the child before its execve for many milliseconds.
    std::string long_path;
    for (int i = 0; i < 30'000; ++i) {
      long_path += "/x:";
    }
    long_path += "/bin";
    for (int i = 0; i < 60; ++i) {
      isolate::ExecSpec next;
      next.id = window.id + std::to_string(i);
      next.argv = {"true"};
      next.env = {{"PATH", long_path}};
      next.user = a.user;
      (void)a.box->exec(next);  // a full socket is no matter here
      std::this_thread::sleep_for(25ms);
    }
    REQUIRE(wait_for_exit(a.box, window.id));
    const auto found = parse_findings(a.run({"/bin/cat", "/tmp/window-1"}).out);
    REQUIRE(found.size() == 1);
    CHECK(found[0]["opened"] == "0");
    CHECK(Attacker::number(found[0], "met") > 0);  // the window was there
    a.lab.sh(a.box, "rm -f /tmp/window-1");
  });
}
