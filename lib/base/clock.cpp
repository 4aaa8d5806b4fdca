#include "base/clock.h"

#include <time.h>

#include <array>
#include <cstdio>

namespace talon {

namespace {

class SystemClock final : public Clock {
 public:
  std::int64_t wall_ms() const override {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<std::int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
  }
  std::int64_t mono_ns() const override {
    timespec now{};
    ::clock_gettime(CLOCK_BOOTTIME, &now);
    return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
  }
};

}  // namespace

const Clock& system_clock() {
  static const SystemClock clock;
  return clock;
}

std::string rfc3339(std::int64_t wall_ms) {
  // Floor, not truncation: times before 1970 keep a millisecond part of 0..999.
  std::int64_t seconds = wall_ms / 1000;
  std::int64_t millis = wall_ms % 1000;
  if (millis < 0) {
    millis += 1000;
    --seconds;
  }
  const time_t when = static_cast<time_t>(seconds);
  tm parts{};
  if (::gmtime_r(&when, &parts) == nullptr) {
    return "0000-01-01T00:00:00.000Z";
  }
  std::array<char, 80> text;
  const int size =
      std::snprintf(text.data(), text.size(), "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ",
                    parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour,
                    parts.tm_min, parts.tm_sec, static_cast<int>(millis));
  return {text.data(), static_cast<std::size_t>(size)};
}

}  // namespace talon
