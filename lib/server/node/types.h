#pragma once
// What the API asks of the node, as plain values: already decoded and range-checked, not yet
// compared with the node's state.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "isolate/spec.h"

namespace talon::store {
class Db;
}

namespace talon::server::node {

using Labels = std::map<std::string, std::string>;
using Env = std::vector<std::pair<std::string, std::string>>;

// What a sandbox is to be. Kept in its row as JSON (spec_json) and shown by GET.
struct SandboxWish {
  std::string image = "host";
  Env env;
  std::string user;                // "" = root
  std::string cwd = "/workspace";  // absolute
  std::string hostname = "sandbox";
  isolate::Limits limits;
  std::optional<std::uint64_t> disk_bytes;  // of root changes
  std::optional<std::uint64_t> workspace_bytes;
  std::uint64_t shm_bytes = limits::kShmDefault;
  isolate::Storage storage = isolate::Storage::disk;
  isolate::ProcMode proc = isolate::ProcMode::full;
  std::optional<Millis> timeout;  // total life
  bool operator==(const SandboxWish&) const;
};

struct PatchRequest {
  std::optional<std::string> name;
  std::optional<Labels> labels;
  std::optional<std::optional<Millis>> timeout;  // from now; nullopt inside = none
  std::optional<std::uint64_t> if_version;       // If-Match
};

enum class Recording { none, output, input };

struct ExecRequest {
  std::string id;  // "" = the node makes one
  std::vector<std::string> argv;
  std::string command;  // instead of argv: text for /bin/sh -c
  Env env;
  std::string cwd;      // "" = the sandbox's
  std::string user;     // "" = the sandbox's
  std::string service;  // whose process it is, "" = nobody's
  std::string stdin_head;
  bool stdin_open = false;
  Millis timeout{0};
  Millis grace{0};
  std::uint64_t max_output = 0;  // run: ends the exec there
  std::uint64_t log_cap = limits::kLogCapDefault;
  // A terminal. Its log is its recording; without one it keeps little, and nothing after its end.
  bool tty = false;
  std::uint16_t cols = 80;
  std::uint16_t rows = 24;
  Recording record = Recording::output;
};

// A command that is kept running (decision 37).
enum class Restart { no, on_failure, always };
struct ServiceSpec {
  ExecRequest exec;  // without id, stdin and timeout
  Restart restart = Restart::no;
  // Before the first start after an end, doubled each time up to the second one.
  Millis backoff{1000};
  Millis backoff_max{60'000};
};

struct CreateRequest {
  std::string tenant;
  std::string created_by;
  std::string name;
  Labels labels;
  SandboxWish wish;
  std::optional<ServiceSpec> command;  // becomes the service "main"
  // Written in the same transaction as the row (the idempotency record's target).
  std::function<Result<>(store::Db&, const std::string& id)> with_row;
};

// Why a sandbox or an exec ended (architecture §5); `reason` is the word on the wire: user,
// timeout, idle, oom, exit, signal, seccomp, disk_quota, output_limit, host_reboot or error. The
// facts below `at_ms` are there as far as they are known.
struct Certificate {
  std::string reason;
  std::string detail;
  std::string by;  // key id, or "" when nobody asked
  std::int64_t at_ms = 0;
  std::optional<int> exit_code = {};
  std::optional<int> signal = {};
  std::uint64_t peak_bytes = 0;   // 0 = not known
  std::string biggest_name = {};  // of an oom: the biggest of the killed processes
  std::uint64_t biggest_bytes = 0;
  std::string last_exec = {};    // of a sandbox: whose output `last_output` is
  std::string last_output = {};  // the bytes as they were printed
};

}  // namespace talon::server::node
