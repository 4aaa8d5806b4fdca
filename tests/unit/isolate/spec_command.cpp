#include <catch2/catch.hpp>

#include "isolate/spec.h"

using namespace talon;
using namespace talon::isolate;

TEST_CASE("a command is an argument up to 128 KiB and a script above") {
  ExecSpec spec;
  set_command(spec, "echo hi");
  CHECK(spec.argv == std::vector<std::string>{"/bin/sh", "-c", "echo hi"});
  CHECK(spec.script.empty());
  set_command(spec, std::string(limits::kArgBytes, 'x'));
  CHECK(spec.argv.size() == 3);
  set_command(spec, std::string(limits::kArgBytes + 1, 'x'));
  CHECK(spec.argv == std::vector<std::string>{"/bin/sh", "/dev/fd/3"});
  CHECK(spec.script.size() == limits::kArgBytes + 1);
}

TEST_CASE("defaults go under what the caller gave, and each name is there once") {
  std::vector<std::pair<std::string, std::string>> env = {
      {"PATH", "/opt/bin"}, {"A", "1"}, {"A", "2"}};
  add_default_env(env);
  CHECK(env == std::vector<std::pair<std::string, std::string>>{
                   {"PATH", "/opt/bin"}, {"A", "1"}, {"LANG", "C.UTF-8"}});
}
