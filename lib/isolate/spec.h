#pragma once
// What is wanted: one sandbox (SandboxSpec) and one exec in it (ExecSpec), as plain values.
// Everything that weakens isolation is its own named field, off by default.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/limits.h"

namespace talon::isolate {

enum class Storage { disk, memory, readonly };
enum class ProcMode { full, pid_only };
enum class OnOrphan { stay, die };

// Asked-for limits; nullopt = not asked for. Enforcement is the cgroup's (see CgroupApplied).
struct Limits {
  std::optional<std::uint64_t> memory_bytes = {};
  std::optional<double> cpu_cores = {};
  std::optional<std::uint64_t> pids = {};
  // Bytes per second from and to the disk that the sandbox's files lie on.
  std::optional<std::uint64_t> io_read = {};
  std::optional<std::uint64_t> io_write = {};
  bool operator==(const Limits&) const = default;
};

struct SandboxSpec {
  std::string id;  // sb…
  std::string hostname = "sandbox";
  Storage storage = Storage::disk;
  ProcMode proc = ProcMode::full;
  OnOrphan on_orphan = OnOrphan::stay;
  Limits limits;
  std::uint64_t shm_bytes = limits::kShmDefault;
  std::uint64_t memory_root_bytes = 512ull << 20;  // storage: memory
  // How far root changes (in memory instead of memory_root_bytes) and the workspace may grow;
  // nullopt = as the disk does.
  std::optional<std::uint64_t> disk_bytes = {};
  std::optional<std::uint64_t> workspace_bytes = {};
  std::uint64_t open_files = 16384;  // RLIMIT_NOFILE, capped by the host's hard limit
  std::string default_cwd = "/workspace";
  bool compat32 = false;            // 32-bit x86 calls, under a filter of their own
  bool unconfined_seccomp = false;  // the node-level opt-out: no filter at all
  bool pivot_root = false;          // the fallback switch
  bool operator==(const SandboxSpec&) const = default;
};

struct ExecSpec {
  std::string id;                 // px…
  std::vector<std::string> argv;  // never empty
  std::vector<std::pair<std::string, std::string>> env;
  std::string cwd;   // absolute, "" = the sandbox's default
  std::string user;  // "", "name", "uid", "name:group", "uid:gid"
  std::string stdin_head;
  std::string script;  // not empty: the child gets it as descriptor 3 (long `command` texts)
  bool stdin_open = false;
  bool tty = false;
  bool record_input = false;  // what is typed goes into the log of the terminal too
  std::uint16_t cols = 80;
  std::uint16_t rows = 24;
  std::chrono::milliseconds timeout{0};  // 0 = none
  std::chrono::milliseconds grace{0};
  std::uint64_t max_output = 0;  // 0 = none
  std::uint64_t log_cap = limits::kLogCapDefault;
  Limits limits;  // repeated on the exec's own group
};

// The argv for a shell text: {"/bin/sh", "-c", text}, or the script form above 128 KiB.
void set_command(ExecSpec& spec, std::string text);

// PATH, LANG and the like, under what the caller gave: earlier names win.
void add_default_env(std::vector<std::pair<std::string, std::string>>& env);

}  // namespace talon::isolate
