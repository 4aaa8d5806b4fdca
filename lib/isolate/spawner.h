#pragma once
// Inside the spawner process and its builder only (architecture §3, decision 9): one thread, an
// own mount namespace with an empty read-only root, few descriptors. spawner.cpp is their loop;
// spawner_namespaces.cpp and spawner_tree.cpp make the parts.
//
// The builder is a fork of the spawner with another mount namespace and socket. It makes trees
// while the spawner makes namespaces, and nothing that it has mounted can show in a sandbox's
// mount namespace, which is a copy of the spawner's. The networker, another fork, makes network
// namespaces: the kernel takes longer for one than for all the others together.

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>

#include "base/error.h"
#include "base/fd.h"
#include "isolate/wire/spawner_format.h"

namespace talon::isolate::spawner {

// Directories of the spawner's root.
inline constexpr const char* kAttachPoint = "/m";  // init attaches its tree here (plan.cpp)
inline constexpr const char* kBench = "/b";        // where a tree is put together
inline constexpr const char* kBenchTemplate = "/t";
inline constexpr const char* kDevTemplate = "/d";
inline constexpr const char* kSysTemplate = "/s";
inline constexpr const char* kHostRoot = "/o";  // for moments only, see leave_host_mounts()

struct Spawner {
  UniqueFd socket;
  UniqueFd builder_socket;    // the builder's, until it is forked
  UniqueFd networker_socket;  // the same
  pid_t builder = -1;
  pid_t networker = -1;
  UniqueFd proc;  // detached procfs of the host's pid namespace
  UniqueFd own_netns;
  UniqueFd init_file;              // talon-init, a sealed memfd
  UniqueFd filler;                 // fills low numbers, see settle_descriptors()
  UniqueFd signals;                // signalfd: SIGCHLD
  std::uint64_t capabilities = 0;  // permitted, as at start
};

// Effective capabilities := `s.capabilities` (setfsuid to a non-zero id clears some).
Result<> raise_capabilities(const Spawner& s);

// Its helper may still be leaving when it returns; reap_helper() collects it.
Result<UniqueFd> make_user_ns(const Spawner& s, const wire::UserNs& request);
// Detaches kHostRoot. The RCU grace period that an umount waits for is a helper's: a third of a
// millisecond, and several on a busy machine.
Result<> drop_host_root();
// Without `patient` only if it has ended.
void reap_helper(bool patient);
Result<UniqueFd> make_net_ns(const Spawner& s);
Result<UniqueFd> make_cgroup_ns(const Spawner& s, int group);

// Makes the templates that every tree clones: the bench, /dev's nodes and the little /sys.
// `cpus`: contents of
// possible, present and online below /sys/devices/system/cpu, read before the host's mounts left.
Result<> make_templates(std::span<const std::string, 3> cpus);

// Where a tree is put together; unmounted with all that lies on it in one go (each umount waits
// for an RCU grace period, so it is done after the answer).
class Bench {
 public:
  Result<> open();
  Bench() = default;
  ~Bench();
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

 private:
  bool attached_ = false;
};

struct BuiltTree {
  MountFd tree;
  MountFd files;
};
// fds: [userns, image, upper parent or -1, workspace or -1]. `bench`: not yet opened, to be kept
// until the answer has been sent.
Result<BuiltTree> build_tree(const Spawner& s, Bench& bench, const wire::Tree& request,
                             std::span<const int> fds, wire::SpawnDetail& detail);

}  // namespace talon::isolate::spawner
