#include <catch2/catch.hpp>

#include <thread>

#include "e2e/terminal.h"

using namespace talon::test;
namespace json = boost::json;

namespace {

// Sends while it reads, as a program with two threads does.
void send_all(Socket& socket, std::string_view bytes) {
  for (std::size_t at = 0; at < bytes.size(); at += 20'000) {
    socket.input(bytes.substr(at, 20'000));
    socket.until(Seconds(0.001), [] { return false; });
  }
}

}  // namespace

// Input that fills every buffer on its way stands before the answers to pings; output that waits
// for these answers, and a program that waits for its output to be taken, must not wait for ever.
TEST_CASE("a megabyte pasted into a terminal comes back whole") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto px =
      make_pty(client, id, {{"command", "stty raw -echo; echo go; exec head -c 1000000"}});
  Socket socket(client, pty_path(id, px) + "?write=1");
  REQUIRE(socket.until_output(Seconds(10), "go\n"));
  std::string text;
  for (int i = 0; text.size() < 1'000'000; ++i) {
    text += std::to_string(i) + "\n";
  }
  text.resize(1'000'000);
  send_all(socket, text);
  REQUIRE(socket.until_end(Seconds(60)));
  CHECK((socket.output.substr(socket.output.find("go\n") + 3) == text));
}

TEST_CASE("output and signals pass while a process does not read its input") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto px = spawn_in(client, id,
                           json::object{{"command",
                                         "trap 'echo int; exit 5' INT; seq 1 300000; while "
                                         ":; do sleep 0.05; done"},
                                        {"stdin", true}});
  Socket socket(client, "/v1/sandboxes/" + id + "/processes/" + px + "/attach");
  REQUIRE(socket.open());
  send_all(socket, std::string(200'000, 'x'));
  REQUIRE(socket.until_output(Seconds(20), "300000\n"));
  REQUIRE(socket.control({{"type", "signal"}, {"signal", "INT"}}));
  REQUIRE(socket.until_end(Seconds(20)));
  CHECK(socket.output.ends_with("int\n"));
  CHECK(socket.last("exit").at("exit_code") == 5);
}

TEST_CASE("what a client typed before it left arrives") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto px = spawn_in(client, id, json::object{{"command", "wc -c"}, {"stdin", true}});
  {
    Socket socket(client, "/v1/sandboxes/" + id + "/processes/" + px + "/attach");
    REQUIRE(socket.open());
    REQUIRE(socket.input(std::string(150'000, 'x')));
    REQUIRE(socket.control({{"type", "close_stdin"}}));
    REQUIRE(socket.send_raw(ws_frame(8, "\x03\xe8")));
    REQUIRE(socket.until_end(Seconds(10)));  // else the kernel drops what was not read yet
  }
  REQUIRE(wait_exec(client, id, px, Seconds(20)).text("state") == "exited");
  const auto logs = client.get("/v1/sandboxes/" + id + "/processes/" + px + "/logs");
  CHECK(logs.body == "150000\n");
}

TEST_CASE("a hundred viewers cost descriptors only while they look") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto px = spawn_in(client, id, json::object{{"command", "seq 1 20000; exec sleep 1000"}});
  const auto before = daemon.use();
  {
    std::vector<Socket> viewers;
    for (int i = 0; i < 100; ++i) {
      viewers.emplace_back(client, "/v1/sandboxes/" + id + "/processes/" + px + "/attach");
      REQUIRE(viewers.back().open());
    }
    for (Socket& viewer : viewers) {
      REQUIRE(viewer.until_output(Seconds(30), "\n20000\n"));
    }
    CHECK(daemon.use().rss_bytes < before.rss_bytes + (48u << 20));
  }
  const bool back = eventually(Seconds(20), [&] { return daemon.use().fds <= before.fds + 2; });
  CHECK(back);
}
