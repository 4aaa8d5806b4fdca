#include "run_support.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "support/machine.h"

namespace talon::test {

namespace {

struct Pipe {
  int read = -1;
  int write = -1;
  Pipe() {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    read = ends[0];
    write = ends[1];
  }
};

int open_terminal(std::string& slave) {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  REQUIRE(master >= 0);
  REQUIRE(::grantpt(master) == 0);
  REQUIRE(::unlockpt(master) == 0);
  char name[64];
  REQUIRE(::ptsname_r(master, name, sizeof name) == 0);
  slave = name;
  return master;
}

[[noreturn]] void exec_child(const std::vector<std::string>& args, int in, int out, int err,
                             const std::string& terminal) {
  ::setsid();
  if (!terminal.empty()) {
    // The first terminal that a session leader opens becomes its controlling one (tty(4)).
    in = out = err = ::open(terminal.c_str(), O_RDWR);
  }
  ::dup2(in, 0);
  ::dup2(out, 1);
  ::dup2(err, 2);
  std::vector<char*> argv;
  for (const auto& arg : args) {
    argv.push_back(const_cast<char*>(arg.c_str()));
  }
  argv.push_back(nullptr);
  const char* const env[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "TERM=vt100", nullptr};
  ::execve(argv[0], argv.data(), const_cast<char* const*>(env));
  ::_exit(126);
}

void close_end(int& fd) {
  if (fd >= 0) {
    ::close(std::exchange(fd, -1));
  }
}

}  // namespace

RunProcess::RunProcess(const std::vector<std::string>& args, bool terminal) {
  if (terminal) {
    std::string slave;
    in_ = open_terminal(slave);
    out_ = ::fcntl(in_, F_DUPFD_CLOEXEC, 3);
    pid_ = ::fork();
    if (pid_ == 0) {
      exec_child(args, -1, -1, -1, slave);
    }
    return;
  }
  const Pipe in;
  const Pipe out;
  const Pipe err;
  pid_ = ::fork();
  if (pid_ == 0) {
    exec_child(args, in.read, out.write, err.write, {});
  }
  ::close(in.read);
  ::close(out.write);
  ::close(err.write);
  in_ = in.write;
  out_ = out.read;
  err_ = err.read;
}

RunProcess::~RunProcess() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  close_end(in_);
  close_end(out_);
  close_end(err_);
}

void RunProcess::signal(int number) const { ::kill(pid_, number); }

bool RunProcess::write(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = ::write(in_, bytes.data(), bytes.size());
    if (n <= 0) {
      return false;
    }
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

void RunProcess::close_stdin() { close_end(in_); }
void RunProcess::close_stdout() { close_end(out_); }

bool RunProcess::pump(int timeout_ms) {
  pollfd items[2] = {{.fd = out_, .events = POLLIN, .revents = 0},
                     {.fd = err_, .events = POLLIN, .revents = 0}};
  if (out_ < 0 && err_ < 0) {
    return false;
  }
  if (::poll(items, 2, timeout_ms) <= 0) {
    return true;
  }
  char buffer[65536];
  for (const pollfd& item : items) {
    if (item.revents == 0) {
      continue;
    }
    const ssize_t n = ::read(item.fd, buffer, sizeof buffer);
    const bool is_out = item.fd == out_;
    if (n > 0) {
      (is_out ? result_.out : result_.err).append(buffer, static_cast<std::size_t>(n));
    } else {
      // EIO: the last open end of a terminal is gone (pty(7)).
      close_end(is_out ? out_ : err_);
    }
  }
  return true;
}

bool RunProcess::wait_for(std::string_view text, Seconds deadline) {
  const auto until = std::chrono::steady_clock::now() + deadline;
  const auto seen = [&] {
    return result_.out.find(text) != std::string::npos ||
           result_.err.find(text) != std::string::npos;
  };
  while (!seen() && std::chrono::steady_clock::now() < until && pump(50)) {
  }
  return seen();
}

RunResult RunProcess::finish(Seconds deadline) {
  const auto until = std::chrono::steady_clock::now() + deadline;
  while (std::chrono::steady_clock::now() < until && pump(50)) {
  }
  int status = 0;
  if (eventually(until - std::chrono::steady_clock::now(),
                 [&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; })) {
    result_.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    pid_ = -1;
  }
  return result_;
}

Daemon::Options RunHome::options() {
  Daemon::Options options;
  options.start = false;
  return options;
}

std::vector<std::string> RunHome::args(const std::vector<std::string>& more) const {
  std::vector<std::string> all = {Daemon::binary(), "run",       "--data-dir", home_.data(),
                                  "--run-dir",      home_.run(), "--cgroup",   home_.cgroup()};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

RunResult RunHome::run(const std::vector<std::string>& more, std::string_view input,
                       Seconds deadline) const {
  RunProcess process{args(more), false};
  // Small inputs fit into the pipe; larger ones are the business of tests that read meanwhile.
  REQUIRE(input.size() <= 65536);
  process.write(input);
  process.close_stdin();
  return process.finish(deadline);
}

bool RunHome::clean() const {
  return eventually(Seconds(30), [&] { return leftovers().empty(); });
}

std::vector<std::string> RunHome::leftovers() const {
  std::vector<std::string> left;
  for (const std::string& dir : {home_.run() + "/local", home_.data() + "/local"}) {
    for (const auto& name : machine::entries(dir)) {
      left.push_back(dir + "/" + name);
    }
  }
  for (const auto& group : machine::groups_below(home_.cgroup())) {
    left.push_back(group);
  }
  for (const pid_t pid : machine::processes_below(home_.cgroup())) {
    left.push_back("process " + std::to_string(pid) + " " + machine::comm(pid));
  }
  return left;
}

}  // namespace talon::test
