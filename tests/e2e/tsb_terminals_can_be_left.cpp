// A real terminal on our side (pty(7)) and one inside.

#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>

#include <catch2/catch.hpp>
#include <regex>

#include "tsb_support.h"

using namespace talon::test;

namespace {

void set_size(const RunProcess& process, unsigned short cols, unsigned short rows) {
  const winsize size{.ws_row = rows, .ws_col = cols, .ws_xpixel = 0, .ws_ypixel = 0};
  REQUIRE(::ioctl(process.terminal(), TIOCSWINSZ, &size) == 0);
}

bool raw(const RunProcess& process) {
  termios mode{};
  REQUIRE(::tcgetattr(process.terminal(), &mode) == 0);
  return (mode.c_lflag & (ICANON | ECHO | ISIG)) == 0;
}

// Types a command whose answer is not what was typed, and waits for the answer.
bool ask(RunProcess& process, const std::string& command, const std::string& answer) {
  process.write(command + "\r");
  return process.wait_for(answer, Seconds(20));
}

constexpr const char* kDetach = "\x10\x11";

std::string px_of(const std::string& text) {
  std::smatch found;
  return std::regex_search(text, found, std::regex("--attach (px[a-z0-9]{20})")) ? found[1].str()
                                                                                 : "";
}

}  // namespace

TEST_CASE("tsb pty is a terminal of our size that follows it", "[e2e][tsb]") {
  Daemon daemon;
  const Tsb tsb(daemon);
  const std::string id = make_sandbox(daemon.client(), {{"name", "box"}});
  const auto pty = tsb.start({"pty", "box", "--", "sh"}, true);
  REQUIRE(ask(*pty, "stty size; tty; echo $TERM", "/dev/pts/"));
  REQUIRE(pty->wait_for("vt100", Seconds(20)));
  CHECK(raw(*pty));
  set_size(*pty, 123, 45);
  REQUIRE(eventually(Seconds(20), [&] { return ask(*pty, "stty size", "45 123"); }));
  // Ctrl-C is for what runs inside.
  REQUIRE(ask(*pty, "trap 'echo in''terrupted' INT; echo g''o; sleep 1000", "go"));
  pty->write("\x03");
  REQUIRE(pty->wait_for("interrupted", Seconds(20)));
  pty->write("exit 5\r");
  const auto result = pty->finish(Seconds(20));
  CHECK(result.code == 0);
}

TEST_CASE("A terminal is left by its keys and come back to", "[e2e][tsb]") {
  Daemon daemon;
  const Tsb tsb(daemon);
  const std::string id = make_sandbox(daemon.client(), {{"name", "box"}});
  const auto first = tsb.start({"pty", "box"}, true);
  REQUIRE(ask(*first, "X=kept; echo re''ady", "ready"));
  first->write(kDetach);
  const auto left = first->finish(Seconds(20));
  CHECK(left.code == 0);
  const std::string px = px_of(left.out);
  INFO(left.out);
  REQUIRE_FALSE(px.empty());
  // Ctrl-P was not passed on: the shell has not brought back its last line.
  CHECK(left.out.rfind("X=kept") < left.out.find("ready"));

  daemon.kill_hard();
  daemon.start();
  const auto second = tsb.start({"pty", "box", "--attach", px}, true);
  REQUIRE(second->wait_for("ready", Seconds(20)));  // the last lines are shown again,
  CHECK(raw(*second));                              // and the keys are the shell's by then
  REQUIRE(ask(*second, "echo $X-$X", "kept-kept"));

  // One writer and many who watch.
  const auto refused = tsb({"pty", "box", "--attach", px});
  CHECK(refused.code == 1);
  CHECK(refused.err.starts_with("tsb: conflict: "));
  const auto watcher = tsb.start({"pty", "box", "--attach", px, "--read-only"}, true);
  REQUIRE(watcher->wait_for("kept-kept", Seconds(20)));
  CHECK(raw(*watcher));
  watcher->write("echo of-the-watch''er\r");
  REQUIRE(ask(*second, "echo of-the-writ''er", "of-the-writer"));
  REQUIRE(watcher->wait_for("of-the-writer", Seconds(20)));
  CHECK(watcher->out().find("of-the-watch") == std::string::npos);
  watcher->write("\x03");  // leaves; it is not passed on
  CHECK(watcher->finish(Seconds(20)).code == 0);

  const auto thief = tsb.start({"pty", "box", "--attach", px, "--steal"}, true);
  REQUIRE(second->wait_for("somebody else types", Seconds(20)));
  REQUIRE(ask(*thief, "echo sto''len", "stolen"));
  REQUIRE(second->wait_for("stolen", Seconds(20)));
  thief->write("exit\r");
  CHECK(thief->finish(Seconds(20)).code == 0);
  CHECK(second->finish(Seconds(20)).code == 0);
}

TEST_CASE("A terminal outlives a killed talond under our hands", "[e2e][tsb]") {
  Daemon daemon;
  const Tsb tsb(daemon);
  const std::string id = make_sandbox(daemon.client());
  const auto pty = tsb.start({"pty", id, "--", "sh"}, true);
  REQUIRE(ask(*pty, "echo be''fore", "before"));
  daemon.kill_hard();
  REQUIRE(pty->wait_for("the connection is lost", Seconds(20)));
  pty->write("echo typed-mean''while\r");
  daemon.start();
  REQUIRE(pty->wait_for("typed-meanwhile", Seconds(60)));
  const std::string& out = pty->out();
  CHECK(out.find("before") == out.rfind("before"));
  pty->write("exit\r");
  CHECK(pty->finish(Seconds(20)).code == 0);
}

TEST_CASE("tsb exec -it gives the command's exit code, and the terminal back", "[e2e][tsb]") {
  Daemon daemon;
  const Tsb tsb(daemon);
  const std::string id = make_sandbox(daemon.client());
  const auto process =
      tsb.start({"exec", "-it", id, "--", "sh", "-c", "tty; read x; exit $x"}, true);
  REQUIRE(process->wait_for("/dev/pts/", Seconds(20)));
  process->write("33\r");
  CHECK(eventually(Seconds(20), [&] { return !raw(*process); }));
  CHECK(process->finish(Seconds(20)).code == 33);

  // Other keys; Ctrl-P is an ordinary one then.
  const auto other =
      tsb.start({"exec", "-it", "--detach-keys", "ctrl-a,d", id, "--", "cat", "-v"}, true);
  other->write("\x10\x11\r");
  REQUIRE(other->wait_for("^P", Seconds(20)));
  other->write("\x01x\r");
  REQUIRE(other->wait_for("^Ax", Seconds(20)));
  other->write(
      "\x01"
      "d");
  const auto left = other->finish(Seconds(20));
  CHECK(left.code == 0);
  const std::string px = px_of(left.out);
  CHECK(daemon.client().get("/v1/sandboxes/" + id + "/processes/" + px).text("state") == "running");

  // Without -i nothing is typed; without a terminal of ours it is 80x24.
  CHECK(tsb({"exec", "-t", id, "--", "stty", "size"}, "typed").out == "24 80\r\n");
  CHECK(tsb({"exec", "-it", id, "--", "sh"}, "exit 12\n").code == 12);
}
