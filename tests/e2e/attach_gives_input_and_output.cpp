#include <catch2/catch.hpp>

#include "support/daemon.h"
#include "support/ws_client.h"

using namespace talon::test;
namespace json = boost::json;

namespace {

std::string attach_path(const std::string& id, const std::string& px) {
  return "/v1/sandboxes/" + id + "/processes/" + px + "/attach";
}

}  // namespace

TEST_CASE("what is typed into cat comes back, and closing its input ends it, once") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto px = spawn_in(client, id, json::object{{"argv", {"cat"}}, {"stdin", true}});
  Socket socket(client, attach_path(id, px), {{"Sec-WebSocket-Protocol", "a, talon.v1"}});
  REQUIRE(socket.open());
  CHECK(socket.head().header("sec-websocket-accept") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
  CHECK(socket.head().header("sec-websocket-protocol") == "talon.v1");
  REQUIRE(socket.input("hello\n"));
  REQUIRE(socket.until_output(Seconds(10), "hello\n"));
  REQUIRE(socket.control({{"type", "close_stdin"}}));
  REQUIRE(socket.until_end(Seconds(10)));
  CHECK(socket.close_code == 1000);
  CHECK(socket.output == "hello\n");
  CHECK(socket.count("start") == 1);
  CHECK(socket.count("exit") == 1);
  CHECK(socket.count("end") == 1);
  CHECK(text_of(socket.events.back(), "event") == "end");
  CHECK(socket.last("exit").at("exit_code") == 0);
  CHECK(text_of(socket.last("start"), "id") == px);
  CHECK(socket.connection().closed_by_peer(Seconds(10)));
}

TEST_CASE("sixteen megabytes go in and come back byte by byte, whoever is slow") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto px = spawn_in(client, id, json::object{{"argv", {"cat"}}, {"stdin", true}});
  std::string sent;
  for (std::uint32_t i = 0; sent.size() < 16u << 20; ++i) {
    sent += std::to_string(i * 2654435761u) + "\n";
  }
  Socket writer(client, attach_path(id, px));
  Socket reader(client, attach_path(id, px));
  REQUIRE(writer.open());
  REQUIRE(reader.open());
  bool gone = false;
  for (std::size_t at = 0; at < sent.size() && !gone; at += 100'000) {
    gone = !writer.input(std::string_view(sent).substr(at, 100'000));
    writer.until(Seconds(0.001), [] { return false; });
  }
  REQUIRE_FALSE(gone);
  REQUIRE(writer.control({{"type", "close_stdin"}}));
  REQUIRE(reader.until_end(Seconds(60)));
  REQUIRE(writer.until_end(Seconds(60)));
  CHECK((reader.output == sent));
  CHECK((writer.output == sent));
}

TEST_CASE("an attach from a cursor goes on where another one stopped") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto px = spawn_in(
      client, id,
      json::object{{"command", "i=0; while [ $i -lt 3000 ]; do echo $i; i=$((i+1)); done"}});
  std::string all;
  std::string cursor = "0";
  for (int part = 0; part < 50; ++part) {
    Socket socket(client, attach_path(id, px) + "?from=" + cursor);
    REQUIRE(socket.open());
    const bool ended = socket.until(
        Seconds(10), [&] { return socket.close_code != 0 || socket.output.size() > 400; });
    REQUIRE(ended);
    all += socket.output;
    cursor = socket.cursor;
    if (socket.close_code != 0) {
      break;
    }
  }
  std::string wanted;
  for (int i = 0; i < 3000; ++i) {
    wanted += std::to_string(i) + "\n";
  }
  CHECK((all == wanted));
}

TEST_CASE("a signal by WebSocket reaches the process; an unknown message is answered") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto px = spawn_in(client, id, json::object{{"command", "echo up; exec sleep 1000"}});
  Socket socket(client, attach_path(id, px));
  REQUIRE(socket.until_output(Seconds(10), "up\n"));
  REQUIRE(socket.control({{"type", "dance"}}));
  REQUIRE(socket.until(Seconds(10), [&] { return socket.count("error") == 1; }));
  CHECK(text_of(socket.last("error"), "code") == "invalid_request");
  REQUIRE(socket.input("to nobody"));
  REQUIRE(socket.until(Seconds(10), [&] { return socket.count("error") == 2; }));
  CHECK(text_of(socket.last("error"), "state") == "stdin_closed");
  REQUIRE(socket.control({{"type", "signal"}, {"signal", "TERM"}}));
  REQUIRE(socket.until_end(Seconds(10)));
  CHECK(socket.last("exit").at("signal") == 15);
}

TEST_CASE("a WebSocket is refused before it begins where it may not be") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto px = spawn_in(client, id, json::object{{"argv", {"cat"}}, {"stdin", true}});
  const auto path = attach_path(id, px);
  const auto plain = client.get(path);
  CHECK(plain.status == 426);
  CHECK(plain.text("code") == "upgrade_required");
  CHECK(plain.header("sec-websocket-version") == "13");
  for (const char* origin : {"http://evil.example", "null", "http://test.evil.example"}) {
    INFO(origin);
    CHECK(Socket(client, path, {{"Origin", origin}}).head().status == 403);
  }
  CHECK(Socket(client, path, {{"Origin", "http://test"}}).open());  // the client's Host
  CHECK(Socket(Client(daemon.tcp(), "tk_wrong"), path).head().status == 401);
  CHECK(Socket(client, attach_path(id, "px00000000000000000000")).head().status == 404);
  CHECK(Socket(client, path + "?from=x").head().status == 400);
  CHECK(Socket(client, "/v1/sandboxes/" + id + "/pty/" + px).head().status == 404);
  const auto made = client.post("/v1/api-keys", json::object{{"role", "viewer"}});
  Socket viewer(Client(daemon.tcp(), made.text("key")), path);
  REQUIRE(viewer.open());
  REQUIRE(viewer.input("x"));
  REQUIRE(viewer.until(Seconds(10), [&] { return viewer.count("error") == 1; }));
  CHECK(text_of(viewer.last("error"), "code") == "forbidden");
  REQUIRE(client.del("/v1/api-keys/" + made.text("id")).status == 204);
  spawn_in(client, id, json::object{{"command", "echo wake"}});
  REQUIRE(viewer.until_end(Seconds(30)));
  CHECK(viewer.close_code == 1008);
  CHECK(text_of(viewer.last("error"), "code") == "unauthenticated");
  CHECK(viewer.count("end") == 0);
}
