// CI-01, bytes, signals.

#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "tsb_support.h"

using namespace talon::test;

TEST_CASE("tsb exec ends when the command ends, whatever its own input does", "[e2e][tsb]") {
  Daemon daemon;
  const Tsb tsb(daemon);
  const std::string id = make_sandbox(daemon.client());
  // The pipe stays open behind all of these.
  for (const Args& options :
       {Args{}, Args{"-i"}, Args{"--timeout", "30s"}, Args{"-i", "--timeout", "30s"}}) {
    Args args{"exec"};
    args.insert(args.end(), options.begin(), options.end());
    args.insert(args.end(), {id, "--", "echo", "hi"});
    const auto process = tsb.start(args);
    process->write("never read by echo");
    const auto result = process->finish(Seconds(20));
    CHECK(result.code == 0);
    CHECK(result.out == "hi\n");
    CHECK(result.err.empty());
  }
  const auto late = tsb.start({"exec", "-i", "--timeout", "500ms", id, "--", "cat"});
  CHECK(late->finish(Seconds(20)).code == 124);
}

TEST_CASE("tsb exec reads standard input with -i only", "[e2e][tsb]") {
  Daemon daemon;
  const Tsb tsb(daemon);
  const std::string id = make_sandbox(daemon.client());
  CHECK(tsb({"exec", id, "--", "cat"}, "not asked for").out.empty());
  CHECK(tsb({"exec", id, "-i", "cat"}, "asked for").out == "asked for");
  CHECK(tsb({"exec", "-i", id, "--", "wc", "-c"}).out == "0\n");
  // One byte is not taken from what the next reader gets.
  RunProcess shell({"/usr/bin/env", "TALON_RUN_DIR=" + daemon.run(), "/bin/sh", "-c",
                    Tsb::binary() + " exec " + id + " -- true; cat"},
                   false);
  shell.write("for cat");
  shell.close_stdin();
  CHECK(shell.finish(Seconds(20)).out == "for cat");
}

TEST_CASE("tsb exec passes every byte on, each stream to its own", "[e2e][tsb]") {
  Daemon daemon;
  const Tsb tsb(daemon);
  const std::string id = make_sandbox(daemon.client());
  std::string all;
  for (int i = 0; i < 256; ++i) {
    all += static_cast<char>(i);
  }
  const auto echoed = tsb({"exec", "-i", id, "--", "tee", "/dev/stderr"}, all);
  CHECK(echoed.code == 0);
  CHECK(echoed.out == all);
  CHECK(echoed.err == all);

  const auto words =
      tsb({"exec", "-e", "A=x y", "--cwd", "/tmp", "-u", "user", id, "--", "sh", "-c",
           "printf '%s|' \"$A\" \"$PWD\" \"$(id -u)\" \"$@\"", "sh", "a  b", "", "-i", "--", "$x"});
  CHECK(words.out == "x y|/tmp|1000|a  b||-i|--|$x|");

  const auto big = tsb({"exec", id, "--", "sh", "-c", "head -c 30000000 /dev/zero | tr '\\0' x"},
                       "", Seconds(120));
  CHECK(big.out == std::string(30'000'000, 'x'));
}

TEST_CASE("tsb exec passes a long input on exactly, in few requests", "[e2e][tsb]") {
  Daemon daemon;
  const Tsb tsb(daemon);
  const std::string id = make_sandbox(daemon.client());
  constexpr int kMiB = 24;
  // Each way round: a file, of which as much can be read as one likes, and a pipe, which holds 64
  // KiB.
  for (const std::string from : {"cat >f; cmd <f; rm f", "cmd"}) {
    INFO(from);
    RunProcess shell(
        {"/usr/bin/env", "-C", daemon.run(), "TALON_RUN_DIR=" + daemon.run(), "/bin/sh", "-c",
         "cmd() { " + Tsb::binary() + " exec -i " + id + " -- sha256sum; }; seq 1 " +
             std::to_string(kMiB * 137'000) + " | tee /dev/fd/3 3>sum.in | { " + from +
             "; }; sha256sum <sum.in; rm sum.in"},
        false);
    shell.close_stdin();
    const auto sums = lines_of(shell.finish(Seconds(100)).out);
    REQUIRE(sums.size() == 2);
    CHECK(sums[0] == sums[1]);
  }
  // Each request is a commit: one of a megabyte for each megabyte of the file, and from a pipe as
  // many as it takes, but not one for each 64 KiB.
  const std::string metrics = daemon.local().get("/metrics").body;
  const std::string name =
      "talon_http_requests_total{operation=\"writeProcessStdin\",code=\"200\"} ";
  const auto at = metrics.find(name);
  REQUIRE(at != std::string::npos);
  const long requests = std::stol(metrics.substr(at + name.size()));
  CHECK(requests >= 2 * kMiB);
  CHECK(requests < 2 * kMiB * 16 / 2);
}

TEST_CASE("tsb exec passes signals on, and a second one kills", "[e2e][tsb]") {
  Daemon daemon;
  const Tsb tsb(daemon);
  const std::string id = make_sandbox(daemon.client());
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    const auto process = tsb.start({"exec", id, "--", "sh", "-c",
                                    "trap 'echo got; exit 7' " + std::to_string(number) +
                                        "; echo ready; while :; do sleep "
                                        "0.05; done"});
    REQUIRE(process->wait_for("ready", Seconds(20)));
    process->signal(number);
    const auto result = process->finish(Seconds(20));
    INFO(number << result.err);
    CHECK(result.code == 7);
    CHECK(result.out == "ready\ngot\n");
  }
  const auto stubborn =
      tsb.start({"exec", id, "--", "sh", "-c",
                 "trap 'echo no' TERM; echo ready; while :; do sleep 0.05; done"});
  REQUIRE(stubborn->wait_for("ready", Seconds(20)));
  stubborn->signal(SIGTERM);
  REQUIRE(stubborn->wait_for("no", Seconds(20)));
  stubborn->signal(SIGTERM);
  CHECK(stubborn->finish(Seconds(20)).code == 137);
}

TEST_CASE("A command of tsb exec learns that nobody reads its output", "[e2e][tsb]") {
  Daemon daemon;
  const Tsb tsb(daemon);
  const std::string id = make_sandbox(daemon.client());
  const auto process = tsb.start({"exec", id, "--", "yes"});
  REQUIRE(process->wait_for("y\ny\n", Seconds(20)));
  process->close_stdout();
  const auto result = process->finish(Seconds(20));
  CHECK(result.code == 128 + SIGPIPE);
  CHECK(result.err.empty());
}
