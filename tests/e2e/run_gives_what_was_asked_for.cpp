#include <sys/stat.h>
#include <catch2/catch.hpp>

#include "run_support.h"
#include "support/machine.h"

using namespace talon::test;

TEST_CASE("a workspace folder is at /workspace inside and keeps what was written") {
  const RunHome home;
  const std::string folder = home.home().data() + "/folder";
  REQUIRE(::mkdir(folder.c_str(), 0755) == 0);
  const auto result =
      home.run({"--workspace", folder, "--", "sh", "-c", "pwd; id -u; echo inside > file"});
  CHECK(result.code == 0);
  CHECK(result.out == "/workspace\n0\n");
  CHECK(machine::read_file(folder + "/file") == "inside\n");
  struct stat info{};
  REQUIRE(::stat((folder + "/file").c_str(), &info) == 0);
  CHECK(info.st_uid == 0);
  CHECK(home.run({"--workspace", folder, "--", "cat", "file"}).out == "inside\n");
}

TEST_CASE("without a workspace folder it is empty, writable and gone afterwards") {
  const RunHome home;
  CHECK(home.run({"--", "sh", "-c", "ls -A; echo x > f; cat f"}).out == "x\n");
  CHECK(home.run({"--", "ls", "-A"}).out.empty());
  CHECK(home.run({"--user", "1000", "--", "sh", "-c", "id -u; echo x > f; cat f"}).out ==
        "1000\nx\n");
}

TEST_CASE("environment, user and directory are the ones asked for and none of the host's") {
  const RunHome home;
  const auto env = home.run({"-e", "A=1", "--env", "B=two words", "--env=C=", "--", "env"});
  CHECK(env.out.find("A=1\n") != std::string::npos);
  CHECK(env.out.find("B=two words\n") != std::string::npos);
  CHECK(env.out.find("C=\n") != std::string::npos);
  CHECK(env.out.find("PATH=/usr/local/sbin:") != std::string::npos);
  CHECK(env.out.find("TERM=") == std::string::npos);
  CHECK(home.run({"--cwd", "/usr", "--", "pwd"}).out == "/usr\n");
  CHECK(home.run({"--user", "user", "--", "id", "-un"}).out == "user\n");
}

TEST_CASE("everything from the first word on is the command, options included") {
  const RunHome home;
  CHECK(home.run({"echo", "--memory", "x", "--", "y"}).out == "--memory x -- y\n");
  CHECK(home.run({"--", "printf", "%s", "--help"}).out == "--help");
  CHECK(home.run({"--timeout=60s", "echo", "-e", "A=1"}).out == "A=1\n");
}

TEST_CASE("there is no network inside but loopback") {
  const RunHome home;
  const auto result = home.run({"--net", "deny", "--", "cat", "/proc/net/dev"});
  CHECK(result.out.find("lo:") != std::string::npos);
  CHECK(std::ranges::count(result.out, '\n') == 3);  // two lines of heading
}
