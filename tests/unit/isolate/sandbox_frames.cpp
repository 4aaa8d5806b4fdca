// Frames from init are hostile: each wrong byte is found, each right one read.

#include <catch2/catch.hpp>

#include <cstring>
#include <string>

#include "isolate/sandbox_impl.h"

using namespace talon;
using namespace talon::isolate;

namespace {

template <class T>
std::string frame(wire::Type type, const T& payload, std::uint64_t request = 7) {
  const wire::Header head{.version = wire::kVersion,
                          .type = static_cast<std::uint16_t>(type),
                          .length = sizeof(T),
                          .request = request};
  std::string out{reinterpret_cast<const char*>(&head), sizeof(head)};
  out.append(reinterpret_cast<const char*>(&payload), sizeof(T));
  return out;
}

Result<Event> decode(const std::string& bytes) {
  return decode_event(std::as_bytes(std::span{bytes}));
}

wire::Exited exited() {
  wire::Exited out{};
  std::memcpy(out.px, "px1", 4);
  out.info.code = 3;
  return out;
}

}  // namespace

TEST_CASE("good frames become events") {
  wire::Started started{};
  std::memcpy(started.px, "pxabc", 6);
  started.pid = 12;
  started.group = 34;
  const auto event = decode(frame(wire::Type::started, started)).value();
  CHECK(std::get<event::Started>(event).px == "pxabc");
  CHECK(std::get<event::Started>(event).pid == 12);
  CHECK(std::get<event::Started>(event).group == 34);
  CHECK(std::get<event::Started>(event).request == 7);

  CHECK(std::get<event::Exited>(decode(frame(wire::Type::exited, exited())).value()).info.code ==
        3);
  wire::Exited by_signal = exited();
  by_signal.info.code = -1;
  by_signal.info.signal = 9;
  CHECK(std::get<event::Exited>(decode(frame(wire::Type::exited, by_signal)).value()).info.signal ==
        9);
  CHECK(std::get<event::Done>(
            decode(frame(wire::Type::done, wire::Done{.error = 3, .reserved = 0})).value())
            .error == 3);
  wire::Header resync{.version = wire::kVersion, .type = 23, .length = 0, .request = 0};
  CHECK(std::holds_alternative<event::Resync>(
      decode(std::string{reinterpret_cast<const char*>(&resync), sizeof(resync)}).value()));
}

TEST_CASE("wrong frames are refused") {
  const std::string good = frame(wire::Type::exited, exited());
  for (std::size_t size = 0; size < good.size(); ++size) {
    CHECK_FALSE(decode(good.substr(0, size)).has_value());
  }
  CHECK_FALSE(decode(good + "x").has_value());
  std::string other = good;
  other[0] = 2;  // version
  CHECK_FALSE(decode(other).has_value());
  // Types that only talond sends, and ones that do not exist.
  for (const int type : {0, 1, 3, 10, 15, 17, 21, 24, 999}) {
    other = good;
    const auto value = static_cast<std::uint16_t>(type);
    std::memcpy(other.data() + 2, &value, sizeof(value));
    CHECK_FALSE(decode(other).has_value());
  }
  wire::Exited bad = exited();
  bad.info.code = 256;
  CHECK_FALSE(decode(frame(wire::Type::exited, bad)).has_value());
  bad = exited();
  bad.info.signal = 9;  // a code and a signal
  CHECK_FALSE(decode(frame(wire::Type::exited, bad)).has_value());
  bad = exited();
  std::memset(bad.px, 'a', sizeof(bad.px));  // no NUL
  CHECK_FALSE(decode(frame(wire::Type::exited, bad)).has_value());
  bad = exited();
  std::memcpy(bad.px, "../x", 5);
  CHECK_FALSE(decode(frame(wire::Type::exited, bad)).has_value());
  bad.px[0] = '\0';
  CHECK_FALSE(decode(frame(wire::Type::exited, bad)).has_value());
}
