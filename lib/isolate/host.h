#pragma once
// HostFacts: what this kernel and cgroup layout give, probed once at start. Pure data after
// that: make_plan, doctor and GET /v1/host read it.

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace talon::isolate {

struct HostFacts {
  std::string kernel;  // uname -r
  int kernel_major = 0;
  int kernel_minor = 0;
  std::string machine;  // x86_64, aarch64
  std::string boot_id;  // TALON_TEST_BOOT_ID overrides it in test builds
  bool root = false;
  bool user_namespaces = false;
  bool overlayfs = false;
  bool idmapped_tmpfs = false;  // >= 6.3
  bool seccomp = false;
  int landlock_abi = 0;
  std::uint64_t nofile_hard = 0;
  bool cap_sys_resource = false;
  std::string cgroup_mount;              // where cgroup2 is mounted, "" if nowhere
  std::vector<std::string> controllers;  // available in the group that talon uses
  std::string cgroup_problem;            // "" or why no group can be made

  bool at_least(int major, int minor) const {
    return kernel_major > major || (kernel_major == major && kernel_minor >= minor);
  }
  bool has_controller(std::string_view name) const;
};

// What making a sandbox looks at: kernel, boot_id, root, idmapped_tmpfs, seccomp,
// nofile_hard.
Result<HostFacts> probe_kernel();
// `cgroup_path`: the configured place (--cgroup), "" = choose as decision 14.
Result<HostFacts> probe_host(const std::string& cgroup_path);

// Which place `talond doctor` and GET /v1/host look at: the configuration's.
struct SurveyScope {
  std::string cgroup_path;
  std::string data_dir;  // need not exist
  std::string run_dir;   // <run_dir>/address: what a running talond serves
  std::vector<std::string> listen;
  std::uint32_t ids_base = 0;
  std::uint32_t ids_count = 0;
};

// Everything that the two report, as read; diagnose() judges it.
struct Survey {
  HostFacts facts;
  std::string cgroup_place;  // the directory that talon's groups are made in
  std::uint64_t max_user_namespaces = 0;
  bool apparmor_restricts = false;  // user namespaces of unprivileged programs
  std::uint64_t max_pids = 0;
  bool pressure = false;  // PSI
  // errno of a rule with `tproxy` in a network namespace of the probe's own, 0 = it can be made.
  int tproxy_error = 0;
  bool clock_synchronized = false;
  std::int64_t clock_s = 0;  // seconds since 1970
  std::string chromium;      // path, "" = none

  struct Data {
    std::string dir;    // as configured
    std::string found;  // it or its nearest parent that exists
    int error = 0;      // errno of statfs: the rest is unknown
    std::uint64_t magic = 0;
    std::uint64_t free_bytes = 0;
    bool reflink = false;
    int idmap_error = 0;  // errno of an id-mapped mount of it, 0 = it can be made
    bool project_quota = false;
  } data;

  enum class Port { free, ours, taken, refused };
  struct Listen {
    std::string address;
    Port port = Port::free;
    int error = 0;  // why it is refused
  };
  std::vector<Listen> listen;

  std::uint64_t ids_first = 0;
  std::uint64_t ids_last = 0;
  std::string subid_clash;  // "/etc/subuid: name:first:count", "" = none
};
// Looks, and leaves nothing behind: what has to be made to be known is made in a child's namespaces
// or without a name. Blocks for some milliseconds.
Result<Survey> survey_host(const SurveyScope& scope);

// The first range of /etc/subuid or /etc/subgid (its text: "name:first:count" lines) that meets
// the ids first to last; "" = none.
std::string clashing_range(std::string_view text, std::uint64_t first, std::uint64_t last);

// One row of `talond doctor` and GET /v1/host.
struct Finding {
  enum class Status { ok, degraded, missing };
  std::string name;
  Status status = Status::ok;
  std::string value;
  std::string effect;  // one sentence
  std::string fix;     // the exact command, or ""
};
// Pure. Every row is always there, in the same order.
std::vector<Finding> diagnose(const Survey& survey);
std::string_view to_string(Finding::Status status);
// The worst of them: ok, degraded, or missing = sandboxes cannot be made here.
Finding::Status worst(const std::vector<Finding>& findings);

}  // namespace talon::isolate
