#pragma once
// What talond's own processes give up for good. Defence in depth: the daemon makes mounts and
// namespaces, so whoever runs code in it holds the host; what is given up here is what nothing of
// ours ever uses, and with it the ways to hide in the kernel (modules, kexec, bpf), to wait there
// (core files, traces of our memory) or to reach hardware.

#include <linux/capability.h>

#include <cstdint>
#include <initializer_list>

#include "base/error.h"

namespace talon::isolate {

constexpr std::uint64_t capability_set(std::initializer_list<unsigned> capabilities) {
  std::uint64_t set = 0;
  for (const unsigned capability : capabilities) {
    set |= std::uint64_t{1} << capability;
  }
  return set;
}

// What each process uses. The builder: files of any owner, overlays mounted under the ids of a
// sandbox's root, device nodes for /dev. Never SYS_RESOURCE: overlayfs writes with the credentials
// of who mounted it, and that capability is above disk quotas (docs/adr/0018).
inline constexpr std::uint64_t kBuilderCapabilities =
    capability_set({CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_FSETID,
                    CAP_MKNOD, CAP_SETUID, CAP_SETGID, CAP_SYS_ADMIN});
// The spawner, and init until it has joined its user namespace: namespaces, chroot, ids, the
// bounding set, groups that belong to a sandbox's init, a low OOM score.
inline constexpr std::uint64_t kSpawnerCapabilities =
    capability_set({CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_SETUID, CAP_SETGID, CAP_SETPCAP,
                    CAP_SYS_ADMIN, CAP_SYS_CHROOT, CAP_SYS_RESOURCE});
// The networker: network namespaces, lo and its settings.
inline constexpr std::uint64_t kNetworkerCapabilities =
    capability_set({CAP_NET_ADMIN, CAP_SYS_ADMIN});
inline constexpr std::uint64_t kAllThreeCapabilities =
    kBuilderCapabilities | kSpawnerCapabilities | kNetworkerCapabilities;
// `talond serve`, which starts the next spawner when one dies: file capabilities of images,
// descriptors that an adopted init holds, signals to anyone of ours, low ports, and for a spawner's
// first steps the power to shed the nice value that talond was started with.
inline constexpr std::uint64_t kDaemonCapabilities =
    kAllThreeCapabilities |
    capability_set({CAP_KILL, CAP_NET_BIND_SERVICE, CAP_SETFCAP, CAP_SYS_NICE, CAP_SYS_PTRACE});

// Bounding, permitted and effective set: what of `capabilities` is there; nothing inheritable or
// ambient. No new privileges, no core files, not dumpable: memory and descriptors are closed to
// every process without CAP_SYS_PTRACE (proc(5), ptrace(2)). By the only thread of a process.
Result<> give_up_all_but(std::uint64_t capabilities);

// Loads the daemon's system call filter: EPERM for calls that neither talond nor anything that it
// starts may need, a sandbox with `unconfined_seccomp` included. Children inherit it, so it names
// only what every part does without. By the only thread; nothing without kernel support.
Result<> deny_calls();

}  // namespace talon::isolate
