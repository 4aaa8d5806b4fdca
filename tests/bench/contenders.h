#pragma once
// The rows. Each contender sets itself up when a row first needs it, and takes everything away when
// it goes: containers, sandboxes, cgroups, the daemon.

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/bundle.h"
#include "bench/rows.h"
#include "isolate/image/image.h"
#include "isolate/launch.h"
#include "support/http_client.h"

namespace talon::bench {

template <class T>
class Lazy {
 public:
  explicit Lazy(std::function<Result<std::unique_ptr<T>>()> start) : start_(std::move(start)) {}
  Result<T*> get() {
    if (made_ == nullptr) {
      TALON_TRY(made, start_());
      made_ = std::move(made);
    }
    return made_.get();
  }

 private:
  std::function<Result<std::unique_ptr<T>>()> start_;
  std::unique_ptr<T> made_;
};

// crun or runc: run of a bundle, exec in a container that sleeps.
class OciRuntime {
 public:
  static Result<std::unique_ptr<OciRuntime>> start(const std::string& program,
                                                   const Workshop& shop);
  ~OciRuntime();
  Result<double> run();  // several may be under way
  Result<double> exec();

 private:
  OciRuntime(std::string program, const Workshop& shop)
      : program_(std::move(program)), shop_(shop) {}
  std::vector<std::string> command(std::vector<std::string> rest) const;
  std::string log(int serial = 0) const {
    return shop_.path(program_ + std::to_string(serial) + ".log");
  }

  std::string program_;
  const Workshop& shop_;
  std::string sleeper_;
  std::atomic<int> serial_ = 0;
};

void add_rows(std::vector<Row>& rows, const std::string& program, Lazy<OciRuntime>& runtime);
void add_floor_and_bwrap(std::vector<Row>& rows, const Workshop& shop);

// The column `isolate` (decision 25): the library in a loop; disk storage, log and journal,
// seccomp; no HTTP, no store.
class Isolated {
 public:
  static Result<std::unique_ptr<Isolated>> start(const Workshop& shop);
  ~Isolated();

  struct Box {
    std::string id;
    DirFd root;
    DirFd workspace;
    std::unique_ptr<isolate::Prepared> ahead;  // made before, by a pool
    std::unique_ptr<isolate::Sandbox> sandbox;
  };
  // What pools do: directories, and the sandbox as far as `stage`.
  Result<Box> prepare(std::optional<isolate::Ahead> stage);
  Result<> create(Box& box);
  // Runs `true` to its end; returns the microseconds until its execve was done.
  Result<double> exec(Box& box);
  // Ends it and renames its directory to the trash.
  Result<> end(Box& box);
  // The reaper's work, off the path: what end() left of it.
  Result<> reap(const Box& box);

  // Create, exec, end; the microseconds. Without `stage` nothing was made before, directories
  // included.
  Result<double> cycle(std::optional<isolate::Ahead> stage);
  Result<double> exec_standing();
  Result<double> exec_standing_until_started() { return exec(standing_); }
  void settle() { launcher_->drain(); }

 private:
  explicit Isolated(const Workshop& shop) : shop_(shop) {}

  const Workshop& shop_;
  std::unique_ptr<isolate::Launcher> launcher_;
  DirFd image_;
  Box standing_;
};
void add_rows(std::vector<Row>& rows, Lazy<Isolated>& isolated);

// What the experiments run on and how long.
struct Scale {
  int idle = 1000;   // sandboxes that stand by while creates are timed
  int churn_s = 10;  // of sustained load, for each contender
  int concurrency = 8;
};
void add_experiments(std::vector<Experiment>& experiments, Lazy<Isolated>& isolated,
                     Lazy<OciRuntime>& crun, Scale scale);

// One keep-alive connection to talond.
class Api {
 public:
  static Result<Api> connect(const test::Client& client);
  Result<test::Reply> call(std::string_view method, const std::string& target,
                           std::string_view body, int want);
  Result<std::string> create();
  Result<> run_true(const std::string& id);
  Result<> remove(const std::string& id);

 private:
  explicit Api(const test::Client& client) : client_(&client), connection_(client.endpoint()) {}

  const test::Client* client_;
  test::Connection connection_;
};

// The column `api`: talond serve, auth, store with synchronous=FULL. And `talond run` as a process.
class Served {
 public:
  static Result<std::unique_ptr<Served>> start(const std::string& talond, const Workshop& shop);
  ~Served();

  Api& api() { return *api_; }
  Result<Api> connect() const { return Api::connect(*client_); }
  const test::Client& client() const { return *client_; }
  const std::string& standing() const { return standing_; }
  const Workshop& shop() const { return shop_; }
  pid_t pid() const { return pid_; }
  double idle_mib() const { return idle_mib_; }  // RSS, before the first request
  Result<double> run_local();                    // `talond run`

 private:
  Served(std::string talond, const Workshop& shop) : talond_(std::move(talond)), shop_(shop) {}
  Result<> spawn_daemon();
  Result<> wait_for_address();
  std::vector<std::string> environment(const std::string& which) const;

  std::string talond_;
  const Workshop& shop_;
  pid_t pid_ = -1;
  std::unique_ptr<test::Client> client_;
  std::optional<Api> api_;
  double idle_mib_ = 0;
  std::string standing_;
  std::string cgroup_;
};

void add_rows(std::vector<Row>& rows, Lazy<Served>& served);
void add_stream_rows(std::vector<Row>& rows, Lazy<Served>& served);
void add_experiments(std::vector<Experiment>& experiments, Lazy<Served>& served,
                     Lazy<OciRuntime>& crun);

}  // namespace talon::bench
