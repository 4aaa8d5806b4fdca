// What goes into a process and comes out of it is whole: characters, large input, last lines.
#include <catch2/catch.hpp>

#include <sstream>

#include "e2e/tsb_support.h"
#include "support/daemon.h"
#include "support/ws_client.h"

using namespace talon::test;
namespace json = boost::json;

namespace {

std::string process_path(const std::string& id, const std::string& px) {
  return "/v1/sandboxes/" + id + "/processes/" + px;
}

// A shell pipeline on this machine that ends in `tsb`, as a user would type it.
RunResult pipe_into_tsb(const Daemon& daemon, const std::string& source, const std::string& words,
                        Seconds deadline = Seconds(120)) {
  RunProcess shell{
      {"/bin/sh", "-c",
       source + " | TALON_RUN_DIR=" + daemon.run() + " " + Tsb::binary() + " " + words},
      false};
  return shell.finish(deadline);
}

// The texts of one stream in an NDJSON answer, joined; REQUIREs that each line is an event.
struct Events {
  std::string text;
  std::size_t count = 0;
  std::string base64;  // a space behind each
};
Events events_of(const std::string& ndjson, const std::string& name) {
  Events found;
  std::istringstream lines(ndjson);
  for (std::string line; std::getline(lines, line);) {
    boost::system::error_code bad;
    const auto value = json::parse(line, bad);
    REQUIRE_FALSE(bad);
    const auto& event = value.as_object();
    if (text_of(event, "event") == name) {
      ++found.count;
      found.text += text_of(event, "text");
      found.base64 += event.contains("base64") ? text_of(event, "base64") + " " : "";
    }
  }
  return found;
}

constexpr const char* kWater = "\xe6\xb0\xb4";

}  // namespace

TEST_CASE("EX-13: a character that is written byte by byte arrives as one") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto followed = [&](const std::string& px) {
    Reply head;
    auto stream = client.stream(process_path(id, px) + "/logs?follow=1", head,
                                {{"Accept", "application/x-ndjson"}});
    REQUIRE(head.status == 200);
    std::string ndjson;
    while (auto piece = stream.read_piece(Seconds(20))) {
      ndjson += *piece;
    }
    CHECK_FALSE(stream.failed());
    return ndjson;
  };
  // Each byte is a frame of its own in the log, and there to be followed before the next.
  for (const auto* name : {"stdout", "stderr"}) {
    const std::string to = std::string{name} == "stderr" ? " >&2" : "";
    const std::string command =
        "for b in 346 260 264; do printf \"\\\\$b\"" + to + "; sleep 0.1; done";
    INFO(command);
    const auto px = spawn_in(client, id, {{"command", command}});
    const auto events = events_of(followed(px), name);
    CHECK(events.text == kWater);
    CHECK(events.count == 1);
    CHECK(client.get(process_path(id, px) + "/logs").body == kWater);
    const auto ran = run_in(client, id, command);
    CHECK(ran.text(name) == kWater);
    CHECK(ran.text(std::string{name} + "_encoding") == "utf-8");
  }
  // On both in turns: whoever stops at any event and goes on from its cursor must lose nothing, so
  // the pieces come as they are, as base64; nothing is replaced.
  const auto px = spawn_in(
      client, id,
      {{"command",
        "for b in 346 260 264; do printf \"\\\\$b\"; printf \"\\\\$b\" >&2; sleep 0.1; done"}});
  const auto ndjson = followed(px);
  INFO(ndjson);
  CHECK(ndjson.find("\xef\xbf\xbd") == std::string::npos);
  CHECK(ndjson.find("ufffd") == std::string::npos);
  for (const auto* name : {"stdout", "stderr"}) {
    CHECK(events_of(ndjson, name).base64 == "5g== sA== tA== ");
    CHECK(client.get(process_path(id, px) + "/logs?stream=" + name).body == kWater);
  }
}

TEST_CASE("EX-15: a command that does not read its large input is no failure") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto head =
      pipe_into_tsb(daemon, "yes first | head -c 50000000", "exec -i " + id + " -- head -n1");
  INFO(head.err);
  CHECK(head.code == 0);
  CHECK(head.out == "first\n");
  CHECK(head.err.empty());

  // By WebSocket: the input that nobody reads is no error, the end comes once.
  const auto px = spawn_in(client, id, {{"argv", json::array{"head", "-n1"}}, {"stdin", true}});
  Socket socket(client, process_path(id, px) + "/attach");
  REQUIRE(socket.open());
  const std::string piece = [] {
    std::string text;
    while (text.size() < 1'000'000) {
      text += "first\n";
    }
    return text.substr(0, 1'000'000);
  }();
  for (int i = 0; i < 50 && socket.close_code == 0; ++i) {
    if (!socket.input(piece)) {
      break;  // it has closed: what was sent on the way is dropped
    }
    socket.until(Seconds(0.001), [] { return false; });
  }
  REQUIRE(socket.until_end(Seconds(30)));
  CHECK(socket.close_code == 1000);
  CHECK(socket.output == "first\n");
  CHECK(socket.last("exit").at("exit_code") == 0);
  CHECK(socket.count("end") == 1);
}

TEST_CASE("EX-16: half a gigabyte of input is written whole by a command that prints nothing") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const std::string source = "seq 1 57000000";  // 501 MB, no two places alike
  const auto copied =
      pipe_into_tsb(daemon, source, "exec -i " + id + " -- sh -c 'cat >/workspace/t'");
  INFO(copied.err);
  CHECK(copied.code == 0);
  CHECK(copied.out.empty());
  const auto same =
      run_in(client, id, "stat -c %s /workspace/t; " + source + " | cmp - /workspace/t");
  INFO(same.body);
  CHECK(exit_code(same) == 0);
  CHECK(same.text("stdout") == "501888897\n");
}

TEST_CASE("EX-27: a last line without a newline is in the log of a process that nobody watched") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  for (const auto* stream : {"stdout", "stderr"}) {
    const std::string to = std::string{stream} == "stderr" ? " >&2" : "";
    const auto px = spawn_in(
        client, id, {{"command", "echo line" + to + "; printf exiting" + to + "; exit 1"}});
    const auto ended = wait_exec(client, id, px, Seconds(10));
    INFO(ended.body);
    CHECK(ended.at("result.exit_code") == json::value(1));
    const auto logs = process_path(id, px) + "/logs";
    CHECK(client.get(logs).body == "line\nexiting");
    CHECK(client.get(logs + "?stream=" + stream).body == "line\nexiting");
    CHECK(client.get(logs + "?tail=1").body == "exiting");
    const auto events = events_of(
        client.request("GET", logs, {}, {{"Accept", "application/x-ndjson"}}).body, stream);
    CHECK(events.text == "line\nexiting");
  }
}
