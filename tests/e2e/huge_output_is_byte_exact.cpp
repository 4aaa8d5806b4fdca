// EX-01: the tail of a huge output is never missing. TALON_TEST_ROUNDS sets how often; 20 is the
// case's own number.
#include <catch2/catch.hpp>

#include "support/daemon.h"

using namespace talon::test;
namespace json = boost::json;

namespace {

// What `seq -s '' 1 n` prints, and END: no newline before the end, and no two places alike.
std::string expected_text(int last) {
  std::string text;
  text.reserve(110u << 20);
  for (int i = 1; i <= last; ++i) {
    text += std::to_string(i);
  }
  return text + "\nEND";
}

}  // namespace

TEST_CASE("a hundred megabytes of output arrive byte-exact, END included") {
  constexpr int kLast = 13'900'000;  // a little more than 100 MB of digits
  const auto expected = expected_text(kLast);
  REQUIRE(expected.size() > 100'000'000);
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto command = "seq -s '' 1 " + std::to_string(kLast) + "; printf END";
  const int times = std::min(rounds(2), 20);
  const auto rss = daemon.use().rss_bytes;
  for (int i = 0; i < times; ++i) {
    const auto reply = run_in(client, id, {{"command", command}, {"max_output", "200MiB"}});
    INFO("round " << i << ", " << reply.body.size() << " bytes");
    CHECK(exit_code(reply) == 0);
    CHECK(reply.at("output_limit") == json::value(false));
    const auto got = reply.text("stdout");
    REQUIRE(got.size() == expected.size());
    REQUIRE(got == expected);
  }
  // The answer is written from the log in pieces, never held whole.
  CHECK(daemon.use().rss_bytes < rss + (64u << 20));
}

// LI-08 in part: the cap keeps exactly its first bytes, whatever the write sizes.
TEST_CASE("an output limit ends the command and keeps exactly the first bytes") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  for (const auto* command :
       {"seq 1 1000000", "i=0; while :; do i=$((i+1)); echo $i; done", "seq 1 1000000 >&2"}) {
    INFO(command);
    const auto reply = run_in(client, id, {{"command", command}, {"max_output", 100000}});
    CHECK(reply.at("output_limit") == json::value(true));
    CHECK(reply.at("timed_out") == json::value(false));
    const auto text = reply.text("stdout") + reply.text("stderr");
    REQUIRE(text.size() == 100000);
    CHECK(text.starts_with("1\n2\n3\n"));
    CHECK(text.ends_with("\n18517\n1851"));
  }
}
