#pragma once
// Time through one seam, so that tests can move it. Durations are taken on the monotonic
// clock (CLOCK_BOOTTIME: a suspended host does not stop it), points in time for people are UTC.

#include <chrono>
#include <cstdint>
#include <string>

namespace talon {

using Millis = std::chrono::milliseconds;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual std::int64_t wall_ms() const = 0;  // Unix time, milliseconds
  virtual std::int64_t mono_ns() const = 0;  // CLOCK_BOOTTIME, nanoseconds
};

const Clock& system_clock();

// "2026-01-31T12:34:56.789Z" (RFC 3339, UTC, milliseconds).
std::string rfc3339(std::int64_t wall_ms);

}  // namespace talon
