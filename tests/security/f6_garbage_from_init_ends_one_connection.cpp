// F6: init may be in the workload's hands. Whatever it sends, the daemon reports it once, closes
// that connection and goes on; nothing hangs.

#include <sys/socket.h>

#include <random>

#include "isolate/sandbox_impl.h"
#include "isolate/wire/frames.h"
#include "security/attack.h"

using namespace talon;
using namespace talon::testing;
using namespace std::chrono_literals;

namespace {

struct Pair {
  Pair() {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    init = UniqueFd{ends[0]};
    isolate::SandboxParts parts;
    parts.identity.id = "sbhostile";
    parts.conn = UniqueFd{ends[1]};
    sandbox = isolate::make_sandbox(std::move(parts));
  }
  void say(const std::string& bytes) const {
    REQUIRE(send(init.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(bytes.size()));
  }
  UniqueFd init;
  std::unique_ptr<isolate::Sandbox> sandbox;
};

std::string header(std::uint16_t version, std::uint16_t type, std::uint32_t length) {
  const wire::Header head{version, type, length, 1};
  return {reinterpret_cast<const char*>(&head), sizeof head};
}

// The first event is Closed, and after it there is nothing more.
void must_close(Pair& pair) {
  auto event = pair.sandbox->wait_event(5s);
  REQUIRE(event.has_value());
  REQUIRE(std::holds_alternative<isolate::event::Closed>(*event));
  CHECK(std::get<isolate::event::Closed>(*event).reason != "");
  CHECK(pair.sandbox->init_fd() == -1);
  CHECK_FALSE(pair.sandbox->receive().value().has_value());
  isolate::ExecSpec exec;
  exec.id = "px1";
  exec.argv = {"/bin/true"};
  CHECK(pair.sandbox->exec(exec).error().code == Code::unavailable);
}

}  // namespace

TEST_CASE("F6: frames that cannot be end the connection, each at once") {
  no_column("the test itself is init");
  const std::string hostile[] = {
      "x",
      std::string(15, '\0'),
      header(wire::kVersion + 1, 11, 0),
      header(wire::kVersion, 11, 0),           // started, without its payload
      header(wire::kVersion, 11, 64),          // shorter than it says
      header(wire::kVersion, 23, 0) + "tail",  // longer than it says
      header(wire::kVersion, 0xffff, 0),       // no such frame
      header(wire::kVersion, 10, sizeof(wire::Exec)) + std::string(sizeof(wire::Exec), 'a'),
      header(wire::kVersion, 13, sizeof(wire::Exited)) + std::string(sizeof(wire::Exited), '\xff'),
      header(wire::kVersion, 14, 24) + "../../../../etc/passwd__",  // an id that is a path
      header(wire::kVersion, 14, 24) + "../../../../etc" + std::string(9, '\0'),
      header(wire::kVersion, 22, 4) + std::string(sizeof(wire::Done), '\0'),  // lies of its length
      header(wire::kVersion, 1, 0),  // `ready`, a second time
      std::string(wire::kMaxMessage, 'A'),
  };
  for (const std::string& frame : hostile) {
    Pair pair;
    pair.say(frame);
    must_close(pair);
  }
}

TEST_CASE("F6: random frames never crash the daemon or become an event that cannot be") {
  no_column("the test itself is init");
  std::mt19937 random{20240131};
  for (int round = 0; round < 3000; ++round) {
    const auto size = static_cast<std::uint32_t>(random() % 160);
    std::string frame = header(wire::kVersion, static_cast<std::uint16_t>(random() % 26), size);
    for (std::uint32_t i = 0; i < size; ++i) {
      frame += static_cast<char>(random() % 4 == 0 ? random() : 'a' + random() % 26);
    }
    const auto event = isolate::decode_event(std::as_bytes(std::span{frame}));
    if (event && std::holds_alternative<isolate::event::Ended>(*event)) {
      CHECK(std::get<isolate::event::Ended>(*event).px.size() < wire::kIdSize);
    }
  }
}

TEST_CASE("F6: descriptors that init sends along are not kept") {
  no_column("the test itself is init");
  Pair pair;
  const std::size_t before = count_own_fds();
  for (int i = 0; i < 50; ++i) {
    const std::string frame = header(wire::kVersion, 23, 0);
    const int fds[] = {0, 1, 2};
    REQUIRE(send_message(pair.init.get(), std::as_bytes(std::span{frame}), fds).has_value());
    auto event = pair.sandbox->receive();
    REQUIRE(event.has_value());
  }
  CHECK(count_own_fds() == before);
}
