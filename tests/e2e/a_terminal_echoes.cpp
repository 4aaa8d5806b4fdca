#include <catch2/catch.hpp>

#include "e2e/terminal.h"

using namespace talon::test;
namespace json = boost::json;

TEST_CASE("a terminal echoes what is typed and its shell answers") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  auto socket = open_shell(client, id, {{"cols", 100}, {"rows", 30}});
  REQUIRE(socket.until_output(Seconds(10), kPrompt));
  CHECK(socket.last("start").at("cols") == 100);
  CHECK(socket.last("start").at("write") == true);
  REQUIRE(socket.input("echo $TERM $((6*7)); stty size; exit 3\r"));
  REQUIRE(socket.until_end(Seconds(10)));
  INFO(socket.output);
  CHECK(socket.output.find("xterm-256color 42\r\n30 100\r\n") != std::string::npos);
  CHECK(socket.last("exit").at("exit_code") == 3);
  CHECK(socket.count("end") == 1);
}

TEST_CASE("PT-01: the first program of a terminal sees its size, and an early resize counts") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  int wrong = 0;
  for (int i = 0; i < 100; ++i) {
    const auto px = make_pty(client, id, {{"command", "stty size"}, {"cols", 132}, {"rows", 43}});
    Socket socket(client, pty_path(id, px));
    socket.until_end(Seconds(10));
    wrong += socket.output != "43 132\r\n";
  }
  CHECK(wrong == 0);
  // Waits for the signal as a program of a real terminal would.
  const auto px =
      make_pty(client, id,
               {{"command", "trap 'stty size; exit 0' WINCH; while :; do sleep 0.01; done"},
                {"cols", 80},
                {"rows", 24}});
  CHECK(
      client.post(pty_path(id, px) + "/resize", json::object{{"cols", 90}, {"rows", 30}}).status ==
      204);
  Socket socket(client, pty_path(id, px));
  // The shell may not have set its trap yet: then it has the new size already, and hears of more.
  int rows = 30;
  const bool ended = eventually(Seconds(20), [&] {
    ++rows;
    client.post(pty_path(id, px) + "/resize", json::object{{"cols", 90}, {"rows", rows}});
    return socket.until(Seconds(0.2), [&] { return socket.close_code != 0; });
  });
  REQUIRE(ended);
  INFO(socket.output);
  CHECK(socket.output.find(" 90\r\n") != std::string::npos);
  CHECK(socket.count("resize") >= 1);
  CHECK(client.post(pty_path(id, px) + "/resize", json::object{{"cols", 1}, {"rows", 1}}).status ==
        409);
}

TEST_CASE("PT-06: box characters pass a terminal whole") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto px = make_pty(
      client, id,
      {{"argv", {"python3", "-c", "for i in range(200): print('\u2500\u2502\u250c\u253c' * 50)"}},
       {"cols", 200}});
  Socket socket(client, pty_path(id, px));
  REQUIRE(socket.until_end(Seconds(20)));
  std::string row;
  for (int i = 0; i < 50; ++i) {
    row += "\u2500\u2502\u250c\u253c";
  }
  std::string wanted;
  for (int i = 0; i < 200; ++i) {
    wanted += row + "\r\n";
  }
  CHECK((socket.output == wanted));
  const auto cast = client.get(pty_path(id, px) + "/recording");
  CHECK(cast.status == 200);
  CHECK(cast.body.find("\xef\xbf\xbd") == std::string::npos);
  CHECK((cast_output(cast.body) == wanted));
}

TEST_CASE("PT-09: a shell's exit ends its terminal at once though its jobs would go on") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  auto socket = open_shell(client, id);
  REQUIRE(socket.until_output(Seconds(10), kPrompt));
  REQUIRE(socket.input("sleep 1000 & sleep 5 & exit\r"));
  REQUIRE(socket.until_end(Seconds(5)));
  CHECK(socket.last("exit").at("exit_code") == 0);
  // Reaped by init: nothing defunct stays (its jobs were hung up or live on as orphans).
  const auto ps =
      run_in(client, id, "for s in /proc/[0-9]*/stat; do read -r l < $s && echo \"$l\"; done");
  CHECK(ps.text("stdout").find(") Z ") == std::string::npos);
}

TEST_CASE("interrupt, end of file, stop and hang-up do at a terminal what they do") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  auto socket = open_shell(client, id);
  REQUIRE(socket.until_output(Seconds(10), kPrompt));
  socket.output.clear();
  // What comes before the program would be the shell's.
  REQUIRE(socket.input("echo run''ning; cat\r"));
  REQUIRE(socket.until_output(Seconds(10), "running\r\n"));
  REQUIRE(socket.input("abc\r\x04"));  // Ctrl-D at the beginning of a line
  REQUIRE(socket.until_output(Seconds(10), std::string("abc\r\nabc\r\n")));
  REQUIRE(socket.until_output(Seconds(10), kPrompt));
  socket.output.clear();
  REQUIRE(socket.input("sleep 1000\r"));
  REQUIRE(socket.until_output(Seconds(10), "sleep 1000\r\n"));
  // The key may come before the program: it interrupts the shell's line then, and is pressed again.
  const bool stopped = eventually(Seconds(20), [&] {
    socket.input("\x1a");
    return socket.until(Seconds(0.5),
                        [&] { return socket.output.find("Stopped") != std::string::npos; });
  });
  REQUIRE(stopped);
  socket.output.clear();
  REQUIRE(socket.input("fg\r"));
  REQUIRE(socket.until_output(Seconds(10), "sleep 1000\r\n"));
  const bool interrupted = eventually(Seconds(20), [&] {
    socket.input("\x03");
    return socket.until(Seconds(0.5),
                        [&] { return socket.output.find(kPrompt) != std::string::npos; });
  });
  REQUIRE(interrupted);
  socket.output.clear();
  REQUIRE(
      socket.input("exec sh -c 'trap \"echo hung up; exit 7\" HUP; echo s\"\"et; while :; do sleep "
                   "0.05; done'\r"));
  REQUIRE(socket.until_output(Seconds(10), "set\r\n"));
  REQUIRE(socket.control({{"type", "signal"}, {"signal", "HUP"}}));
  REQUIRE(socket.until_end(Seconds(10)));
  CHECK(socket.output.ends_with("hung up\r\n"));
  CHECK(socket.last("exit").at("exit_code") == 7);
}

TEST_CASE("DELETE hangs a terminal up: its shell ends without the grace running out") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  auto socket = open_shell(client, id);
  REQUIRE(socket.until_output(Seconds(10), kPrompt));
  const auto px = text_of(socket.last("start"), "id");
  const auto gone = client.del("/v1/sandboxes/" + id + "/processes/" + px + "?grace=60s");
  CHECK(gone.status == 204);
  CHECK(gone.seconds < 30);
  REQUIRE(socket.until_end(Seconds(10)));
  CHECK(socket.last("exit").at("signal") == 1);
}
