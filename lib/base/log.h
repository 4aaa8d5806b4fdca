#pragma once
// Log lines: an event name and fields, one JSON object a line on stderr. Thread-safe.
// Libraries return errors; only the server and the command line log.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

namespace talon {

struct LogField {
  template <class T>
  LogField(std::string_view k, const T& v) : key(k) {
    if constexpr (std::is_same_v<T, bool>) {
      value = v;
    } else if constexpr (std::is_integral_v<T>) {
      value = static_cast<std::int64_t>(v);
    } else if constexpr (std::is_floating_point_v<T>) {
      value = static_cast<double>(v);
    } else {
      value = std::string{std::string_view{v}};
    }
  }
  std::string_view key;
  std::variant<std::int64_t, bool, double, std::string> value;
};

enum class LogLevel { debug, info, warn, error };

void set_log_level(LogLevel level);
void log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields = {});
inline void log_info(std::string_view e, std::initializer_list<LogField> f = {}) {
  log(LogLevel::info, e, f);
}
inline void log_warn(std::string_view e, std::initializer_list<LogField> f = {}) {
  log(LogLevel::warn, e, f);
}
inline void log_error(std::string_view e, std::initializer_list<LogField> f = {}) {
  log(LogLevel::error, e, f);
}
inline void log_debug(std::string_view e, std::initializer_list<LogField> f = {}) {
  log(LogLevel::debug, e, f);
}

// Appends `text` as a JSON string literal with quotes; bytes that are not UTF-8 become \u00XX.
void append_json_string(std::string& out, std::string_view text);

}  // namespace talon
