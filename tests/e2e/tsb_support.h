#pragma once
// `tsb` as a user starts it, beside the talond of a test and with nothing but its run directory
// in the environment.

#include <memory>
#include <string>
#include <vector>

#include "run_support.h"
#include "support/daemon.h"

namespace talon::test {

using Args = std::vector<std::string>;

class Tsb {
 public:
  // `environment`: NAME=VALUE words; the default is the daemon's unix socket.
  explicit Tsb(const Daemon& daemon) : Tsb(Args{"TALON_RUN_DIR=" + daemon.run()}) {}
  explicit Tsb(Args environment) : environment_(std::move(environment)) {}

  // To its end, with `input` and then the end on stdin.
  RunResult operator()(const Args& args, std::string_view input = {},
                       Seconds deadline = Seconds(60)) const;
  // Running, with pipes or a terminal.
  std::unique_ptr<RunProcess> start(const Args& args, bool terminal = false) const;
  static std::string binary();

 private:
  Args command(const Args& args) const;
  Args environment_;
};

// The lines of a text, without their ends.
std::vector<std::string> lines_of(const std::string& text);

}  // namespace talon::test
