#pragma once
// CRC-32C (Castagnoli, RFC 3720 appendix B.4), table driven; freestanding and shared by init and
// the readers. It finds torn and truncated records; it is no defence against forgery, and
// readers treat the content as hostile whatever it says.

#include <stddef.h>
#include <stdint.h>

namespace talon::wire {

struct Crc32Table {
  uint32_t entry[256];
  constexpr Crc32Table() : entry{} {
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int k = 0; k < 8; ++k) {
        c = (c & 1u) != 0 ? 0x82f63b78u ^ (c >> 1) : c >> 1;
      }
      entry[i] = c;
    }
  }
};
inline constexpr Crc32Table kCrc32Table{};

inline uint32_t crc32c(const void* data, size_t size, uint32_t seed = 0) {
  const auto* p = static_cast<const unsigned char*>(data);
  uint32_t c = ~seed;
  for (size_t i = 0; i < size; ++i) {
    c = kCrc32Table.entry[(c ^ p[i]) & 0xff] ^ (c >> 8);
  }
  return ~c;
}

}  // namespace talon::wire
