#include "base/utf8.h"

namespace talon {

namespace detail {

Utf8Step::Got Utf8Step::feed(unsigned char b) {
  if (need_ > 0) {
    if (b < low_ || b > high_) {
      need_ = 0;
      return Got::bad_before;
    }
    low_ = 0x80;
    high_ = 0xbf;
    return --need_ == 0 ? Got::character : Got::more;
  }
  if (b < 0x80) {
    return Got::character;
  }
  if (b < 0xc2 || b > 0xf4) {
    return Got::bad;
  }
  need_ = b < 0xe0 ? 1 : b < 0xf0 ? 2 : 3;
  low_ = b == 0xe0 ? 0xa0 : b == 0xf0 ? 0x90 : 0x80;
  high_ = b == 0xed ? 0x9f : b == 0xf4 ? 0x8f : 0xbf;
  return Got::more;
}

}  // namespace detail

namespace {
constexpr std::string_view kReplacement = "\xef\xbf\xbd";
}

bool Utf8Check::feed(std::string_view bytes) {
  using Got = detail::Utf8Step::Got;
  for (const char c : bytes) {
    if (!good_) {
      return false;
    }
    const Got got = step_.feed(static_cast<unsigned char>(c));
    good_ = got != Got::bad && got != Got::bad_before;
  }
  return good_;
}

void Utf8Repair::feed(std::string& out, std::string_view bytes) {
  using Got = detail::Utf8Step::Got;
  for (const char c : bytes) {
    Got got = step_.feed(static_cast<unsigned char>(c));
    if (got == Got::bad_before) {
      out += kReplacement;
      held_.clear();
      got = step_.feed(static_cast<unsigned char>(c));
    }
    switch (got) {
      case Got::bad: out += kReplacement; break;
      case Got::more: held_ += c; break;
      default:
        out += held_;
        out += c;
        held_.clear();
    }
  }
}

void Utf8Repair::finish(std::string& out) {
  if (!held_.empty()) {
    out += kReplacement;
    held_.clear();
    step_ = {};
  }
}

std::size_t whole_characters(std::string_view bytes) {
  Utf8Check check;
  if (!check.feed(bytes)) {
    return std::string_view::npos;
  }
  std::size_t size = bytes.size();
  if (!check.complete()) {
    // A sequence is cut: step back to its first byte.
    while (size > 0 && (static_cast<unsigned char>(bytes[size - 1]) & 0xc0) == 0x80) {
      --size;
    }
    --size;
  }
  return size;
}

}  // namespace talon
