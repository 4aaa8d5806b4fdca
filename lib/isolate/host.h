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

// One row of `talond doctor` and GET /v1/host.
struct Finding {
  enum class Status { ok, degraded, missing };
  std::string name;
  Status status = Status::ok;
  std::string value;
  std::string effect;  // one sentence
  std::string fix;     // the exact command, or ""
};
// `data_dir` is looked at for file system, space and reflink; it need not exist.
std::vector<Finding> diagnose(const HostFacts& facts, const std::string& data_dir);
std::string_view to_string(Finding::Status status);

}  // namespace talon::isolate
