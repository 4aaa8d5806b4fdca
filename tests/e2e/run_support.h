#pragma once
// `talond run` as a child process with pipes or a terminal, in directories and a cgroup of its
// own.

#include <sys/types.h>

#include <string>
#include <vector>

#include "support/daemon.h"

namespace talon::test {

struct RunResult {
  int code = -1;  // exit code, 128+n for a signal, -1 at the deadline (then it was killed)
  std::string out;
  std::string err;
};

// One running `talond run`. Its ends of the pipes are ours; the destructor kills it.
class RunProcess {
 public:
  RunProcess(const std::vector<std::string>& args, bool terminal);
  ~RunProcess();
  RunProcess(const RunProcess&) = delete;
  RunProcess& operator=(const RunProcess&) = delete;

  pid_t pid() const { return pid_; }
  int terminal() const { return in_; }  // the master, with `terminal`
  void signal(int number) const;
  bool write(std::string_view bytes) const;
  void close_stdin();
  void close_stdout();
  // Reads both outputs until `text` was seen in them (either one), within the deadline.
  bool wait_for(std::string_view text, Seconds deadline);
  // Reads to the end of both outputs and waits for the exit.
  RunResult finish(Seconds deadline);
  const std::string& out() const { return result_.out; }
  const std::string& err() const { return result_.err; }

 private:
  bool pump(int timeout_ms);
  pid_t pid_ = -1;
  int in_ = -1;
  int out_ = -1;
  int err_ = -1;
  RunResult result_;
};

class RunHome {
 public:
  RunHome() = default;
  // The arguments of `talond run` with this home's directories, then `more`.
  std::vector<std::string> args(const std::vector<std::string>& more) const;
  // Runs to the end with `input` on stdin.
  RunResult run(const std::vector<std::string>& more, std::string_view input = {},
                Seconds deadline = Seconds(120)) const;
  ~RunHome() { clean(); }
  // What a run left: directories, cgroups, processes. Empty = nothing.
  std::vector<std::string> leftovers() const;
  // True when nothing is left, at the latest after a while: talond cleans up behind its exit.
  bool clean() const;
  const Daemon& home() const { return home_; }

 private:
  static Daemon::Options options();
  Daemon home_{options()};
};

}  // namespace talon::test
