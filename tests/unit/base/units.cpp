#include "base/units.h"

#include <catch2/catch.hpp>

using namespace talon;

TEST_CASE("sizes") {
  CHECK(*parse_size("0") == 0);
  CHECK(*parse_size("1048576") == 1048576);
  CHECK(*parse_size("512MiB") == 512ULL << 20);
  CHECK(*parse_size("4GiB") == 4ULL << 30);
  CHECK(*parse_size("4G") == 4'000'000'000ULL);
  CHECK(*parse_size("64k") == 64'000);
  CHECK(*parse_size("64KiB") == 65'536);
  CHECK(*parse_size("1000B") == 1000);
  CHECK(*parse_size("18446744073709551615") == ~0ULL);
  for (const char* bad : {"", "-1", "+1", " 1", "1 ", "1 MiB", "1.5G", "MiB", "12XB", "0x10",
                          "18446744073709551616", "16777216TiB", "1mib"}) {
    CAPTURE(bad);
    const auto parsed = parse_size(bad);
    REQUIRE_FALSE(parsed.has_value());
    CHECK(parsed.error().code == Code::invalid_request);
  }
}

TEST_CASE("durations") {
  const auto ms = [](std::string_view text) { return parse_duration(text)->count(); };
  CHECK(ms("90") == 90'000);
  CHECK(ms("90s") == 90'000);
  CHECK(ms("15m") == 900'000);
  CHECK(ms("1h") == 3'600'000);
  CHECK(ms("250ms") == 250);
  CHECK(ms("1.5s") == 1500);
  CHECK(ms("1.5") == 1500);
  CHECK(ms("0.25m") == 15'000);
  CHECK(ms("0") == 0);
  CHECK(ms("3660d") == 3660LL * 86'400'000);
  for (const char* bad :
       {"", "-1", "1.", ".5", "1x", "s", "1 s", "4000d", "1e3", "nan", "99999999999999999999"}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_duration(bad).has_value());
  }
}

TEST_CASE("sizes print in the largest exact binary unit") {
  CHECK(format_size(536870912) == "512MiB");
  CHECK(format_size(1000) == "1000B");
  CHECK(format_size(0) == "0B");
  CHECK(format_size(1024) == "1KiB");
  CHECK(format_size(3ULL << 40) == "3TiB");
  CHECK(*parse_size(format_size(123'456'789)) == 123'456'789);
}
