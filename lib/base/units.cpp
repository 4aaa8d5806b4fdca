#include "base/units.h"

#include <array>
#include <charconv>
#include <limits>

namespace talon {

namespace {

struct Unit {
  std::string_view suffix;
  std::uint64_t factor;
};

constexpr std::array<Unit, 16> kSizes{{
    {"", 1},
    {"B", 1},
    {"k", 1000ULL},
    {"K", 1000ULL},
    {"kB", 1000ULL},
    {"KiB", 1ULL << 10},
    {"M", 1000'000ULL},
    {"MB", 1000'000ULL},
    {"MiB", 1ULL << 20},
    {"G", 1000'000'000ULL},
    {"GB", 1000'000'000ULL},
    {"GiB", 1ULL << 30},
    {"T", 1000'000'000'000ULL},
    {"TB", 1000'000'000'000ULL},
    {"TiB", 1ULL << 40},
    {"PiB", 1ULL << 50},
}};

// Milliseconds per unit.
constexpr std::array<Unit, 6> kDurations{{
    {"ms", 1},
    {"", 1000},
    {"s", 1000},
    {"m", 60'000},
    {"h", 3'600'000},
    {"d", 86'400'000},
}};

constexpr std::uint64_t kMaxDurationMs = 10ULL * 366 * 86'400'000;

bool digit(char c) { return c >= '0' && c <= '9'; }

// Reads decimal digits from the front of `text`; false if there is none or it does not fit.
bool take_number(std::string_view& text, std::uint64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end == text.data()) {
    return false;
  }
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

std::unexpected<Error> bad_size(std::string_view text) {
  return fail(Code::invalid_request, "\"" + std::string{text} +
                                         "\" is not a size: write bytes (1048576) or a number "
                                         "with a unit (512MiB, 4GiB, 64KiB, 10G)");
}

std::unexpected<Error> bad_duration(std::string_view text) {
  return fail(Code::invalid_request, "\"" + std::string{text} +
                                         "\" is not a duration: write seconds (90) or a number "
                                         "with a unit (250ms, 90s, 15m, 1h), at most 10 years");
}

}  // namespace

Result<std::uint64_t> parse_size(std::string_view text) {
  std::string_view rest = text;
  std::uint64_t number = 0;
  if (!take_number(rest, number)) {
    return bad_size(text);
  }
  for (const Unit& unit : kSizes) {
    if (unit.suffix == rest) {
      if (number > std::numeric_limits<std::uint64_t>::max() / unit.factor) {
        return bad_size(text);
      }
      return number * unit.factor;
    }
  }
  return bad_size(text);
}

Result<std::chrono::milliseconds> parse_duration(std::string_view text) {
  std::string_view rest = text;
  std::uint64_t whole = 0;
  if (!take_number(rest, whole)) {
    return bad_duration(text);
  }
  std::string_view fraction;
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    std::size_t size = 0;
    while (size < rest.size() && digit(rest[size])) {
      ++size;
    }
    if (size == 0 || size > 9) {
      return bad_duration(text);
    }
    fraction = rest.substr(0, size);
    rest.remove_prefix(size);
  }
  for (const Unit& unit : kDurations) {
    if (unit.suffix != rest) {
      continue;
    }
    if (whole > kMaxDurationMs / unit.factor) {
      return bad_duration(text);
    }
    std::uint64_t total = whole * unit.factor;
    std::uint64_t scale = 1;
    std::uint64_t part = 0;
    for (const char c : fraction) {
      part = part * 10 + static_cast<std::uint64_t>(c - '0');
      scale *= 10;
    }
    total += part * unit.factor / scale;
    if (total > kMaxDurationMs) {
      return bad_duration(text);
    }
    return std::chrono::milliseconds{static_cast<std::int64_t>(total)};
  }
  return bad_duration(text);
}

std::string format_size(std::uint64_t bytes) {
  constexpr std::array<Unit, 5> kBinary{{
      {"PiB", 1ULL << 50},
      {"TiB", 1ULL << 40},
      {"GiB", 1ULL << 30},
      {"MiB", 1ULL << 20},
      {"KiB", 1ULL << 10},
  }};
  for (const Unit& unit : kBinary) {
    if (bytes >= unit.factor && bytes % unit.factor == 0) {
      return std::to_string(bytes / unit.factor) + std::string{unit.suffix};
    }
  }
  return std::to_string(bytes) + "B";
}

}  // namespace talon
