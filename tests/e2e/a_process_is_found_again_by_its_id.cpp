#include <catch2/catch.hpp>

#include <thread>

#include "e2e/terminal.h"

using namespace talon::test;
namespace json = boost::json;

// The case waits three minutes; nothing here depends on time but the daemon's own memory, so that
// is what is taken away instead.
TEST_CASE(
    "EX-21: a ten-minute printer that its client left is found again after the daemon's death") {
  Daemon daemon;
  auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto px = spawn_in(
      client, id,
      {{"command", "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); echo $i; sleep 0.01; done"}});
  const auto path = "/v1/sandboxes/" + id + "/processes/" + px;
  std::string all;
  std::string cursor = "0";
  {
    Socket first(client, path + "/attach");
    REQUIRE(first.open());
    REQUIRE(first.until(Seconds(20), [&] { return first.output.size() > 200; }));
    all = first.output;
    cursor = first.cursor;
  }
  daemon.kill_hard();
  daemon.start();
  client = daemon.client();
  const auto row = client.get(path);
  INFO(row.body);
  CHECK(row.status == 200);
  CHECK(row.text("state") == "running");
  Socket again(client, path + "/attach?from=" + cursor);
  REQUIRE(again.open());
  REQUIRE(again.until(Seconds(20), [&] { return again.output.size() > 1000; }));
  REQUIRE(client.post(path + "/signal", json::object{{"signal", "KILL"}, {"scope", "all"}}).status /
              100 ==
          2);
  REQUIRE(again.until_end(Seconds(20)));
  all += again.output;
  CHECK(again.count("lost") == 0);
  std::string wanted;
  for (int i = 1; wanted.size() < all.size(); ++i) {
    wanted += std::to_string(i) + "\n";
  }
  CHECK((all == wanted));
  CHECK(client.get(path + "/logs").body == wanted);
}

// What is typed while a command runs waits in the terminal, as at any terminal.
TEST_CASE("EX-25: a command that is typed or run while another one runs does not interrupt it") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  auto socket = open_shell(client, id);
  REQUIRE(socket.until_output(Seconds(10), kPrompt));
  // The sums keep what is printed apart from the echo of what is typed.
  REQUIRE(socket.input("echo A$((1+0)); sleep 1; echo A$((1+1)) code $?\r"));
  REQUIRE(socket.until_output(Seconds(10), "A1"));
  REQUIRE(socket.input("echo B$((1+2))\r"));

  std::thread long_run;
  Reply a;
  long_run = std::thread([&] { a = run_in(client, id, "echo A; sleep 1; echo still A"); });
  const auto b = run_in(client, id, "echo B");
  long_run.join();
  CHECK(b.text("stdout") == "B\n");
  CHECK(exit_code(a) == 0);
  CHECK(a.text("stdout") == "A\nstill A\n");
  CHECK(a.at("timed_out") == json::value(false));

  REQUIRE(socket.until_output(Seconds(20), "B3"));
  const auto ended = socket.output.find("A2 code 0");
  CHECK(ended != std::string::npos);
  CHECK(ended < socket.output.find("B3"));
  CHECK(socket.output.find("^C") == std::string::npos);
}
