#include "base/log.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <cmath>
#include <mutex>

#include "base/clock.h"

namespace talon {

namespace {

std::atomic<LogLevel> threshold{LogLevel::info};
std::mutex output;

std::string_view name_of(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return "debug";
    case LogLevel::info: return "info";
    case LogLevel::warn: return "warn";
    case LogLevel::error: return "error";
  }
  return "error";
}

// Length of the UTF-8 sequence at the front of `text` (RFC 3629: no overlong forms, no
// surrogates, nothing above U+10FFFF), 0 if it is none.
std::size_t utf8_length(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = at(0);
  if (first < 0x80) {
    return 1;
  }
  std::size_t size = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  if (first >= 0xC2 && first <= 0xDF) {
    size = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    size = 3;
    low = first == 0xE0 ? 0xA0 : 0x80;
    high = first == 0xED ? 0x9F : 0xBF;
  } else if (first >= 0xF0 && first <= 0xF4) {
    size = 4;
    low = first == 0xF0 ? 0x90 : 0x80;
    high = first == 0xF4 ? 0x8F : 0xBF;
  }
  if (size == 0 || text.size() < size || at(1) < low || at(1) > high) {
    return 0;
  }
  for (std::size_t i = 2; i < size; ++i) {
    if (at(i) < 0x80 || at(i) > 0xBF) {
      return 0;
    }
  }
  return size;
}

void append_escape(std::string& out, unsigned char byte) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out += "\\u00";
  out += kHex[byte >> 4];
  out += kHex[byte & 15];
}

void append_value(std::string& out, std::int64_t value) { out += std::to_string(value); }
void append_value(std::string& out, bool value) { out += value ? "true" : "false"; }
void append_value(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";  // JSON has no NaN
    return;
  }
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  out.append(text.data(), end);
}
void append_value(std::string& out, const std::string& value) { append_json_string(out, value); }

}  // namespace

void set_log_level(LogLevel level) { threshold.store(level, std::memory_order_relaxed); }

void log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  if (level < threshold.load(std::memory_order_relaxed)) {
    return;
  }
  std::string line = "{\"at\":\"" + rfc3339(system_clock().wall_ms()) + "\",\"level\":\"";
  line += name_of(level);
  line += "\",\"event\":";
  append_json_string(line, event);
  for (const LogField& field : fields) {
    line += ',';
    append_json_string(line, field.key);
    line += ':';
    std::visit([&](const auto& value) { append_value(line, value); }, field.value);
  }
  line += "}\n";
  const std::lock_guard lock{output};
  // A log that cannot be written (stderr closed, disk full) must not stop the daemon.
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, rest.data(), rest.size());
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      return;
    }
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const char c = text[0];
    const auto byte = static_cast<unsigned char>(c);
    std::size_t size = utf8_length(text);
    if (size == 0) {
      append_escape(out, byte);
      size = 1;
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      append_escape(out, byte);
    } else {
      out.append(text.substr(0, size));
    }
    text.remove_prefix(size);
  }
  out += '"';
}

}  // namespace talon
