// F10: kill(-1, SIGSTOP) in a loop stops (SIGKILL: ends) every process of the sandbox that it may,
// the child of the next exec among them, before or after its execve. Init answers within its
// deadline.

#include <chrono>

#include "security/attack.h"

using namespace talon;
using namespace talon::testing;
using namespace std::chrono_literals;

namespace {

constexpr auto kStartDeadline = 5s;  // init's own, from clone to execve

// The answer to the exec, Started or ExecFailed, and how long it took.
std::chrono::milliseconds time_to_answer(Box& box, const isolate::ExecSpec& exec) {
  const auto start = std::chrono::steady_clock::now();
  if (!box->exec(exec)) {
    return 1h;
  }
  for (;;) {
    auto event = box->wait_event(60s);
    if (!event || std::holds_alternative<isolate::event::Closed>(*event)) {
      return 1h;
    }
    const auto* started = std::get_if<isolate::event::Started>(&*event);
    const auto* failed = std::get_if<isolate::event::ExecFailed>(&*event);
    if ((started != nullptr && started->px == exec.id) ||
        (failed != nullptr && failed->px == exec.id)) {
      return std::chrono::duration_cast<std::chrono::milliseconds>(
          std::chrono::steady_clock::now() - start);
    }
  }
}

std::vector<isolate::ExecSpec> storms(const std::string& user) {
  isolate::ExecSpec stops;
  stops.id = "pxstops";
  stops.argv = {"/bin/probe", "kill-stop-loop", "60"};
  stops.user = user;
  isolate::ExecSpec kills = stops;
  kills.id = "pxkills";
  kills.argv = {"/bin/sh", "-c", "while :; do kill -KILL -1; done"};
  return {stops, kills};
}

}  // namespace

TEST_CASE("F10: under a storm of SIGSTOP or SIGKILL every exec is answered in time") {
  TALON_NEED_SANDBOXES();
  in_every_column([](Field& field) {
    for (const isolate::ExecSpec& storm : storms(field.column.user)) {
      Box box = field.create();
      REQUIRE(time_to_answer(box, storm) < kStartDeadline);
      for (int i = 0; i < 3; ++i) {
        isolate::ExecSpec next;
        next.id = storm.id + std::to_string(i);
        next.argv = {"/bin/true"};
        next.user = field.column.user;
        INFO(storm.id);
        // The deadline, and as much again for a loaded machine.
        CHECK(time_to_answer(box, next) < 2 * kStartDeadline);
      }
      const auto start = std::chrono::steady_clock::now();
      field.lab.destroy(box);
      CHECK(std::chrono::steady_clock::now() - start < 10s);
    }
  });
}
