#pragma once
// The real talond, started as a user would, with directories and a cgroup of its own. What it
// left behind when it ended is looked for by leftovers(); the destructor ends everything that
// this daemon made (by its cgroup and its pid) and removes it.
//
// The binary is TALON_TEST_BIN, else the build's own talond. The host image is made once per
// build directory and moved from daemon to daemon: tests that use it run one at a time.

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "support/http_client.h"

namespace talon::test {

// What one process holds.
struct ProcessUse {
  std::size_t fds = 0;
  std::size_t threads = 0;
  std::uint64_t rss_bytes = 0;
};

// What can leak, as a set of lines, so that a difference says what it is.
struct Snapshot {
  std::set<std::string> lines;
  // What is in `after` and not here.
  std::vector<std::string> added(const Snapshot& after) const;
};

class Daemon {
 public:
  struct Options {
    std::vector<std::string> args;           // more flags for serve
    std::map<std::string, std::string> env;  // over a small environment
    bool start = true;
    bool image = true;  // give it the host image
    // Not 0: the data directory is a tmpfs of this size, in a mount namespace of the daemon's own.
    unsigned small_disk_mib = 0;
  };
  Daemon() : Daemon(Options()) {}
  explicit Daemon(Options options);
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // Starts talond and waits until it listens; REQUIREs that it does.
  void start();
  // False when it ended before it listened.
  bool start_or_end();
  // For the next start; "" takes it away.
  void set_env(const std::string& name, const std::string& value);
  void signal(int number);
  // Waits for its end; the exit code, 128+n for a signal, -1 at the deadline.
  int wait(Seconds deadline);
  int stop();  // SIGTERM and wait
  void kill_hard();
  // As after a reboot of the host: no process is left, no run directory, another boot id.
  void reboot(const std::string& boot_id);
  void power_off(const std::string& boot_id);  // the same, up to where it would start

  pid_t pid() const { return pid_; }
  const std::string& data() const { return data_; }
  const std::string& run() const { return run_; }
  const std::string& cgroup() const { return cgroup_; }  // the --cgroup given
  // The data directory as the daemon sees it, also when that is a mount of its own.
  std::string data_seen() const;
  std::string socket() const { return run_ + "/talond.sock"; }
  std::string log() const;  // everything it wrote so far
  const std::string& key() const { return key_; }
  Endpoint tcp() const { return Endpoint{port_, {}}; }
  Client client() const { return Client(tcp(), key_); }
  // Over the unix socket, without a key.
  Client local() const { return Client(Endpoint{0, socket()}, {}); }

  ProcessUse use() const;
  // Everything of this daemon's sandboxes: processes and cgroups beneath its group, mounts,
  // directories of sandboxes, run directories, trash, network namespaces on the machine, and
  // the daemon's own descriptors by kind.
  Snapshot snapshot() const;
  // Waits (at most `deadline`) until a new snapshot adds nothing to `before`; what is left else.
  std::vector<std::string> settled(const Snapshot& before, Seconds deadline) const;
  // pids in the cgroups of a sandbox (of all, with "").
  std::vector<pid_t> processes(const std::string& sandbox) const;
  // The sandbox's cgroup directory; "" if there is none.
  std::string group_of(const std::string& sandbox) const;

  // Runs talond with arguments to its end and returns exit code and output (both streams).
  struct Ran {
    int code = -1;
    std::string output;
  };
  // In the mount namespace of `pid`, if given.
  static Ran run_talond(const std::vector<std::string>& args, Seconds deadline = Seconds(60),
                        pid_t pid = 0);
  static std::string binary();
  static std::string
  test_binary();  // the build's own: TALON_TEST_BIN has no TALON_TEST_* variables
  std::vector<std::string> serve_args() const;

 private:
  void take_image();
  void give_image_back();

  Options options_;
  std::string data_;
  std::string run_;
  std::string cgroup_;
  std::string key_;
  std::uint16_t port_ = 0;
  pid_t pid_ = -1;
};

// Creates a sandbox, waits for `running`, REQUIREs it; its id.
std::string make_sandbox(const Client& client, boost::json::object body = {});
// `run` with a shell text or a whole body; REQUIREs 200.
Reply run_in(const Client& client, const std::string& sandbox, boost::json::object body);
Reply run_in(const Client& client, const std::string& sandbox, const std::string& command);
// Spawns and REQUIREs 201; the exec's id.
std::string spawn_in(const Client& client, const std::string& sandbox, boost::json::object body);
// GETs the exec until its state is no longer `running` or `starting`; the last answer.
Reply wait_exec(const Client& client, const std::string& sandbox, const std::string& px,
                Seconds deadline);
// exit_code of a run answer, -1 when it has none.
int exit_code(const Reply& reply);
// How many rounds a test takes: TALON_TEST_ROUNDS, else `usual`.
int rounds(int usual);
// True when a condition holds within the deadline; asks every 20 ms.
template <class F>
bool eventually(Seconds deadline, F condition);
void nap(Seconds time);

template <class F>
bool eventually(Seconds deadline, F condition) {
  const auto until = std::chrono::steady_clock::now() + deadline;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= until) {
      return false;
    }
    nap(Seconds(0.02));
  }
  return true;
}

}  // namespace talon::test
