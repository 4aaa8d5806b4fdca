#include "base/clock.h"

#include <catch2/catch.hpp>

using namespace talon;

TEST_CASE("times are RFC 3339 in UTC with milliseconds") {
  CHECK(rfc3339(0) == "1970-01-01T00:00:00.000Z");
  CHECK(rfc3339(1'769'862'896'789) == "2026-01-31T12:34:56.789Z");
  CHECK(rfc3339(-1) == "1969-12-31T23:59:59.999Z");
  const auto& clock = system_clock();
  const auto before = clock.mono_ns();
  CHECK(clock.mono_ns() >= before);
  CHECK(clock.wall_ms() > 1'700'000'000'000);
}
