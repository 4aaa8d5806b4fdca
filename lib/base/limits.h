#pragma once
// Every limit has a name here. What an API answers when one is passed names it too.

#include <cstddef>
#include <cstdint>

namespace talon::limits {

// HTTP
inline constexpr std::size_t kHeaderBytes = 16 * 1024;
inline constexpr std::size_t kTargetBytes = 8 * 1024;
inline constexpr std::size_t kBodyBytes = 8 * 1024 * 1024;  // JSON bodies, unless a route says less
inline constexpr std::size_t kJsonDepth = 32;
inline constexpr std::size_t kConnections = 4096;
inline constexpr int kHeaderTimeoutS = 15;
inline constexpr int kIdleTimeoutS = 75;

// Exec
inline constexpr std::size_t kArgBytes = 128 * 1024 - 1;    // Linux MAX_ARG_STRLEN less its NUL
inline constexpr std::size_t kArgsBytes = 2 * 1024 * 1024;  // argv + env together
inline constexpr std::size_t kLiveExecs = 256;
inline constexpr std::uint64_t kRunOutputDefault = 16ull << 20;
inline constexpr std::uint64_t kRunOutputMax = 1ull << 30;
inline constexpr std::uint64_t kLogCapDefault = 64ull << 20;
inline constexpr std::uint64_t kSandboxLogBytes = 1ull << 30;

// Sandbox
inline constexpr std::size_t kNameBytes = 128;
inline constexpr std::size_t kLabels = 64;
inline constexpr std::size_t kLabelKeyBytes = 63;
inline constexpr std::size_t kLabelValueBytes = 255;
inline constexpr std::uint64_t kMemoryMin = 16ull << 20;
inline constexpr std::uint64_t kShmDefault = 64ull << 20;
inline constexpr std::uint64_t kDiskMin = 16ull << 20;  // less is mostly the tables of an image
inline constexpr std::uint64_t kDiskMax = 4ull << 40;   // a quarter of what ext4 holds in a file
inline constexpr std::uint64_t kPidsDefault = 4096;
inline constexpr int kWaitDefaultS = 60;
inline constexpr int kWaitMaxS = 300;

// Id leases (decision 1 and 2)
inline constexpr std::uint32_t kIdRange = 65'537;  // 0..65535 mapped, the last one is init's
inline constexpr std::uint32_t kIdBase = 1'000'000'000;
inline constexpr std::uint32_t kIdLeases = 4096;

// Project ids of ext4 and xfs (decision 32); those of others are mostly small numbers.
inline constexpr std::uint32_t kProjectBase = 1'000'000'000;
inline constexpr std::uint32_t kProjects = 1u << 24;

// Descriptors (decision 12): an eighth of RLIMIT_NOFILE for connections (each may read a log beside
// its socket), the rest for sandboxes: pidfd, init's socket, the log event and their watches, the
// clone for files, the cgroup directory.
inline constexpr std::size_t kFdsPerSandbox = 8;
// One made ahead holds: id lease, three namespaces, the cgroup, two directories, log, journal and
// socket, and two trees. What waits for its end (isolate/closer.h) holds five.
inline constexpr std::size_t kFdsPerPooled = 12;
inline constexpr std::size_t kFdsEnding = 5 * 256;
struct DescriptorBudget {
  std::size_t connections;
  std::size_t sandboxes;
};
// `pooled`: the most that may be made ahead.
constexpr DescriptorBudget descriptor_budget(std::uint64_t nofile, std::size_t pooled = 0) {
  const std::size_t all = nofile < (1u << 20) ? static_cast<std::size_t>(nofile) : 1u << 20;
  const std::size_t eighth = all / 8 < 16 ? 16 : all / 8;
  const std::size_t connections = eighth < kConnections ? eighth : kConnections;
  const std::size_t taken =
      3 * connections + 128 + (pooled == 0 ? 0 : pooled * kFdsPerPooled + kFdsEnding);
  const std::size_t rest = all > taken ? (all - taken) / kFdsPerSandbox : 0;
  return {connections, rest == 0 ? 1 : rest};
}

// Store
inline constexpr std::uint64_t kReserveBytes = 16ull << 20;
inline constexpr std::size_t kGroupCommit = 256;

}  // namespace talon::limits
