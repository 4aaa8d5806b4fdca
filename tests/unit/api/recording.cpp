#include "server/api/recording.h"

#include <catch2/catch.hpp>

#include "server/api/attach.h"

using namespace talon;
using namespace talon::server;

namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

isolate::LogEntry entry(wire::Kind kind, std::uint64_t second, std::string bytes = "") {
  isolate::LogEntry out;
  out.kind = kind;
  (kind == wire::Kind::input ? out.typed : out.bytes) = std::move(bytes);
  out.mono_ns = 5000 * kSecond + second * kSecond / 4;
  out.wall_ns = 1700000000 * kSecond + second * kSecond / 4;
  return out;
}

std::string render(const std::vector<isolate::LogEntry>& entries) {
  std::string out;
  api::Asciicast cast(out, {80, 24}, 1700000000'000);
  for (const auto& one : entries) {
    cast.add(out, one);
  }
  cast.finish(out);
  return out.substr(out.find('\n') + 1);
}

}  // namespace

TEST_CASE("an asciicast begins with what the terminal is") {
  std::string out;
  api::Asciicast cast(out, {132, 43}, 1700000000'999);
  CHECK(out == "{\"version\":2,\"width\":132,\"height\":43,\"timestamp\":1700000000}\n");
}

TEST_CASE("output, input and sizes are events with their time since the start") {
  auto resize = entry(wire::Kind::resize, 3);
  resize.size = {120, 40};
  CHECK(render({entry(wire::Kind::tty, 1, "a\"\x1b[1m\n"), entry(wire::Kind::input, 2, "x\r"),
                resize, entry(wire::Kind::exit, 4), entry(wire::Kind::end, 4)}) ==
        "[0.250000,\"o\",\"a\\\"\\u001b[1m\\n\"]\n"
        "[0.500000,\"i\",\"x\\r\"]\n"
        "[0.750000,\"r\",\"120x40\"]\n");
}

TEST_CASE("a character that a frame cut is joined; bytes that are none are replaced") {
  CHECK(render({entry(wire::Kind::tty, 0, "a\xe2"), entry(wire::Kind::tty, 1, "\x94"),
                entry(wire::Kind::tty, 2, "\x80|\xff|\xc3")}) ==
        "[0.000000,\"o\",\"a\"]\n"
        "[0.500000,\"o\",\"\xe2\x94\x80|\xef\xbf\xbd|\"]\n"
        "[0.500000,\"o\",\"\xef\xbf\xbd\"]\n");
}

TEST_CASE("after a loss a recording begins anew: size, reset, and a whole line") {
  auto lost = entry(wire::Kind::lost, 0);
  lost.mono_ns = 0;
  lost.size = {91, 17};
  CHECK(render({entry(wire::Kind::tty, 0, "x\xe2"), lost,
                entry(wire::Kind::tty, 1, "5;1mred\r\n\x1b[0mnext")}) ==
        "[0.000000,\"o\",\"x\"]\n"
        "[0.000000,\"o\",\"\xef\xbf\xbd\"]\n"
        "[0.000000,\"r\",\"91x17\"]\n"
        "[0.000000,\"o\",\"\\u001bc\"]\n"
        "[0.250000,\"o\",\"\\u001b[0mnext\"]\n");
}

TEST_CASE("a torn beginning reaches to the first line break, or to a character") {
  CHECK(api::torn_prefix("31mx\nabc") == 5);
  CHECK(api::torn_prefix("\x94\x80z") == 2);
  CHECK(api::torn_prefix("abc") == 0);
  CHECK(api::torn_prefix("") == 0);
  CHECK(api::torn_prefix(std::string(5000, 'x') + "\n") == 0);
}
