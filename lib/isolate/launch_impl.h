#pragma once
// What Launcher hides, shared by launch.cpp and creation.cpp.

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <semaphore>

#include "isolate/cgroup_tree.h"
#include "isolate/launch.h"
#include "isolate/lease.h"
#include "isolate/sandbox_impl.h"
#include "isolate/seccomp.h"
#include "isolate/spawner_client.h"

namespace talon::isolate {

inline constexpr std::chrono::milliseconds kHelloDeadline{10'000};
inline constexpr int kCreationsAtOnce = 16;

struct Launcher::Impl {
  LauncherConfig config;
  HostFacts host;
  std::shared_ptr<LeasePool> leases;
  std::shared_ptr<Closer> closer = std::make_shared<Closer>();
  std::optional<CgroupRoot> cgroups;  // none: no place for groups, nothing can be created
  std::counting_semaphore<kCreationsAtOnce> slots{kCreationsAtOnce};  // see Slot

  std::mutex spawner_mutex;
  std::shared_ptr<SpawnerClient> spawner;

  std::atomic<int> creating{0};
  std::atomic<std::uint64_t> spawner_starts{0};
  std::atomic<std::uint64_t> created{0};
  std::atomic<std::uint64_t> failed{0};

  // Bounds the descriptors of creations under way, and what waits in the spawner's socket.
  struct Slot {
    explicit Slot(Impl& launcher, bool counts = true) : impl(launcher), counted(counts) {
      impl.creating += counted ? 1 : 0;
      impl.slots.acquire();
    }
    ~Slot() {
      impl.slots.release();
      impl.creating -= counted ? 1 : 0;
    }
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;
    Impl& impl;
    bool counted;
  };

  Result<> check(const SandboxSpec& spec, const SandboxDirs& dirs, Ahead stage) const;
  Result<std::unique_ptr<Sandbox>> make(const SandboxSpec& spec, const SandboxDirs& dirs);
  Result<std::unique_ptr<Sandbox>> count(const SandboxSpec& spec,
                                         Result<std::unique_ptr<Sandbox>> made);
  // Empty for an unconfined sandbox.
  Result<std::span<const sock_filter>> filter_for(const SandboxSpec& spec);
  // Starts a new one if there is none alive; does not wait until it is set up.
  Result<std::shared_ptr<SpawnerClient>> live_spawner();
};

// Sockets below `dir`, whose path may be longer than sun_path: named through /proc/self/fd.
Result<UniqueFd> bind_unix(int dir, const char* name);
Result<UniqueFd> connect_unix(const std::string& dir, const char* name);

// 32 hex digits to 16 bytes.
bool parse_nonce(std::string_view text, std::uint8_t (&out)[16]);

}  // namespace talon::isolate
