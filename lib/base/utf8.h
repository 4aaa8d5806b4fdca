#pragma once
// UTF-8 (RFC 3629: no surrogates, no overlong forms) in pieces that may be cut anywhere.

#include <cstddef>
#include <string>
#include <string_view>

namespace talon {

namespace detail {
// The decoder both classes stand on: one byte at a time.
class Utf8Step {
 public:
  enum class Got { character, more, bad, bad_before };  // bad_before: this byte was not looked at
  Got feed(unsigned char byte);
  bool pending() const { return need_ != 0; }

 private:
  unsigned need_ = 0;  // continuation bytes still to come
  unsigned char low_ = 0x80;
  unsigned char high_ = 0xbf;  // bounds of the next one
};
}  // namespace detail

// Says whether what was fed so far is UTF-8.
class Utf8Check {
 public:
  // False as soon as something cannot become UTF-8 any more; stays false.
  bool feed(std::string_view bytes);
  bool valid() const { return good_; }
  // Nothing is pending either: the whole is UTF-8.
  bool complete() const { return good_ && !step_.pending(); }

 private:
  bool good_ = true;
  detail::Utf8Step step_;
};

// Makes UTF-8 of any bytes: what is none becomes U+FFFD, one for each maximal part of a character
// (Unicode 15, §3.9); a character cut by the end of a piece is held until the rest comes.
class Utf8Repair {
 public:
  void feed(std::string& out, std::string_view bytes);
  // What is held will not be completed.
  void finish(std::string& out);

 private:
  detail::Utf8Step step_;
  std::string held_;
};

// Length of the longest prefix that ends at a character's border; the rest (0..3 bytes) is a
// cut sequence. npos when the text is not UTF-8.
std::size_t whole_characters(std::string_view bytes);

}  // namespace talon
