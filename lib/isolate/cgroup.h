#pragma once
// The cgroup v2 tree of architecture §4: talon-<instance>/<sandbox>/{init,x/<exec>}.
// Limits are written before anything runs in a group. Reference: cgroup-v2.rst.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "isolate/spec.h"

namespace talon::isolate {

struct LimitState {
  std::uint64_t value = 0;  // bytes, pids, 1/1000 cores, or bytes per second
  bool enforced = false;
  bool asked = false;
};
struct CgroupApplied {
  LimitState memory;
  LimitState cpu_millicores;
  LimitState pids;
  LimitState io_read;
  LimitState io_write;
};

struct CgroupStats {
  std::uint64_t cpu_usage_us = 0;  // cpu.stat usage_usec (always there on v2)
  // Periods in which the quota was used up, and how long the group then stood still.
  std::optional<std::uint64_t> throttled;
  std::optional<std::uint64_t> throttled_us;
  std::uint64_t oom_kills = 0;       // of the whole sandbox
  std::uint64_t init_oom_kills = 0;  // of init's own group
  std::optional<std::uint64_t> memory_bytes;
  std::optional<std::uint64_t> memory_peak_bytes;
  std::optional<std::uint64_t> pids;
  std::uint64_t processes = 0;  // lines of cgroup.procs below the group, init not counted
};

}  // namespace talon::isolate
