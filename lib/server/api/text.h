#pragma once
// Bytes on their way into JSON: UTF-8 checked over chunk borders (RFC 3629: no surrogates, no
// overlong forms), base64 (RFC 4648) and JSON escapes written piece by piece; and SHA-256.

#include <boost/json/fwd.hpp>
#include <string>
#include <string_view>

namespace talon::server::api {

// Says whether what was fed so far is UTF-8; a sequence may be cut by a chunk's end.
class Utf8Check {
 public:
  // False as soon as something cannot become UTF-8 any more; stays false.
  bool feed(std::string_view bytes);
  bool valid() const { return good_; }
  // Nothing is pending either: the whole is UTF-8.
  bool complete() const { return good_ && need_ == 0; }

 private:
  bool good_ = true;
  unsigned need_ = 0;         // continuation bytes still to come
  unsigned char low_ = 0x80;  // bounds of the next one
  unsigned char high_ = 0xbf;
};

// Length of the longest prefix that ends at a character's border; the rest (0..3 bytes) is a
// cut sequence. npos when the text is not UTF-8.
std::size_t whole_characters(std::string_view bytes);

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
