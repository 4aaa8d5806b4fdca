#include "server/api/text.h"

#include <boost/json.hpp>
#include <catch2/catch.hpp>

#include "server/api/stream.h"

using namespace talon;
using namespace talon::server;

namespace {

bool is_utf8(std::string_view text) {
  // Fed byte by byte: borders must not matter.
  api::Utf8Check check;
  for (std::size_t i = 0; i < text.size(); ++i) {
    check.feed(text.substr(i, 1));
  }
  return check.complete();
}

isolate::LogEntry output(wire::Kind kind, std::string bytes, std::uint64_t frame) {
  isolate::LogEntry entry;
  entry.kind = kind;
  entry.bytes = std::move(bytes);
  entry.after = {frame + 1, 0};
  return entry;
}

}  // namespace

TEST_CASE("UTF-8 is told from what is not, over any chunk border") {
  for (const char* good :
       {"", "a", "\x7f", "é", "€", "😀", "\xed\x9f\xbf", "\xee\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    INFO(good);
    CHECK(is_utf8(good));
  }
  for (const char* bad :
       {"\x80", "\xc0\x80", "\xc1\xbf", "\xc3", "\xe2\x82", "\xe0\x80\x80", "\xed\xa0\x80",
        "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "a\xc3x"}) {
    INFO(bad);
    CHECK_FALSE(is_utf8(bad));
  }
  CHECK(api::whole_characters("ab\xc3") == 2);
  CHECK(api::whole_characters("\xf0\x9f\x98") == 0);
  CHECK(api::whole_characters("aé") == 3);
  CHECK(api::whole_characters("a\xff") == std::string_view::npos);
}

TEST_CASE("base64 in pieces is base64 of the whole") {
  const std::string text = "any carnal pleas\xff\x01";
  for (std::size_t n = 0; n <= text.size(); ++n) {
    const std::string part = text.substr(0, n);
    api::Base64 encoder;
    std::string pieces;
    for (const char c : part) {
      encoder.feed(pieces, {&c, 1});
    }
    encoder.finish(pieces);
    CHECK(pieces == api::base64(part));
    std::string back;
    REQUIRE(api::base64_decode(pieces, back));
    CHECK(back == part);
  }
  CHECK(api::base64("foob") == "Zm9vYg==");
  std::string out;
  CHECK_FALSE(api::base64_decode("Zg=", out));
  CHECK_FALSE(api::base64_decode("Z===", out));
  CHECK_FALSE(api::base64_decode("Zg==Zg==", out));
  CHECK_FALSE(api::base64_decode("Z g=", out));
}

TEST_CASE("JSON text: numbers as people write them, every control character escaped") {
  boost::json::value value =
      boost::json::parse(R"({"a":[0.5,1,-2,true,null,{}],"b":"\u0001\"\\\n"})");
  const std::string text = api::json_text(value);
  CHECK(text == R"({"a":[0.5,1,-2,true,null,{}],"b":"\u0001\"\\\n"})");
  CHECK(boost::json::parse(text) == value);
  CHECK(api::json_text(boost::json::array{}) == "[]");
  CHECK(api::json_text(2.0) == "2");
}

TEST_CASE("events: a character that a chunk cuts is joined, and cursors never skip it") {
  api::LogEncoder encoder(api::Form::ndjson, {}, {1, 0});
  std::string out;
  encoder.add(out, output(wire::Kind::out, "a\xc3", 1));
  // What is held is not acknowledged: reading from 1.1 would give the first half again.
  CHECK(out == "{\"event\":\"stdout\",\"cursor\":\"1.1\",\"text\":\"a\"}\n");
  out.clear();
  encoder.add(out, output(wire::Kind::out, "\xa9z", 2));
  CHECK(out == "{\"event\":\"stdout\",\"cursor\":\"3.0\",\"text\":\"éz\"}\n");

  out.clear();
  encoder.add(out, output(wire::Kind::out, "\xe2\x82", 3));
  CHECK(out.empty());
  encoder.add(out, output(wire::Kind::err, "e", 4));
  CHECK(out ==
        "{\"event\":\"stdout\",\"cursor\":\"4.0\",\"base64\":\"4oI=\"}\n"
        "{\"event\":\"stderr\",\"cursor\":\"5.0\",\"text\":\"e\"}\n");
  out.clear();
  encoder.add(out, output(wire::Kind::out, "\xff", 5));
  CHECK(out == "{\"event\":\"stdout\",\"cursor\":\"6.0\",\"base64\":\"/w==\"}\n");
  out.clear();
  encoder.add(out, output(wire::Kind::out, "\xe2", 6));
  encoder.flush(out);
  CHECK(out == "{\"event\":\"stdout\",\"cursor\":\"7.0\",\"base64\":\"4g==\"}\n");
}

TEST_CASE("SHA-256") {
  CHECK(api::sha256_hex("abc") ==
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}
