#include "base/id.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <span>

#include "base/error.h"

namespace talon {

namespace {

constexpr std::string_view kAlphabet = "abcdefghijklmnopqrstuvwxyz0123456789";
constexpr std::size_t kRandomChars = 20;

void fill_random(std::span<unsigned char> out) {
  while (!out.empty()) {
    const ssize_t n = ::getrandom(out.data(), out.size(), 0);
    if (n < 0) {
      TALON_ASSERT(errno == EINTR);
      continue;
    }
    out = out.subspan(static_cast<std::size_t>(n));
  }
}

}  // namespace

std::string_view prefix(IdKind kind) {
  switch (kind) {
    case IdKind::sandbox: return "sb";
    case IdKind::exec: return "px";
    case IdKind::workspace: return "ws";
    case IdKind::snapshot: return "sn";
    case IdKind::key: return "ky";
    case IdKind::tenant: return "tn";
    case IdKind::event: return "ev";
    case IdKind::request: return "rq";
    case IdKind::instance: return "in";
  }
  TALON_ASSERT(false);
}

std::string new_id(IdKind kind) {
  std::string id{prefix(kind)};
  // Bytes of 252 and above are thrown away: 252 = 7 * 36, so every character is equally likely.
  std::array<unsigned char, 32> pool;
  while (id.size() < 2 + kRandomChars) {
    fill_random(pool);
    for (const unsigned char byte : pool) {
      if (byte < 252 && id.size() < 2 + kRandomChars) {
        id += kAlphabet[byte % kAlphabet.size()];
      }
    }
  }
  return id;
}

bool is_id(IdKind kind, std::string_view text) {
  return text.size() == 2 + kRandomChars && text.starts_with(prefix(kind)) &&
         std::ranges::all_of(
             text, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); });
}

std::string random_hex(std::size_t bytes) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string raw(bytes, '\0');
  fill_random({reinterpret_cast<unsigned char*>(raw.data()), raw.size()});
  std::string out;
  out.reserve(2 * bytes);
  for (const char c : raw) {
    const auto byte = static_cast<unsigned char>(c);
    out += kHex[byte >> 4];
    out += kHex[byte & 15];
  }
  return out;
}

}  // namespace talon
