#pragma once
// Text forms of sizes and durations as people write them; the JSON codecs, the flags and the
// config file all use these two.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace talon {

// "1048576", "512MiB", "4GiB", "4G" (=4e9), "64k" (=64000), "64KiB". Bytes; no sign, no spaces.
Result<std::uint64_t> parse_size(std::string_view text);
// "90s" "15m" "1h" "250ms" "1.5s" or bare seconds "90". Not negative; at most 10 years.
Result<std::chrono::milliseconds> parse_duration(std::string_view text);
// 536870912 -> "512MiB" when exact, else plain bytes "1000B".
std::string format_size(std::uint64_t bytes);

}  // namespace talon
