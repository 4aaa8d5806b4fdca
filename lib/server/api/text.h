#pragma once
// Bytes on their way into JSON: base64 (RFC 4648) and JSON escapes written piece by piece; and
// SHA-256.

#include <boost/json/fwd.hpp>
#include <string>
#include <string_view>

#include "base/utf8.h"

namespace talon::server::api {

using talon::Utf8Check;
using talon::whole_characters;

// Appends the inside of a JSON string literal. `text` is UTF-8, cut anywhere.
void append_json_escaped(std::string& out, std::string_view text);

// JSON with numbers as people write them: 0.5, not 5E-1.
std::string json_text(const boost::json::value& value);

class Base64 {
 public:
  void feed(std::string& out, std::string_view bytes);
  void finish(std::string& out);

 private:
  std::string pending_;  // 0..2 bytes
};
std::string base64(std::string_view bytes);
// False when it is not base64 (padding required, no white space).
bool base64_decode(std::string_view text, std::string& out);

std::string sha256_hex(std::string_view bytes);

}  // namespace talon::server::api
