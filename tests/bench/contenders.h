#pragma once
// The rows. Each contender sets itself up when it is made and takes everything away when it goes:
// containers, sandboxes, cgroups, the daemon.

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/bundle.h"
#include "bench/rows.h"
#include "isolate/image/image.h"
#include "isolate/launch.h"
#include "support/http_client.h"

namespace talon::bench {

// crun or runc: run of a bundle, exec in a container that sleeps.
class OciRuntime {
 public:
  static Result<std::unique_ptr<OciRuntime>> start(const std::string& program,
                                                   const Workshop& shop);
  ~OciRuntime();
  void add_rows(std::vector<Row>& rows);

 private:
  OciRuntime(std::string program, const Workshop& shop)
      : program_(std::move(program)), shop_(shop) {}
  std::vector<std::string> command(std::vector<std::string> rest) const;
  std::string log() const { return shop_.path(program_ + ".log"); }

  std::string program_;
  const Workshop& shop_;
  std::string sleeper_;
  int serial_ = 0;
};

void add_floor_and_bwrap(std::vector<Row>& rows, const Workshop& shop);

// The column `isolate` (decision 25): the library in a loop; disk storage, log and journal,
// seccomp; no HTTP, no store.
class Isolated {
 public:
  static Result<std::unique_ptr<Isolated>> start(const Workshop& shop);
  ~Isolated();
  void add_rows(std::vector<Row>& rows);

 private:
  struct Box {
    std::string id;
    DirFd root;
    std::unique_ptr<isolate::Sandbox> sandbox;
  };
  explicit Isolated(const Workshop& shop) : shop_(shop) {}
  Result<Box> create();
  // Runs `true` to its end; returns the microseconds until its execve was done.
  Result<double> exec(Box& box);
  Result<> end(Box& box);
  Result<double> cycle();

  const Workshop& shop_;
  std::unique_ptr<isolate::Launcher> launcher_;
  DirFd image_;
  Box standing_;
};

// The column `api`: talond serve, one keep-alive connection, auth, store with synchronous=FULL.
// And `talond run` as a process.
class Served {
 public:
  static Result<std::unique_ptr<Served>> start(const std::string& talond, const Workshop& shop);
  ~Served();
  void add_rows(std::vector<Row>& rows);

 private:
  Served(std::string talond, const Workshop& shop) : talond_(std::move(talond)), shop_(shop) {}
  Result<> spawn_daemon();
  Result<> wait_for_address();
  Result<test::Reply> call(std::string_view method, const std::string& target,
                           std::string_view body, int want);
  Result<std::string> create();
  Result<> run_true(const std::string& id);
  Result<> remove(const std::string& id);
  std::vector<std::string> environment(const std::string& which) const;

  std::string talond_;
  const Workshop& shop_;
  pid_t pid_ = -1;
  std::unique_ptr<test::Client> client_;
  std::unique_ptr<test::Connection> connection_;
  std::string standing_;
  std::string cgroup_;
};

}  // namespace talon::bench
