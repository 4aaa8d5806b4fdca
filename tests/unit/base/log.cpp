#include "base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "base/fd.h"

using namespace talon;

TEST_CASE("JSON strings escape what JSON and terminals need, and keep UTF-8") {
  const auto json = [](std::string_view text) {
    std::string out;
    append_json_string(out, text);
    return out;
  };
  CHECK(json("") == "\"\"");
  CHECK(json("a\"b\\c") == "\"a\\\"b\\\\c\"");
  CHECK(json("a\nb\tc\rd") == "\"a\\nb\\tc\\rd\"");
  CHECK(json(std::string_view{"\0\x1b\x7f", 3}) == "\"\\u0000\\u001b\\u007f\"");
  CHECK(json("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80") == "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"");
  CHECK(json("\xff") == "\"\\u00ff\"");
  CHECK(json("\xc3") == "\"\\u00c3\"");                                   // cut short
  CHECK(json("\xc0\xaf") == "\"\\u00c0\\u00af\"");                        // overlong
  CHECK(json("\xed\xa0\x80") == "\"\\u00ed\\u00a0\\u0080\"");             // surrogate
  CHECK(json("\xf4\x90\x80\x80") == "\"\\u00f4\\u0090\\u0080\\u0080\"");  // above U+10FFFF
}

TEST_CASE("a log line is one JSON object and respects the level") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
  const UniqueFd reader{ends[0]};
  UniqueFd writer{ends[1]};
  UniqueFd saved{::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)};
  ::dup2(writer.get(), STDERR_FILENO);
  set_log_level(LogLevel::info);
  log_debug("hidden");
  log_warn("disk.low", {{"free", 12345}, {"why", "a\nb"}, {"ok", false}, {"ratio", 0.5}});
  ::dup2(saved.get(), STDERR_FILENO);
  std::string text(4096, '\0');
  const ssize_t n = ::read(reader.get(), text.data(), text.size());
  REQUIRE(n > 0);
  text.resize(static_cast<std::size_t>(n));
  CHECK(text.starts_with("{\"at\":\"2"));
  CHECK(text.ends_with(
      "Z\",\"level\":\"warn\",\"event\":\"disk.low\",\"free\":12345,\"why\":\"a\\nb\","
      "\"ok\":false,\"ratio\":0.5}\n"));
  CHECK(text.find("hidden") == std::string::npos);
}
