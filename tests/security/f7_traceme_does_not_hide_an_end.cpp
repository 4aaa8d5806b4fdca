// F7: a workload that makes init its tracer and stops. A wait that does not know of it never
// returns; timeout, end and delete must work all the same.

#include <chrono>

#include "security/attack.h"

using namespace talon;
using namespace talon::testing;
using namespace std::chrono_literals;

namespace {

isolate::ExecSpec stopper(const Attacker& a, const std::string& id) {
  isolate::ExecSpec exec;
  exec.id = id;
  exec.argv = {"/bin/probe", "traceme-stop"};
  exec.user = a.user;
  return exec;
}

bool started(Box& box, const std::string& px) {
  for (;;) {
    auto event = box->wait_event(20s);
    if (!event || std::holds_alternative<isolate::event::Closed>(*event)) {
      return false;
    }
    const auto* one = std::get_if<isolate::event::Started>(&*event);
    if (one != nullptr && one->px == px) {
      return true;
    }
  }
}

// The Exited event of an exec, nullopt when it does not come.
std::optional<wire::ExitInfo> exit_of(Box& box, const std::string& px) {
  for (;;) {
    auto event = box->wait_event(20s);
    if (!event || std::holds_alternative<isolate::event::Closed>(*event)) {
      return std::nullopt;
    }
    const auto* exited = std::get_if<isolate::event::Exited>(&*event);
    if (exited != nullptr && exited->px == px) {
      return exited->info;
    }
  }
}

}  // namespace

TEST_CASE("F7: an exec that is stopped as init's tracee still times out and can be ended") {
  TALON_NEED_SANDBOXES();
  from_every_side([](Attacker& a) {
    const std::string suffix = a.root() ? "root" : "user";
    isolate::ExecSpec timed = stopper(a, "pxtimed" + suffix);
    timed.timeout = 300ms;
    REQUIRE(a.box->exec(timed).has_value());
    const auto by_timeout = exit_of(a.box, timed.id);
    REQUIRE(by_timeout.has_value());
    CHECK((by_timeout->flags & wire::kTimedOut) != 0);
    CHECK(by_timeout->signal == 9);

    const isolate::ExecSpec ended = stopper(a, "pxended" + suffix);
    REQUIRE(a.box->exec(ended).has_value());
    REQUIRE(started(a.box, ended.id));
    REQUIRE(a.box->end_exec(ended.id, 100ms).has_value());
    const auto by_end = exit_of(a.box, ended.id);
    REQUIRE(by_end.has_value());
    CHECK(by_end->code == -1);

    // One is left for the delete.
    REQUIRE(a.box->exec(stopper(a, "pxleft" + suffix)).has_value());
  });
}
