#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <catch2/catch.hpp>

#include "run_support.h"

using namespace talon::test;

namespace {

void set_size(int terminal, unsigned short rows, unsigned short cols) {
  winsize size{};
  size.ws_row = rows;
  size.ws_col = cols;
  REQUIRE(::ioctl(terminal, TIOCSWINSZ, &size) == 0);
}

}  // namespace

TEST_CASE("talond run gives the command a terminal of the caller's size when it has one") {
  const RunHome home;
  // Echo is ours until talond makes the terminal raw: the text must not contain what we look for.
  RunProcess process{home.args({"--", "sh", "-c",
                                "stty size; test -t 0 && test -t 1 && test -t 2 && echo is-tty; "
                                "echo TERM=$TERM; trap 'stty size' WINCH; echo rea''dy; "
                                "while :; do read line && echo got $line && "
                                "test \"$line\" = end && exit 7; done"}),
                     true};
  set_size(process.terminal(), 31, 97);
  REQUIRE(process.wait_for("ready", Seconds(60)));
  // The size was set before or after talond looked; either way it is known inside now.
  CHECK(process.out().find("is-tty") != std::string::npos);
  CHECK(process.out().find("TERM=vt100") != std::string::npos);

  set_size(process.terminal(), 43, 117);
  process.signal(SIGWINCH);
  CHECK(process.wait_for("43 117", Seconds(60)));
  REQUIRE(process.write("hello\r"));
  CHECK(process.wait_for("got hello", Seconds(60)));
  REQUIRE(process.write("end\r"));
  CHECK(process.finish(Seconds(60)).code == 7);
  CHECK(home.clean());
}

TEST_CASE("a key that sends a signal does so inside, and the terminal is as before afterwards") {
  const RunHome home;
  RunProcess process{home.args({"--", "sh", "-c", "echo rea''dy; exec sleep 600"}), true};
  termios before{};
  REQUIRE(::tcgetattr(process.terminal(), &before) == 0);
  REQUIRE(process.wait_for("ready", Seconds(60)));
  termios raw{};
  REQUIRE(::tcgetattr(process.terminal(), &raw) == 0);
  CHECK((raw.c_lflag & (ICANON | ECHO | ISIG)) == 0);
  REQUIRE(process.write("\x03"));  // ^C
  CHECK(process.finish(Seconds(60)).code == 128 + SIGINT);
  termios after{};
  REQUIRE(::tcgetattr(process.terminal(), &after) == 0);
  CHECK(after.c_lflag == before.c_lflag);
  CHECK(after.c_iflag == before.c_iflag);
  CHECK(after.c_oflag == before.c_oflag);
}
