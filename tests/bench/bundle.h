#pragma once
// What every contender runs: one root tree (static busybox, a tiny `true`), and OCI bundles on it
// that ask crun and runc for what a talon sandbox has: all namespaces with ids mapped, a seccomp
// allowlist, no capabilities, no_new_privs, masked and read-only paths.

#include <string>
#include <vector>

#include "base/error.h"

namespace talon::bench {

// Everything beneath one scratch directory, removed at the end.
class Workshop {
 public:
  // `tiny_true`: the program that is run everywhere, copied to /bin/true of the tree.
  static Result<Workshop> make(const std::string& tiny_true);
  Workshop(Workshop&& other) noexcept : dir_(std::move(other.dir_)) { other.dir_.clear(); }
  Workshop(const Workshop&) = delete;
  ~Workshop();

  std::string path(const std::string& name) const { return dir_ + "/" + name; }
  // On the tmpfs that enter_private_mounts() put there.
  static std::string run_path(const std::string& name) { return "/run/talon-bench-" + name; }
  std::string rootfs() const { return path("rootfs"); }
  std::string run_bundle() const { return path("bundle-run"); }
  std::string sleep_bundle() const { return path("bundle-sleep"); }

 private:
  Workshop() = default;
  std::string dir_;
};

// A mount namespace of our own in which /sys/fs/cgroup is the cgroup2 mount: crun refuses the
// hybrid layout that some hosts have; and /run is a tmpfs, as systemd has it, whatever it is here,
// for crun's and runc's state as for talond's. Nothing of the host's mounts changes.
Result<> enter_private_mounts();

// Spawns argv (looked up in PATH), waits; the time from spawn to reaped. Output goes to the file
// `log`; an exit code but 0 is an error that quotes its end.
Result<double> time_command(const std::vector<std::string>& argv, const std::string& log,
                            const std::vector<std::string>& environment = {});

}  // namespace talon::bench
