// The tail of a huge output is never missing.
#include <catch2/catch.hpp>

#include <algorithm>

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

// Twenty rounds; as many as TALON_TEST_ROUNDS of the case's 100 MB, the others of a tenth of it:
// the end of the output is what goes missing, and it is met as often.
TEST_CASE("EX-01: a hundred megabytes of output arrive byte-exact, END included, twenty times") {
  const auto large = expected_text(13'900'000);  // a little more than 100 MB of digits
  const auto small = expected_text(1'500'000);
  REQUIRE(large.size() > 100'000'000);
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto target = "/v1/sandboxes/" + id + "/run";
  const auto rss = daemon.use().rss_bytes;
  for (int i = 0; i < 20; ++i) {
    const bool is_large = i < rounds(2);
    const auto& expected = is_large ? large : small;
    const auto last = std::to_string(is_large ? 13'900'000 : 1'500'000);
    const json::object body{{"command", "seq -s '' 1 " + last + "; printf END"},
                            {"max_output", "200MiB"}};
    const bool raw = i % 4 != 0;
    const auto reply = raw ? client.post(target, body, {{"Accept", "application/octet-stream"}})
                           : run_in(client, id, body);
    INFO("round " << i << ", " << reply.body.size() << " bytes");
    REQUIRE(reply.status == 200);
    const auto got = raw ? reply.body : reply.text("stdout");
    REQUIRE(got.size() == expected.size());
    REQUIRE((got == expected));
    if (raw) {
      const std::pair<std::string, std::string> ended_well{"talon-exit-code", "0"};
      CHECK(std::ranges::find(reply.trailers, ended_well) != reply.trailers.end());
    } else {
      CHECK(exit_code(reply) == 0);
      CHECK(reply.at("output_limit") == json::value(false));
    }
  }
  // The answer is written from the log in pieces, never held whole.
  CHECK(daemon.use().rss_bytes < rss + (64u << 20));
}

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

TEST_CASE("LI-08: one large write, tiny ones and stderr meet the output limit alike") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  for (const auto* program :
       {"os.write(1, b'x' * 2000000)", "[os.write(1, b'x') for _ in range(1200000)]",
        "os.write(2, b'x' * 2000000)"}) {
    INFO(program);
    const json::array argv{"python3", "-c", "import os; " + std::string{program}};
    const auto reply = run_in(client, id, {{"argv", argv}, {"max_output", 1000000}});
    CHECK(reply.at("output_limit") == json::value(true));
    CHECK(reply.at("oom") == json::value(false));
    CHECK((reply.text("stdout") + reply.text("stderr") == std::string(1000000, 'x')));
    const auto record = client.get("/v1/sandboxes/" + id + "/processes/" + reply.text("id"));
    CHECK(record.json().at("certificate").at("reason") == json::value("output_limit"));
  }
}
