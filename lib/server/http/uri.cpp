#include <charconv>

#include "server/http/http.h"

namespace talon::server::http {

namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  if (c >= 'a' && c <= 'f') {
    return c - 'a' + 10;
  }
  if (c >= 'A' && c <= 'F') {
    return c - 'A' + 10;
  }
  return -1;
}

}  // namespace

std::string_view Request::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) {
      return value;
    }
  }
  return {};
}

std::size_t Request::count(std::string_view name) const {
  std::size_t n = 0;
  for (const auto& field : headers) {
    n += field.first == name ? 1u : 0u;
  }
  return n;
}

std::optional<std::string> percent_decode(std::string_view text, bool plus_is_space) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (i + 2 >= text.size()) {
        return std::nullopt;
      }
      const int high = hex_digit(text[i + 1]);
      const int low = hex_digit(text[i + 2]);
      if (high < 0 || low < 0) {
        return std::nullopt;
      }
      c = static_cast<char>(high * 16 + low);
      i += 2;
    } else if (c == '+' && plus_is_space) {
      c = ' ';
    }
    if (c == '\0') {
      return std::nullopt;
    }
    out.push_back(c);
  }
  return out;
}

std::optional<std::vector<std::pair<std::string, std::string>>> parse_query(std::string_view q) {
  std::vector<std::pair<std::string, std::string>> out;
  while (!q.empty()) {
    const auto amp = q.find('&');
    const std::string_view part = q.substr(0, amp);
    q = amp == std::string_view::npos ? std::string_view{} : q.substr(amp + 1);
    if (part.empty()) {
      continue;
    }
    const auto equals = part.find('=');
    auto key = percent_decode(part.substr(0, equals), true);
    auto value = equals == std::string_view::npos ? std::optional<std::string>(std::string{})
                                                  : percent_decode(part.substr(equals + 1), true);
    if (!key || !value || key->empty()) {
      return std::nullopt;
    }
    out.emplace_back(std::move(*key), std::move(*value));
  }
  return out;
}

}  // namespace talon::server::http
