// What talon-init reads of others, run outside of init (lib/isolate/init/parse.h is pure).

#include <catch2/catch.hpp>

#include <cstring>
#include <random>
#include <string>

#include "fuzz/init_frames_input.h"
#include "isolate/init/parse.h"

using namespace talon;
using namespace talon::init;

namespace {

std::string text(const Field& field) { return std::string(field.text, field.size); }

}  // namespace

TEST_CASE("init: ids are lower-case letters and digits that end inside their field") {
  auto good = [](std::string_view name) {
    char px[wire::kIdSize];
    std::memset(px, 'x', sizeof px);  // nothing behind the text may count
    std::memcpy(px, name.data(), std::min(name.size(), sizeof px));
    return good_id(px);
  };
  using namespace std::string_view_literals;
  CHECK(good("px0a9z\0"sv));
  CHECK(good("abcdefghijklmnopqrstuvw\0"sv));  // 23 and its NUL
  CHECK_FALSE(good("\0"sv));
  CHECK_FALSE(good("abcdefghijklmnopqrstuvwx"sv));  // 24, no NUL
  CHECK_FALSE(good("../x\0"sv));
  CHECK_FALSE(good("a/b\0"sv));
  CHECK_FALSE(good("Px\0"sv));
  CHECK_FALSE(good("a.1\0"sv));
  CHECK_FALSE(good("a b\0"sv));
}

TEST_CASE("init: numbers are whole, decimal and 32 bits") {
  std::uint32_t n = 0;
  auto parse = [&](std::string_view s) { return parse_u32(s.data(), s.size(), n); };
  CHECK(parse("0"));
  CHECK(n == 0);
  CHECK(parse("4294967295"));
  CHECK(n == 4294967295u);
  CHECK_FALSE(parse("4294967296"));
  CHECK_FALSE(parse("99999999999"));
  CHECK_FALSE(parse(""));
  CHECK_FALSE(parse("-1"));
  CHECK_FALSE(parse("1 "));
  CHECK_FALSE(parse("0x1"));
}

TEST_CASE("init: passwd lines split into seven fields, damaged ones too") {
  const std::string file = "root:x:0:0:root:/root:/bin/sh\nshort:x\n\n:::\nlast:x:1:2:g:/h:/s:h:x";
  Field f[kFields];
  std::size_t at = 0;
  split_line(file.data(), file.size(), at, f);
  CHECK(text(f[0]) == "root");
  CHECK(text(f[3]) == "0");
  CHECK(text(f[5]) == "/root");
  CHECK(text(f[6]) == "/bin/sh");
  split_line(file.data(), file.size(), at, f);
  CHECK(text(f[0]) == "short");
  CHECK(text(f[1]) == "x");
  CHECK(text(f[2]).empty());
  split_line(file.data(), file.size(), at, f);
  CHECK(text(f[0]).empty());
  split_line(file.data(), file.size(), at, f);
  CHECK(text(f[3]).empty());
  split_line(file.data(), file.size(), at, f);
  CHECK(text(f[0]) == "last");
  CHECK(text(f[6]) == "/s:h:x");
  CHECK(at == file.size());
}

TEST_CASE("init: group members are whole names") {
  const std::string members = "root,user,us";
  const Field list{members.data(), members.size()};
  CHECK(lists_name(list, "user", 4));
  CHECK(lists_name(list, "us", 2));
  CHECK(lists_name(list, "root", 4));
  CHECK_FALSE(lists_name(list, "use", 3));
  CHECK_FALSE(lists_name(list, "", 0));
  CHECK_FALSE(lists_name(Field{"", 0}, "root", 4));
}

TEST_CASE("init: string tables end inside their range") {
  const std::string bytes("\0one\0two\0torn", 13);
  const StringTable table(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  const char* out[4] = {};
  REQUIRE(table.take(1, 2, out));
  CHECK(std::string(out[0]) == "one");
  CHECK(std::string(out[1]) == "two");
  CHECK(out[2] == nullptr);
  CHECK_FALSE(table.take(1, 3, out));
  CHECK(table.string_at(0) == std::string());
  CHECK(table.string_at(9) == nullptr);
  CHECK(table.string_at(13) == nullptr);
  CHECK(table.string_at(0xffffffff) == nullptr);
}

TEST_CASE("init: random bytes are taken or refused, never read past") {
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes(random() % 300, '\0');
    for (char& c : bytes) {
      c = static_cast<char>(random() % 3 == 0 ? random() : ":\nx0\0"[random() % 5]);
    }
    fuzz::init_frames_input(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  }
  CHECK(true);
}
