#pragma once
// Character classes and small grammar of RFC 9110 §5.6 and RFC 9112, shared by what reads
// requests and what writes responses.

#include <string>
#include <string_view>

namespace talon::server::http {

// token: 1*tchar.
bool is_token(std::string_view text);
// field-value: no control characters but HTAB; bytes above 0x7f are opaque.
bool is_field_value(std::string_view text);
// Without leading and trailing SP and HTAB.
std::string_view trim_ows(std::string_view text);
bool equals_ignore_case(std::string_view a, std::string_view b);
std::string to_lower(std::string_view text);
// Is `word` (lower case) one of the comma-separated members of `list`?
bool list_has(std::string_view list, std::string_view word);

}  // namespace talon::server::http
