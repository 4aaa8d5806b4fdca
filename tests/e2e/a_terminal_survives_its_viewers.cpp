#include <catch2/catch.hpp>

#include <chrono>
#include <thread>

#include "e2e/terminal.h"

using namespace talon::test;
namespace json = boost::json;

TEST_CASE("PT-02: a flood that is read slowly neither delays an interrupt nor grows the daemon") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  auto socket = open_shell(client, id);
  REQUIRE(socket.until_output(Seconds(10), kPrompt));
  REQUIRE(socket.input("yes\r"));
  const auto before = daemon.use().rss_bytes;
  std::size_t seen = 0;
  const auto read_slowly = [&](Seconds time, const std::function<bool()>& done) {
    const auto until = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < until && !done()) {
      socket.output.clear();
      if (!socket.next(Seconds(1))) {
        break;
      }
      seen += socket.output.size();
      std::this_thread::sleep_for(Seconds(static_cast<double>(socket.output.size()) / 100e3));
    }
    return done();
  };
  read_slowly(Seconds(5), [] { return false; });
  CHECK(seen > 200'000);
  REQUIRE(socket.input("\x03"));
  const std::size_t at_key = seen;
  const bool back =
      read_slowly(Seconds(20), [&] { return socket.output.find(kPrompt) != std::string::npos; });
  CHECK(back);
  // At 100 kB/s two seconds are 200 kB: what was under way when the key was pressed.
  CHECK(seen - at_key < 200'000);
  CHECK(daemon.use().rss_bytes < before + (8u << 20));
}

TEST_CASE("PT-03: a terminal that is cut off twice shows each line once, in order") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto px = make_pty(
      client, id,
      {{"command", "i=0; while [ $i -lt 1000 ]; do i=$((i+1)); echo $i; sleep 0.002; done"}});
  std::string all;
  std::string cursor = "0";
  for (int part = 0; part < 3; ++part) {
    Socket socket(client, pty_path(id, px) + "?from=" + cursor);
    REQUIRE(socket.open());
    const std::size_t enough = part < 2 ? 700 : 1 << 20;
    socket.until(Seconds(60),
                 [&] { return socket.close_code != 0 || socket.output.size() > enough; });
    all += socket.output;
    cursor = socket.cursor;
  }
  std::string wanted;
  for (int i = 1; i <= 1000; ++i) {
    wanted += std::to_string(i) + "\r\n";
  }
  CHECK((all == wanted));
}

TEST_CASE("a flood is joined over many reconnects without a lost or doubled byte") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto px = make_pty(client, id, {{"command", "stty -opost; seq 1 3000000"}});
  std::string all;
  std::string cursor = "0";
  int parts = 0;
  for (bool over = false; !over && parts < 200; ++parts) {
    // As writer the client holds the flood, as reader it follows it.
    const std::string write = parts % 2 == 0 ? "&write=1&steal=1" : "";
    Socket socket(client, pty_path(id, px) + "?from=" + cursor + write);
    if (!socket.open()) {
      CHECK(socket.head().status == 409);  // it has ended: nobody can write any more
      continue;
    }
    socket.until(Seconds(30),
                 [&] { return socket.close_code != 0 || socket.output.size() > 300'000; });
    all += socket.output;
    cursor = socket.cursor;
    over = socket.count("end") != 0;
    CHECK(socket.count("lost") == 0);
  }
  CHECK(parts > 20);
  std::string wanted;
  for (int i = 1; i <= 3'000'000; ++i) {
    wanted += std::to_string(i) + "\n";
  }
  CHECK(all.size() == wanted.size());
  CHECK((all == wanted));
}

TEST_CASE("a terminal goes on when its daemon is killed, and is reconnected by cursor") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto px = make_pty(client, id,
                           {{"command",
                             "i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo $i; sleep 0.005; "
                             "done; read x; echo got $x"}});
  std::string all;
  Socket first(client, pty_path(id, px) + "?write=1");
  REQUIRE(first.until(Seconds(20), [&] { return first.output.size() > 200; }));
  all = first.output;
  daemon.kill_hard();
  daemon.start();
  Socket second(daemon.client(), pty_path(id, px) + "?write=1&from=" + first.cursor);
  REQUIRE(second.open());
  REQUIRE(second.input("it\r"));
  REQUIRE(second.until_end(Seconds(30)));
  all += second.output;
  std::string wanted;
  for (int i = 1; i <= 400; ++i) {
    wanted += std::to_string(i) + "\r\n";
  }
  std::erase(all, '\0');
  // What is typed is echoed where it came in between.
  const auto echo = all.find("it\r\n");
  REQUIRE(echo != std::string::npos);
  all.erase(echo, 4);
  CHECK(all == wanted + "got it\r\n");
  CHECK(second.last("exit").at("exit_code") == 0);
}

TEST_CASE("one writes and many read; who takes over is the writer, and the former is told") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  auto first = open_shell(client, id);
  REQUIRE(first.until_output(Seconds(10), kPrompt));
  const auto px = text_of(first.last("start"), "id");
  std::vector<Socket> readers;
  for (int i = 0; i < 20; ++i) {
    readers.emplace_back(client, pty_path(id, px));
    REQUIRE(readers.back().open());
  }
  CHECK(Socket(client, pty_path(id, px) + "?write=1").head().status == 409);
  CHECK(Socket(client, pty_path(id, px) + "?steal=1").head().status == 400);
  Socket second(client, pty_path(id, px) + "?write=1&steal=1");
  REQUIRE(second.open());
  REQUIRE(first.until(Seconds(10), [&] { return first.count("writer") == 1; }));
  CHECK(first.last("writer").at("write") == false);
  REQUIRE(first.input("echo wrong\r"));
  REQUIRE(first.until(Seconds(10), [&] { return first.count("error") == 1; }));
  REQUIRE(readers[0].input("echo wrong\r"));
  REQUIRE(readers[0].until(Seconds(10), [&] { return readers[0].count("error") == 1; }));
  REQUIRE(second.input("echo $((40+2)); exit\r"));
  REQUIRE(second.until_end(Seconds(10)));
  REQUIRE(first.until_end(Seconds(10)));
  CHECK(second.output == first.output);
  CHECK(second.output.find("42\r\n") != std::string::npos);
  CHECK(second.output.find("wrong") == std::string::npos);
  for (Socket& reader : readers) {
    REQUIRE(reader.until_end(Seconds(10)));
    CHECK(reader.output == second.output);
    CHECK(reader.count("end") == 1);
  }
  // The right to write goes with its holder.
  auto third = open_shell(client, id);
  const auto other = text_of(
      (third.until(Seconds(10), [&] { return third.count("start") == 1; }), third.last("start")),
      "id");
  third.connection().close();
  const bool free = eventually(
      Seconds(10), [&] { return Socket(client, pty_path(id, other) + "?write=1").open(); });
  CHECK(free);
}
