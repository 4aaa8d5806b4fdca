#include <catch2/catch.hpp>

#include "run_support.h"

using namespace talon::test;

TEST_CASE("talond run passes the command's exit code on") {
  const RunHome home;
  for (const int code : {0, 1, 3, 125, 255}) {
    CHECK(home.run({"--", "sh", "-c", "exit " + std::to_string(code)}).code == code);
  }
  CHECK(home.run({"--", "sh", "-c", "kill -TERM $$"}).code == 128 + 15);
  CHECK(home.run({"--", "sh", "-c", "kill -KILL $$"}).code == 128 + 9);

  const auto missing = home.run({"--", "/nonexistent/program"});
  CHECK(missing.code == 127);
  CHECK(missing.err.find("/nonexistent/program") != std::string::npos);
  const auto no_program = home.run({"--", "/etc/passwd"});
  CHECK(no_program.code == 126);
  CHECK(no_program.err.find("/etc/passwd") != std::string::npos);
  CHECK(home.clean());
}

TEST_CASE("talond run ends with 124 and one line after its timeout") {
  const RunHome home;
  const auto late = home.run({"--timeout", "300ms", "--", "sh", "-c", "echo begun; sleep 60"});
  CHECK(late.code == 124);
  CHECK(late.out == "begun\n");
  CHECK(late.err.find("--timeout") != std::string::npos);
  CHECK(std::ranges::count(late.err, '\n') == 1);
  CHECK(home.run({"--timeout", "60s", "--", "true"}).code == 0);
  CHECK(home.clean());
}
