#pragma once
// What talon-init reads of others, without system calls: frames of talond, the string tables of
// exec requests, lines of passwd and group. Pure functions over bytes, so that the tests and the
// fuzz targets run them outside of init too.

#include <stddef.h>
#include <stdint.h>

#include "isolate/wire/frames.h"

namespace talon::init {

// A decimal number that fills s[0..n) entirely; false for anything else or above 2^32 - 1.
inline bool parse_u32(const char* s, size_t n, uint32_t& out) {
  if (n == 0 || n > 10) {
    return false;
  }
  uint64_t value = 0;
  for (size_t i = 0; i < n; ++i) {
    if (s[i] < '0' || s[i] > '9') {
      return false;
    }
    value = value * 10 + (uint64_t)(s[i] - '0');
  }
  out = (uint32_t)value;
  return value <= 0xffffffffull;
}

// Ids are [a-z0-9]+ and end inside their field; they become names in logs/ and x/.
inline bool good_id(const char (&px)[wire::kIdSize]) {
  size_t n = 0;
  while (n < sizeof px && px[n] != 0) {
    bool good = (px[n] >= 'a' && px[n] <= 'z') || (px[n] >= '0' && px[n] <= '9');
    if (!good) {
      return false;
    }
    ++n;
  }
  return n > 0 && n < sizeof px;
}

// Whether a message of `size` bytes is one whole frame of this version.
inline bool good_header(const wire::Header& head, size_t size) {
  return size >= sizeof head && head.version == wire::kVersion && head.length == size - sizeof head;
}

// The payload as T; false unless it is exactly one T, with a good id where it has one.
template <class T>
bool take_payload(const unsigned char* payload, uint32_t size, T& out) {
  if (size != sizeof(T)) {
    return false;
  }
  auto* to = reinterpret_cast<unsigned char*>(&out);
  for (size_t i = 0; i < sizeof(T); ++i) {
    to[i] = payload[i];
  }
  if constexpr (requires { out.px; }) {
    return good_id(out.px);
  }
  return true;
}

// The same for a StdinData, which its bytes follow.
inline bool take_stdin(const unsigned char* payload, uint32_t size, wire::StdinData& out) {
  return size >= sizeof out && take_payload(payload, (uint32_t)sizeof out, out) &&
         out.length == size - sizeof out;
}

// The same for an Exec, which its strings follow when it says so.
inline bool take_exec(const unsigned char* payload, uint32_t size, wire::Exec& out) {
  if (size < sizeof out || !take_payload(payload, (uint32_t)sizeof out, out)) {
    return false;
  }
  uint32_t strings = size - (uint32_t)sizeof out;
  return (out.flags & wire::kExecInline) != 0
             ? strings != 0 && strings <= wire::kExecInlineMax && out.stdin_len == 0
             : strings == 0;
}

// NUL-terminated strings in a byte range that nobody else can change.
class StringTable {
 public:
  StringTable(const unsigned char* bytes, size_t size) : bytes_(bytes), size_(size) {}

  // The string at `at`, null if it does not end inside the range; moves past it.
  const char* next(size_t& at) const {
    size_t begin = at;
    while (at < size_ && bytes_[at] != 0) {
      ++at;
    }
    if (at >= size_) {
      return nullptr;
    }
    ++at;
    return reinterpret_cast<const char*>(bytes_ + begin);
  }
  const char* string_at(uint32_t offset) const {
    size_t at = offset;
    return next(at);
  }
  // `count` strings from `offset` on, then a null, into out[0..count].
  bool take(uint32_t offset, uint32_t count, const char** out) const {
    size_t at = offset;
    for (uint32_t i = 0; i < count; ++i) {
      out[i] = next(at);
      if (out[i] == nullptr) {
        return false;
      }
    }
    out[count] = nullptr;
    return true;
  }

 private:
  const unsigned char* bytes_;
  size_t size_;
};

// One line of passwd(5) or group(5).
struct Field {
  const char* text;
  size_t size;
};
inline constexpr int kFields = 7;

// Splits the line of base[0..size) that begins at `at` by colons; moves past the line. Fields that
// are missing are empty; the last one takes what is left.
inline void split_line(const char* base, size_t size, size_t& at, Field (&fields)[kFields]) {
  for (Field& field : fields) {
    field = {"", 0};
  }
  for (int i = 0; i < kFields; ++i) {
    size_t begin = at;
    while (at < size && base[at] != '\n' && (base[at] != ':' || i == kFields - 1)) {
      ++at;
    }
    fields[i] = {base + begin, at - begin};
    if (at >= size || base[at++] == '\n') {
      return;
    }
  }
}

// Whether a comma-separated list names `name`.
inline bool lists_name(const Field& list, const char* name, size_t name_size) {
  size_t at = 0;
  while (at < list.size) {
    size_t end = at;
    while (end < list.size && list.text[end] != ',') {
      ++end;
    }
    bool same = end - at == name_size;
    for (size_t i = 0; same && i < name_size; ++i) {
      same = list.text[at + i] == name[i];
    }
    if (same) {
      return true;
    }
    at = end + 1;
  }
  return false;
}

}  // namespace talon::init
