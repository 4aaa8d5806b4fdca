#include <catch2/catch.hpp>

#include "e2e/terminal.h"

using namespace talon::test;
namespace json = boost::json;

TEST_CASE("PT-07: a recording has every resize at its time, also while the terminal runs") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  auto socket = open_shell(client, id, {{"cols", 80}, {"rows", 24}});
  REQUIRE(socket.until_output(Seconds(10), kPrompt));
  const auto px = text_of(socket.last("start"), "id");
  REQUIRE(socket.input("echo fir''st\r"));
  REQUIRE(socket.until_output(Seconds(10), "first\r\n"));
  REQUIRE(socket.control({{"type", "resize"}, {"cols", 120}, {"rows", 40}}));
  REQUIRE(socket.until(Seconds(10), [&] { return socket.count("resize") == 1; }));
  REQUIRE(socket.input("echo sec''ond\r"));
  REQUIRE(socket.until_output(Seconds(10), "second\r\n"));
  REQUIRE(socket.until(Seconds(10), [&] { return socket.output.ends_with(kPrompt); }));
  const auto cast = client.get(pty_path(id, px) + "/recording");
  REQUIRE(cast.status == 200);
  CHECK(cast.header("content-type") == "application/x-asciicast");
  const auto head = json::parse(cast.body.substr(0, cast.body.find('\n')));
  CHECK(head.at("width") == 80);
  CHECK(head.at("height") == 24);
  int phase = 0;
  double last = 0;
  for (const CastEvent& event : cast_events(cast.body)) {
    CHECK(event.time >= last);
    last = event.time;
    if (event.code == 'o' && event.data.find("first") != std::string::npos && phase == 0) {
      phase = 1;
    } else if (event.code == 'r') {
      CHECK(phase == 1);
      CHECK(event.data == "120x40");
      phase = 2;
    } else if (event.code == 'o' && event.data.find("second") != std::string::npos && phase == 2) {
      phase = 3;
    }
    CHECK(event.code != 'i');
  }
  CHECK(phase == 3);
  CHECK(last < 60);
  CHECK(cast_output(cast.body) == socket.output);
  // A later client learns the size it finds.
  Socket late(client, pty_path(id, px) + "?from=" + socket.cursor);
  REQUIRE(late.until(Seconds(10), [&] { return late.count("start") == 1; }));
  CHECK(late.last("start").at("cols") == 120);
  CHECK(late.last("start").at("rows") == 40);
}

TEST_CASE("what is typed is recorded only when that was asked for") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const json::object body{{"command", "stty -echo; echo go; read a; read b; echo done"},
                          {"record", "input"}};
  const auto px = make_pty(client, id, body);
  Socket socket(client, pty_path(id, px) + "?write=1");
  REQUIRE(socket.until_output(Seconds(10), "go\r\n"));
  REQUIRE(socket.input("pass\xc3"));
  REQUIRE(socket.input("\xa9\r"));
  REQUIRE(socket.input("two\r"));
  REQUIRE(socket.until_end(Seconds(10)));
  CHECK(socket.output == "go\r\ndone\r\n");
  std::string typed;
  for (const CastEvent& event : cast_events(client.get(pty_path(id, px) + "/recording").body)) {
    typed += event.code == 'i' ? event.data : "";
  }
  CHECK(typed == "pass\u00e9\rtwo\r");
  // A viewer of output is not shown input.
  const auto logs = client.request("GET", "/v1/sandboxes/" + id + "/processes/" + px + "/logs");
  CHECK(logs.body == "go\r\ndone\r\n");
}

TEST_CASE("a terminal that is not recorded keeps nothing after its end") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto px =
      make_pty(client, id,
               {{"command", "echo sec''ret; seq 1 400000; read x; echo bye"}, {"record", false}});
  CHECK(client.get(pty_path(id, px) + "/recording").status == 403);
  Socket socket(client, pty_path(id, px) + "?write=1");
  REQUIRE(socket.until_output(Seconds(20), "400000\r\n"));

  REQUIRE(socket.input("\r"));
  REQUIRE(socket.until_end(Seconds(10)));
  CHECK(socket.count("exit") == 1);
  CHECK(socket.count("end") == 1);
  const auto path = "/v1/sandboxes/" + id + "/processes/" + px;
  CHECK(eventually(Seconds(10), [&] { return client.get(path + "/logs").status == 404; }));
  const auto row = client.get(path);
  CHECK(row.at("result.exit_code") == 0);
  CHECK(row.body.find("secret") == std::string::npos);
  CHECK(row.body.find("bye\\r") == std::string::npos);
}

TEST_CASE("after a drop a terminal and its recording go on at a clean boundary") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto px = make_pty(client, id,
                           {{"command",
                             "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); echo "
                             "\"\033[31m\u2500\u2500\u2500\u2500\u2500 line $i\033[0m\"; done"},
                            {"cols", 91},
                            {"rows", 17},
                            {"log", {{"cap", 1 << 20}}}});
  REQUIRE(wait_exec(client, id, px, Seconds(60)).text("state") == "exited");
  Socket socket(client, pty_path(id, px));
  REQUIRE(socket.until_end(Seconds(20)));
  CHECK(socket.count("lost") == 1);
  CHECK(socket.last("lost").at("cols") == 91);
  CHECK(socket.last("lost").at("rows") == 17);
  const std::uint64_t lost = socket.last("lost").at("bytes").to_number<std::uint64_t>();
  CHECK(socket.output.starts_with("\033[31m\u2500\u2500\u2500\u2500\u2500 line "));
  const auto result = client.get("/v1/sandboxes/" + id + "/processes/" + px);
  CHECK(result.at("result.usage.stdout_bytes").to_number<std::uint64_t>() ==
        lost + socket.output.size());
  const auto cast = client.get(pty_path(id, px) + "/recording");
  const auto events = cast_events(cast.body);
  REQUIRE(events.size() > 3);
  CHECK(events[0].data == "91x17");
  CHECK(events[1].data == "\033c");
  CHECK(events[2].data.starts_with("\033[31m\u2500\u2500\u2500\u2500\u2500 line "));
}
