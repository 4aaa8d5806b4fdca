#include <catch2/catch.hpp>

#include <set>
#include <sstream>

#include "support/daemon.h"

using namespace talon::test;
namespace json = boost::json;

// AU-08
TEST_CASE("the daemon's environment is not visible inside") {
  Daemon::Options options;
  options.env = {{"SECRET_OF_THE_SERVICE", "canary-8f1c"}, {"TALON_TEST_CANARY", "canary-8f1c"}};
  Daemon daemon(options);
  const auto client = daemon.client();
  const auto id = make_sandbox(client, {{"env", json::object{{"DECLARED", "1"}}}});
  spawn_in(client, id, {{"command", "sleep 100"}});
  const auto all = run_in(
      client, id,
      "env; cat /proc/1/environ; for p in /proc/[0-9]*; do cat $p/environ $p/cmdline; done 2>&1");
  CHECK(all.body.find("canary-8f1c") == std::string::npos);
  CHECK(all.body.find("SECRET") == std::string::npos);
  CHECK(all.text("stdout").find(daemon.data()) == std::string::npos);

  const auto own = run_in(
      client, id, {{"argv", json::array{"/usr/bin/env"}}, {"env", json::object{{"MINE", "2"}}}});
  std::set<std::string> names;
  std::istringstream lines(own.text("stdout"));
  for (std::string line; std::getline(lines, line);) {
    names.insert(line.substr(0, line.find('=')));
  }
  CHECK(names.contains("DECLARED"));
  CHECK(names.contains("MINE"));
  for (const auto& name : names) {
    INFO(name);
    CHECK((name == "DECLARED" || name == "MINE" || name == "PATH" || name == "HOME" ||
           name == "LANG" || name == "USER" || name == "LOGNAME" || name == "SHELL" ||
           name == "HOSTNAME" || name == "PWD" || name == "TERM" || name == "TMPDIR" ||
           name.starts_with("TALON_")));
  }
}

// EX-35: CVE-2024-21626
TEST_CASE("a working directory under /proc/self/fd is refused and no descriptor leaks") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  for (int fd = 3; fd <= 64; ++fd) {
    const auto cwd = "/proc/self/fd/" + std::to_string(fd);
    const auto reply =
        client.post("/v1/sandboxes/" + id + "/run",
                    json::object{{"command", "ls -la; cat etc/shadow"}, {"cwd", cwd}});
    INFO(cwd << ": " << reply.body);
    CHECK(reply.status == 400);
    CHECK(reply.text("field") == "cwd");
  }
  // ls itself opens the directory that it lists: 3.
  const auto fds = run_in(client, id, {{"argv", json::array{"ls", "/proc/self/fd"}}});
  CHECK(fds.text("stdout") == "0\n1\n2\n3\n");
  const auto shell = run_in(client, id, "ls /proc/$$/fd; true");
  CHECK(shell.text("stdout") == "0\n1\n2\n");
}
