#include "client/show.h"

#include <catch2/catch.hpp>

#include "client/detach.h"
#include "client/logs.h"

using namespace talon;
using namespace talon::client;

TEST_CASE("Columns are as wide as what stands in them") {
  CHECK(table({{"ID", "NAME"}, {"sb1", "x"}}) == "ID   NAME\nsb1  x\n");
  CHECK(table({{"A", "B"}, {"\xc3\xa4\xc3\xa4", "x"}}) == "A   B\n\xc3\xa4\xc3\xa4  x\n");
  CHECK(table({}).empty());
}

TEST_CASE("Ages are short") {
  constexpr std::int64_t kNow = 1'800'000'000'000;  // 2027-01-15T08:00:00Z
  CHECK(age("2027-01-15T07:59:57.123Z", kNow) == "3s");
  CHECK(age("2027-01-15T07:58:01.000Z", kNow) == "119s");
  CHECK(age("2027-01-15T07:55:00.000Z", kNow) == "5m");
  CHECK(age("2027-01-15T05:00:00.000Z", kNow) == "3h");
  CHECK(age("2027-01-06T08:00:00.000Z", kNow) == "9d");
  CHECK(age("2027-01-15T08:00:05.000Z", kNow) == "0s");  // clocks differ
  CHECK(age("", kNow) == "-");
  CHECK(age("yesterday", kNow) == "-");
}

TEST_CASE("Processes are shown with how they ended, and cannot steer the terminal") {
  const auto shown = process_table(json::parse(R"([
    {"id":"px1","state":"exited","command":"a\u001b[31m\nb","started_at":"",
     "result":{"exit_code":3,"signal":null,"oom":false,"timed_out":false}},
    {"id":"px2","state":"exited","argv":["sleep","1 2"],"started_at":"",
     "result":{"exit_code":null,"signal":9,"oom":false,"timed_out":true}},
    {"id":"px3","state":"running","argv":["x"],"started_at":"","result":null}])")
                                       .as_array());
  CHECK(shown ==
        "ID   STATE    RESULT     AGE  COMMAND\n"
        "px1  exited   exit 3     -    a?[31m?b\n"
        "px2  exited   timed out  -    sleep 1 2\n"
        "px3  running  -          -    x\n");
}

TEST_CASE("Details are one value a line") {
  CHECK(details(json::parse(R"({"id":"sb1","name":null,"user":"","labels":{},"env":{"A":"b"},
    "limits":{"memory":{"value":0,"enforced":false,"asked":false},
              "pids":{"value":64,"enforced":false,"asked":true},
              "cpu":{"value":1.5,"enforced":true,"asked":true}}})")) ==
        "id             sb1\n"
        "name           -\n"
        "user           -\n"
        "labels         -\n"
        "env.A          b\n"
        "limits.memory  none\n"
        "limits.pids    64 (not enforced)\n"
        "limits.cpu     1.5\n");
}

TEST_CASE("The keys that detach are held back, other keys are not") {
  auto keys = *DetachKeys::parse("ctrl-p,ctrl-q");
  CHECK(keys.feed("abc") == "abc");
  CHECK(keys.feed("\x10") == "");
  CHECK(keys.holding());
  CHECK(keys.feed("x") == "\x10x");
  CHECK_FALSE(keys.holding());
  CHECK(keys.feed("\x10\x10") == "\x10");
  CHECK(keys.release() == "\x10");
  CHECK_FALSE(keys.done());
  CHECK(keys.feed("a\x10\x10\x11not sent") == "a\x10");
  CHECK(keys.done());
  CHECK_FALSE(keys.holding());

  auto other = *DetachKeys::parse("ctrl-a,d");
  CHECK(other.feed("\x10\x11\x01") == "\x10\x11");
  CHECK(other.feed("d") == "");
  CHECK(other.done());
  auto none = *DetachKeys::parse("none");
  CHECK(none.feed("\x10\x11") == "\x10\x11");
  CHECK_FALSE(none.done());
  for (const char* bad : {"", "ctrl-", "ctrl-P", "ctrl-pp", "f1", "a,,b", "a,", " "}) {
    INFO(bad);
    CHECK_FALSE(DetachKeys::parse(bad));
  }
}

TEST_CASE("Events of a log are bytes again") {
  const auto text = parse_event(R"({"event":"stdout","cursor":"3.0","text":"a\u0000\n"})");
  REQUIRE(text);
  CHECK(text->kind == LogEvent::Kind::out);
  CHECK(text->cursor == "3.0");
  CHECK(text->bytes == std::string("a\0\n", 3));
  CHECK(parse_event(R"({"event":"stderr","cursor":"1.1","base64":"/w=="})")->bytes == "\xff");
  CHECK(parse_event(R"({"event":"tty","cursor":"1.1","base64":"/wA="})")->bytes ==
        std::string("\xff\0", 2));
  CHECK(parse_event(R"({"event":"tty","cursor":"1.1","base64":"AAAA"})")->bytes ==
        std::string(3, '\0'));
  CHECK(parse_event(R"({"event":"lost","cursor":"9.0","bytes":12345})")->lost == 12345);
  CHECK(parse_event(R"({"event":"exit","cursor":"9.0"})")->kind == LogEvent::Kind::exit);
  CHECK(parse_event(R"({"event":"later","cursor":"9.0"})")->kind == LogEvent::Kind::other);
  CHECK_FALSE(parse_event("nonsense"));
  CHECK_FALSE(parse_event("[]"));
  CHECK_FALSE(parse_event(R"({"event":"stdout","base64":"*"})"));
}
