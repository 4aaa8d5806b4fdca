#include "base/utf8.h"

#include <catch2/catch.hpp>

using namespace talon;

namespace {

// In pieces of every size the same.
std::string repaired(std::string_view bytes) {
  std::string whole;
  Utf8Repair repair;
  repair.feed(whole, bytes);
  repair.finish(whole);
  for (std::size_t size = 1; size < bytes.size(); ++size) {
    Utf8Repair pieces;
    std::string out;
    for (std::size_t at = 0; at < bytes.size(); at += size) {
      pieces.feed(out, bytes.substr(at, size));
    }
    pieces.finish(out);
    CHECK(out == whole);
  }
  return whole;
}

}  // namespace

TEST_CASE("what is UTF-8 passes a repair unchanged, however it is cut") {
  for (const char* text : {"", "plain", "aé€😀z", "\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf"}) {
    CHECK(repaired(text) == text);
  }
}

TEST_CASE("each maximal part of no character becomes one replacement") {
  const std::string r = "\xef\xbf\xbd";
  CHECK(repaired("a\x80z") == "a" + r + "z");
  CHECK(repaired("\xff\xfe") == r + r);
  CHECK(repaired("\xe2\x82z") == r + "z");         // two bytes of three
  CHECK(repaired("\xe2\x82") == r);                // cut at the end
  CHECK(repaired("\xe2\xe2\x82\xac") == r + "€");  // a character begins inside another
  CHECK(repaired("\xc0\xaf") == r + r);            // overlong
  CHECK(repaired("\xed\xa0\x80") == r + r + r);    // a surrogate
  CHECK(repaired("\xf0\x90\x80x") == r + "x");
}
