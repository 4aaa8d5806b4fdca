#include "base/id.h"

#include <catch2/catch.hpp>
#include <set>

using namespace talon;

TEST_CASE("ids carry their kind, are DNS-safe and do not repeat") {
  std::set<std::string> seen;
  std::set<char> used;
  for (int i = 0; i < 2000; ++i) {
    const std::string id = new_id(IdKind::sandbox);
    REQUIRE(is_id(IdKind::sandbox, id));
    CHECK(id.size() == 22);
    seen.insert(id);
    used.insert(id.begin() + 2, id.end());
  }
  CHECK(seen.size() == 2000);
  CHECK(used.size() == 36);
  CHECK(new_id(IdKind::exec).starts_with("px"));
  CHECK(new_id(IdKind::instance).starts_with("in"));
}

TEST_CASE("is_id refuses other kinds, lengths and characters") {
  CHECK(is_id(IdKind::key, "ky0123456789abcdefghij"));
  CHECK_FALSE(is_id(IdKind::sandbox, "ky0123456789abcdefghij"));
  CHECK_FALSE(is_id(IdKind::key, "ky0123456789abcdefghi"));
  CHECK_FALSE(is_id(IdKind::key, "ky0123456789abcdefghijk"));
  CHECK_FALSE(is_id(IdKind::key, "ky0123456789ABCDEFGHIJ"));
  CHECK_FALSE(is_id(IdKind::key, "ky0123456789abc/efghij"));
  CHECK_FALSE(is_id(IdKind::key, std::string_view{"ky0123456789abc\0efghij", 22}));
  CHECK_FALSE(is_id(IdKind::key, ""));
}

TEST_CASE("random hex has two characters a byte") {
  CHECK(random_hex(0).empty());
  const std::string a = random_hex(16);
  CHECK(a.size() == 32);
  CHECK(a.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(a != random_hex(16));
}
