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
  std::uint64_t shm_bytes = limits::kShmDefault;
  isolate::Storage storage = isolate::Storage::disk;
  isolate::ProcMode proc = isolate::ProcMode::full;
  std::optional<Millis> timeout;  // total life
  bool operator==(const SandboxWish&) const;
};

struct CreateRequest {
  std::string id;  // "" = the node makes one
  std::string tenant;
  std::string created_by;
  std::string name;
  Labels labels;
  SandboxWish wish;
  // Written in the same transaction as the row (the idempotency record's target).
  std::function<Result<>(store::Db&)> with_row;
};

struct PatchRequest {
  std::optional<std::string> name;
  std::optional<Labels> labels;
  std::optional<std::optional<Millis>> timeout;  // from now; nullopt inside = none
  std::optional<std::uint64_t> if_version;       // If-Match
};

struct ExecRequest {
  std::string id;  // "" = the node makes one
  std::vector<std::string> argv;
  std::string command;  // instead of argv: text for /bin/sh -c
  Env env;
  std::string cwd;   // "" = the sandbox's
  std::string user;  // "" = the sandbox's
  std::string stdin_head;
  bool stdin_open = false;
  Millis timeout{0};
  Millis grace{0};
  std::uint64_t max_output = 0;  // run: ends the exec there
  std::uint64_t log_cap = limits::kLogCapDefault;
};

// Why something ended (architecture §5); `reason` is the word on the wire.
struct Certificate {
  std::string reason;  // user timeout oom exit signal host_reboot init_died error
  std::string detail;
  std::string by;  // key id, or "" when nobody asked
  std::int64_t at_ms = 0;
};

}  // namespace talon::server::node
