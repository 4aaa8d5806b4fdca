#include <fcntl.h>
#include <unistd.h>
#include <catch2/catch.hpp>
#include <thread>

#include "run_support.h"

using namespace talon::test;

namespace {

// Every byte value, in an order that no translation keeps.
std::string pattern(std::size_t size) {
  std::string bytes(size, '\0');
  std::uint32_t state = 12345;
  for (char& c : bytes) {
    state = state * 1664525U + 1013904223U;
    c = static_cast<char>(state >> 24);
  }
  return bytes;
}

}  // namespace

TEST_CASE("talond run passes stdin and both outputs on byte for byte") {
  const RunHome home;
  const auto both = home.run({"--", "sh", "-c", "printf 'a\\000b\\377'; printf 'e\\001' >&2"});
  CHECK(both.out == std::string("a\0b\377", 4));
  CHECK(both.err == "e\001");

  const std::string some = pattern(60'000);
  CHECK(home.run({"--", "cat"}, some).out == some);
  CHECK(home.run({"--", "sh", "-c", "cat >&2"}, some).err == some);
  CHECK(home.run({"--", "cat"}).out.empty());
  CHECK(home.run({"--", "wc", "-c"}, "12345").out == "5\n");
  CHECK(home.clean());
}

TEST_CASE("talond run passes twenty megabytes through a command unchanged") {
  const RunHome home;
  const std::string input = pattern(20 << 20);
  RunProcess process{home.args({"--", "cat"}), false};
  std::thread feeder{[&] {
    process.write(input);
    process.close_stdin();
  }};
  const auto result = process.finish(Seconds(120));
  feeder.join();
  CHECK(result.code == 0);
  CHECK(result.out.size() == input.size());
  CHECK(result.out == input);
}

TEST_CASE("many small pieces of stdin behind a full pipe all arrive") {
  const RunHome home;
  RunProcess process{home.args({"--", "sh", "-c", "echo up; sleep 2; wc -c"}), false};
  REQUIRE(process.wait_for("up\n", Seconds(60)));
  REQUIRE(process.write(std::string(65536, 'a')));  // what the command's pipe holds (pipe(7))
  for (int i = 0; i < 40; ++i) {
    nap(Seconds(0.02));  // so that each is read and sent on its own
    REQUIRE(process.write("b"));
  }
  process.close_stdin();
  const auto result = process.finish(Seconds(60));
  CHECK(result.code == 0);
  CHECK(result.out == "up\n65576\n");
}

TEST_CASE("a command that does not read its stdin does not hold talond run up") {
  const RunHome home;
  RunProcess process{home.args({"--", "true"}), false};
  CHECK(process.finish(Seconds(60)).code == 0);  // our end of stdin is still open
}

TEST_CASE("a reader that comes late gets everything") {
  const RunHome home;
  RunProcess process{home.args({"--", "sh", "-c", "seq 1 400000; echo done >&2"}), false};
  process.close_stdin();
  nap(Seconds(1));  // the pipe is full and the command waits or is ahead
  const auto result = process.finish(Seconds(120));
  CHECK(result.code == 0);
  CHECK(result.err == "done\n");
  CHECK(std::ranges::count(result.out, '\n') == 400'000);
  CHECK(result.out.ends_with("\n400000\n"));
}

TEST_CASE("a command far faster than its reader is held back and loses nothing") {
  const RunHome home;
  // More than the log keeps: without back-pressure the oldest bytes would be gone.
  RunProcess process{home.args({"--", "sh", "-c", "head -c 400000000 /dev/zero; echo done >&2"}),
                     false};
  process.close_stdin();
  nap(Seconds(3));
  const auto result = process.finish(Seconds(280));
  CHECK(result.code == 0);
  CHECK(result.err == "done\n");
  CHECK(result.out.size() == 400'000'000);
}

TEST_CASE("a command whose reader went away ends by SIGPIPE, as in a pipe") {
  const RunHome home;
  RunProcess process{home.args({"--", "yes"}), false};
  REQUIRE(process.wait_for("y\n", Seconds(60)));
  process.close_stdout();
  CHECK(process.finish(Seconds(60)).code == 128 + 13);
  CHECK(home.clean());
}

TEST_CASE("output that cannot be written is a failure of talond run, not silence") {
  const RunHome home;
  // The shell's own redirection: talond's stdout is a device that is always full.
  std::string line;
  for (const auto& arg : home.args({"--", "echo", "hello"})) {
    line += arg + " ";
  }
  RunProcess process{{"/bin/sh", "-c", line + "> /dev/full"}, false};
  const auto result = process.finish(Seconds(60));
  CHECK(result.code == 125);
  CHECK(result.err ==
        "talond: the command's output could not be written: "
        "No space left on device\n");
  CHECK(home.clean());
}

TEST_CASE("talond run works without an open stdin") {
  const RunHome home;
  std::string line;
  for (const auto& arg : home.args({"--", "wc", "-c"})) {
    line += arg + " ";
  }
  RunProcess process{{"/bin/sh", "-c", line + "<&-"}, false};
  const auto result = process.finish(Seconds(60));
  CHECK(result.code == 0);
  CHECK(result.out == "0\n");
  CHECK(home.clean());
}

TEST_CASE("what a background child writes after the command's end is not waited for") {
  const RunHome home;
  const auto result = home.run({"--", "sh", "-c", "(sleep 600; echo late) & echo now"});
  CHECK(result.code == 0);
  CHECK(result.out == "now\n");
  CHECK(home.clean());
}
