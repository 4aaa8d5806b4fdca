// What people run: shells, Python, make, apt, tar, su. Each of these failed in a similar system.
#include <catch2/catch.hpp>

#include "e2e/terminal.h"
#include "support/machine.h"

using namespace talon::test;
namespace json = boost::json;

namespace {

bool have(const std::string& path) { return !machine::read_file(path).empty(); }

// The stdout of a command that must succeed.
std::string output_of(const Client& client, const std::string& id, json::object body) {
  const auto reply = run_in(client, id, std::move(body));
  INFO(reply.body.substr(0, 3000));
  CHECK(exit_code(reply) == 0);
  return reply.text("stdout");
}

}  // namespace

// EX-19
TEST_CASE("a user who is not root writes to /dev/stdout and /dev/stderr") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto text = "id -u; echo out > /dev/stdout; echo err > /dev/stderr";
  const auto reply = run_in(client, id, {{"command", text}, {"user", "1000"}});
  INFO(reply.body);
  CHECK(reply.text("stdout") == "1000\nout\n");
  CHECK(reply.text("stderr") == "err\n");
  if (have("/usr/bin/su")) {
    const auto su =
        run_in(client, id, "su user -c 'id -u; echo out > /dev/stdout; echo err > /dev/stderr'");
    INFO(su.body);
    CHECK(su.text("stdout") == "1000\nout\n");
    CHECK(su.text("stderr") == "err\n");
  }
}

// EX-23
TEST_CASE("a user by number has a home that can be written") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  for (const auto* user : {"1000:1000", "user", "2345:2345", "0", "root"}) {
    const auto reply =
        run_in(client, id, {{"command", "touch $HOME/x && echo $HOME && id -u"}, {"user", user}});
    INFO(user << ": " << reply.body);
    CHECK(exit_code(reply) == 0);
    CHECK(reply.text("stdout").starts_with("/"));
    CHECK_FALSE(reply.text("stdout").starts_with("/\n"));
  }
}

// EX-28
TEST_CASE("threads start and a local server answers") {
  if (!have("/usr/bin/python3")) {
    WARN("SKIP: this machine's /usr has no python3");
    return;
  }
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  CHECK(output_of(client, id,
                  {{"argv", json::array{"/usr/bin/python3", "-c",
                                        "import threading\n"
                                        "t = threading.Timer(0.05, print, ['tick'])\n"
                                        "t.start(); t.join()"}}}) == "tick\n");
  spawn_in(client, id,
           {{"command",
             "cd /workspace && echo served > f && exec /usr/bin/python3 -m http.server "
             "--bind 127.0.0.1 80"}});
  const auto fetch =
      "for i in 1 2 3 4 5 6 7 8 9 10; do /usr/bin/python3 -c \"import urllib.request as u; "
      "print(u.urlopen('http://127.0.0.1:80/f').read().decode(), end='')\" 2>/dev/null && exit; "
      "sleep 0.3; done; exit 1";
  CHECK(output_of(client, id, {{"command", fetch}}) == "served\n");
  if (have("/usr/bin/curl")) {
    CHECK(output_of(client, id, {{"command", "curl -sS http://localhost:80/f"}}) == "served\n");
  }
}

// EX-29
TEST_CASE("faccessat2 gives right answers to test and make") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  CHECK(output_of(client, id, {{"command", "test -x /bin/sh && echo yes"}}) == "yes\n");
  run_in(client, id, "mkdir /workspace/g && chgrp 1000 /workspace/g && chmod 770 /workspace/g");
  CHECK(output_of(client, id,
                  {{"command", "test -w /workspace/g && echo yes"}, {"user", "1234:1000"}}) ==
        "yes\n");
  CHECK(output_of(client, id,
                  {{"command", "test -w /workspace/g || echo no"}, {"user", "1234:1234"}}) ==
        "no\n");
  if (have("/usr/bin/make")) {
    run_in(client, id, "printf 'all:\\n\\t@echo made by $$0\\n' > Makefile");
    CHECK(output_of(client, id, {{"command", "make -s"}}) == "made by /bin/sh\n");
  }
}

// EX-31
TEST_CASE("apt-get update works as root against a local repository") {
  if (!have("/usr/bin/apt-get") || !have("/usr/bin/python3")) {
    WARN("SKIP: this machine's /usr has no apt-get or no python3");
    return;
  }
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  run_in(client, id,
         "mkdir -p /workspace/repo /etc/apt/sources.list.d && cd /workspace/repo && "
         "printf 'Package: hello-talon\\nVersion: 1\\nArchitecture: all\\nMaintainer: x <x@x>\\n"
         "Filename: ./h.deb\\nSize: 1\\nSHA256: %064d\\nDescription: x\\n\\n' 0 > Packages && "
         "rm -f /etc/apt/sources.list /etc/apt/sources.list.d/* && "
         "echo 'deb [trusted=yes] http://127.0.0.1:8123 ./' > /etc/apt/sources.list");
  spawn_in(client, id,
           {{"command",
             "cd /workspace/repo && exec /usr/bin/python3 -m http.server --bind "
             "127.0.0.1 8123"}});
  REQUIRE(eventually(Seconds(10), [&] {
    return exit_code(run_in(client, id,
                            "/usr/bin/python3 -c \"import socket; "
                            "socket.create_connection(('127.0.0.1', 8123), 1)\"")) == 0;
  }));
  const auto reply = run_in(client, id, {{"command", "apt-get update 2>&1"}, {"timeout", 60}});
  INFO(reply.text("stdout"));
  CHECK(exit_code(reply) == 0);
  CHECK(reply.text("stdout").find("ermission") == std::string::npos);
  CHECK(reply.text("stdout").find("not permitted") == std::string::npos);
  CHECK(output_of(client, id, {{"command", "apt-cache show hello-talon | grep ^Version"}}) ==
        "Version: 1\n");
}

// EX-32
TEST_CASE("Python process pools work for root and for a user") {
  if (!have("/usr/bin/python3")) {
    WARN("SKIP: this machine's /usr has no python3");
    return;
  }
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto* program =
      "from concurrent.futures import ProcessPoolExecutor as P\n"
      "with P(2) as p: print(list(p.map(abs, [-1, -2, -3])))";
  for (const auto* user : {"root", "1000"}) {
    INFO(user);
    CHECK(output_of(client, id,
                    {{"argv", json::array{"/usr/bin/python3", "-c", program}}, {"user", user}}) ==
          "[1, 2, 3]\n");
  }
}

TEST_CASE("EX-36: the locale is UTF-8 and names of every script pass, by every way in") {
  if (!have("/usr/bin/python3")) {
    WARN("SKIP: this machine's /usr has no python3");
    return;
  }
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  CHECK(output_of(client, id, {{"command", "echo $LANG$LC_ALL"}}) == "C.UTF-8\n");
  const std::string word = "\u6c34\u548c\U0001F98A";
  const auto program =
      "import os\nopen(os.environ['W'] + '.txt', 'w').write(os.environ['W'])\n"
      "print(sorted(os.listdir('.')), '" +
      word + "')";
  const json::object body = {{"argv", json::array{"/usr/bin/python3", "-c", program}},
                             {"env", json::object{{"W", word}}}};
  CHECK(output_of(client, id, body) == "['" + word + ".txt'] " + word + "\n");
  const auto px = spawn_in(client, id, body);
  REQUIRE(wait_exec(client, id, px, Seconds(10)).text("state") == "exited");
  CHECK(client.get("/v1/sandboxes/" + id + "/processes/" + px + "/logs").body ==
        "['" + word + ".txt'] " + word + "\n");
  const auto terminal = make_pty(client, id, body);
  Socket shown(client, pty_path(id, terminal));
  REQUIRE(shown.until_end(Seconds(10)));
  CHECK(shown.output == "['" + word + ".txt'] " + word + "\r\n");
  // What is typed is decoded by the same locale.
  const auto asks =
      spawn_in(client, id,
               {{"argv", json::array{"/usr/bin/python3", "-c", "w = input()\nprint(w, len(w))"}},
                {"stdin", true}});
  Socket attached(client, "/v1/sandboxes/" + id + "/processes/" + asks + "/attach");
  REQUIRE(attached.input(word + "\n"));
  REQUIRE(attached.until_end(Seconds(10)));
  CHECK(attached.output == word + " 3\n");
  CHECK(output_of(client, id,
                  {{"command", "echo $LANG"}, {"env", json::object{{"LANG", "de_DE.UTF-8"}}}}) ==
        "de_DE.UTF-8\n");
}

// FS-16
TEST_CASE("a directory of the image can be renamed") {
  if (!have("/usr/bin/python3")) {
    WARN("SKIP: this machine's /usr has no python3");
    return;
  }
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  CHECK(output_of(client, id,
                  {{"argv", json::array{"/usr/bin/python3", "-c",
                                        "import os\nos.rename('/usr/share/misc', '/usr/share/m2')\n"
                                        "os.rename('/usr/share/m2', '/opt/m3')\n"
                                        "print(os.path.isdir('/opt/m3'), "
                                        "os.path.exists('/usr/share/misc'))"}}}) == "True False\n");
  // Another sandbox of the same image still has it.
  CHECK(exit_code(run_in(client, make_sandbox(client), "test -d /usr/share/misc")) == 0);
}

// FS-17
TEST_CASE("owners within the range can be set, and a tar with one beyond it unpacks or says so") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  CHECK(output_of(client, id,
                  {{"command",
                    "touch f && chown root:adm f && stat -c %G f && chown 65535:65535 f "
                    "&& stat -c %u:%g f"}}) == "adm\n65535:65535\n");
  CHECK(exit_code(run_in(client, id, "chown 65536 f")) != 0);
  // As root tar would set the owner and cannot; --no-same-owner is the documented way.
  const auto tar = run_in(client, id,
                          "echo x > g && tar --owner=376730 --group=376730 -cf t.tar g && rm g && "
                          "tar --no-same-owner -xf t.tar && stat -c %u g && "
                          "tar -xf t.tar; echo $?; cat g");
  INFO(tar.body);
  CHECK(tar.text("stdout") == "0\n2\nx\n");
  CHECK(tar.text("stderr").find("376730") != std::string::npos);
}
