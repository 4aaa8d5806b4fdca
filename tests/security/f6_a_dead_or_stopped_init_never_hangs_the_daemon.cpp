// F6: init stopped, deaf or dead. Requests never block, waits end at their deadline, delete works.

#include <signal.h>

#include <chrono>

#include "security/attack.h"

using namespace talon;
using namespace talon::testing;
using namespace std::chrono_literals;

namespace {

isolate::ExecSpec true_exec(int i) {
  isolate::ExecSpec exec;
  exec.id = "px" + std::to_string(i);
  exec.argv = {"/bin/true"};
  return exec;
}

}  // namespace

TEST_CASE("F6: a stopped init neither blocks requests nor outlives a delete") {
  TALON_NEED_SANDBOXES();
  in_every_column([](Field& field) {
    Box box = field.create();
    REQUIRE(kill(box->identity().host_pid, SIGSTOP) == 0);
    const auto start = std::chrono::steady_clock::now();
    const auto waited = box->wait_event(200ms);
    REQUIRE_FALSE(waited.has_value());
    CHECK(waited.error().code == Code::timeout);
    Result<std::uint64_t> sent = 0;
    int accepted = 0;
    for (; accepted < 100'000 && sent; ++accepted) {
      sent = box->exec(true_exec(accepted));
    }
    REQUIRE_FALSE(sent.has_value());
    CHECK(sent.error().code == Code::unavailable);
    CHECK(std::chrono::steady_clock::now() - start < 20s);
    field.lab.destroy(box);
  });
}

TEST_CASE("F6: a killed init is reported once and its sandbox can be removed") {
  TALON_NEED_SANDBOXES();
  in_every_column([](Field& field) {
    Box box = field.create();
    isolate::ExecSpec sleeper = true_exec(1);
    sleeper.argv = {"/bin/sleep", "1000"};
    REQUIRE(box->exec(sleeper).has_value());
    REQUIRE(std::holds_alternative<isolate::event::Started>(box->wait_event(10s).value()));
    REQUIRE(kill(box->identity().host_pid, SIGKILL) == 0);
    CHECK(std::holds_alternative<isolate::event::Closed>(box->wait_event(10s).value()));
    CHECK(box->exec(true_exec(2)).error().code == Code::unavailable);
    field.lab.destroy(box);
    Box next = field.create();  // and the launcher serves on
    CHECK(field.run(next, {"/bin/echo", "next"}).out == "next\n");
    field.lab.destroy(next);
  });
}
