#include "tsb_support.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <sstream>

namespace talon::test {

std::string Tsb::binary() { return std::filesystem::path(Daemon::binary()).parent_path() / "tsb"; }

Args Tsb::command(const Args& args) const {
  Args all{"/usr/bin/env"};
  all.insert(all.end(), environment_.begin(), environment_.end());
  all.push_back(binary());
  all.insert(all.end(), args.begin(), args.end());
  return all;
}

RunResult Tsb::operator()(const Args& args, std::string_view input, Seconds deadline) const {
  RunProcess process{command(args), false};
  REQUIRE(input.size() <= 65536);
  process.write(input);
  process.close_stdin();
  return process.finish(deadline);
}

std::unique_ptr<RunProcess> Tsb::start(const Args& args, bool terminal) const {
  return std::make_unique<RunProcess>(command(args), terminal);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  std::string line;
  while (std::getline(in, line)) {
    lines.push_back(line);
  }
  return lines;
}

}  // namespace talon::test
