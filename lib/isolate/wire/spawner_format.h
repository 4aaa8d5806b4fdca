#pragma once
// Requests to the spawner (SOCK_SEQPACKET, one request in flight per message, answered in
// order) and what comes back. The first message is a SpawnReply with op 0: ready, or why not. The
// spawner trusts talond (the same binary, the same user); it still checks sizes and counts.

#include <stdint.h>

#include "isolate/wire/frames.h"
#include "isolate/wire/plan_format.h"

namespace talon::wire {

enum class SpawnOp : uint32_t {
  user_ns = 1,    // UserNs -> fd: maps 0..65535 to base, max_user_namespaces 0
  net_ns = 2,     // -> fd: lo up, ip_unprivileged_port_start 0
  cgroup_ns = 3,  // fds: [group dir] -> fd: cgroup namespace rooted there
  tree = 4,       // Tree + fds: [userns, image, upper parent (disk), workspace (has_workspace)]
                  //   -> fds: [tree, files clone]. All but userns are detached mounts: a mount
                  //   can only be cloned in the mount namespace that holds it, talond's
  clone = 5,      // Clone + fds: [cgroup dir init/, plan memfd, slots in mask order] -> pidfd
  reaped = 7,     // event, spawner -> talond: SpawnReply with pid and detail = waitpid's status;
                  // best effort, dropped when the socket is full
};

struct SpawnRequest {
  uint32_t op;
  uint32_t size;  // bytes of the op's struct that follow
};

struct UserNs {
  uint32_t base;
  uint32_t count;  // 65536
};

enum class TreeStorage : uint32_t { disk = 0, memory = 1, readonly = 2 };

struct Tree {
  uint32_t storage;
  uint32_t id_base;      // host id of 0 inside
  uint64_t upper_bytes;  // memory: size of the upper tmpfs
  uint64_t upper_inodes;
  uint64_t shm_bytes;
  uint64_t tmp_bytes;  // 0: /tmp is part of the root
  uint32_t has_workspace;
  uint32_t idmapped_tmpfs;  // HostFacts: kernel >= 6.3
};

struct Clone {
  uint64_t slot_mask;  // bit s set: a descriptor for Slot s follows, in ascending order
};

enum class SpawnDetail : uint32_t {
  none = 0,
  image = 1,  // the image is at fault: a mount target is a link, a file or missing
};

struct SpawnReply {
  uint32_t op;
  int32_t error;    // errno
  int32_t pid;      // clone: host pid
  uint32_t detail;  // SpawnDetail
  char text[160];   // NUL-terminated: what was being done when it failed
};

}  // namespace talon::wire
