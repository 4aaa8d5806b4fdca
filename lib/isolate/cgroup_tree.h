#pragma once
// Making, limiting, killing and removing cgroups (decisions 14, 14a; kernel: cgroup-v2.rst).
// CgroupRoot is the directory talon-<instance>; CgroupTree one sandbox's group with init/ and x/.

#include <fcntl.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "isolate/cgroup.h"

namespace talon::isolate {

// Where cgroup2 is mounted, "" if nowhere. Reads /proc/self/mountinfo.
std::string find_cgroup_mount();

// Where talon may make groups (decision 14). `take` does what the place needs: a configured
// directory is made, and from a delegated group talon moves itself to <g>/daemon; `look` only
// finds out (doctor). The error says what was tried.
enum class Place { look, take };
Result<std::string> choose_cgroup_place(const std::string& configured, Place mode);

// "major:minor" of the whole disk that `path` lies on, which io.max wants; "" where the file system
// is not on one (tmpfs, overlay, btrfs).
std::string disk_of(const std::string& path);

// Names in <group>/cgroup.controllers.
std::vector<std::string> controllers_of(const std::string& group);

class CgroupTree;

class CgroupRoot {
 public:
  // Makes `place`/talon-`instance` and enables the controllers talon uses, as far as they exist.
  // `disk` as of disk_of(), "" = not known.
  static Result<CgroupRoot> open(const std::string& place, const std::string& instance,
                                 std::string disk = {});

  const std::string& path() const { return path_; }
  const std::vector<std::string>& controllers() const { return controllers_; }
  bool has(std::string_view controller) const;

  // 422 for an asked-for limit whose controller or disk is missing.
  Result<> check(const Limits& limits) const;

  // Makes <id>/ with its limits, init/ and x/; nothing runs in it yet. On failure nothing is
  // left. `init_id`: the host id that init will have.
  Result<CgroupTree> make(const std::string& id, const Limits& limits, std::uint32_t init_id) const;
  // Writes the limits of a group that was made with none (a pool's) and has its controllers.
  Result<> limit(CgroupTree& tree, const Limits& limits) const;

  // Names of the groups in it.
  Result<std::vector<std::string>> list() const;

 private:
  std::string path_;
  DirFd dir_;
  std::string disk_;
  std::vector<std::string> controllers_;
};

class CgroupTree {
 public:
  // An existing one, by absolute path (adoption, sweep); its limits are read back.
  static Result<CgroupTree> open(const std::string& path);

  const std::string& path() const { return path_; }
  const DirFd& dir() const { return dir_; }
  const CgroupApplied& applied() const { return applied_; }
  // What each exec's own group repeats, because runtimes look for their limits there.
  Limits repeated() const;
  Result<DirFd> open_init() const { return open_at(dir_.get(), "init", O_RDONLY | O_DIRECTORY); }
  Result<DirFd> open_execs() const { return open_at(dir_.get(), "x", O_RDONLY | O_DIRECTORY); }

  // After the cgroup namespace's helper has left the group: controllers for init/ and x/.
  Result<> enable_controllers(const std::vector<std::string>& controllers) const;

  Result<CgroupStats> stats() const;

  // Freezes the execs, x/ as a whole, or lets them go; init is not among them (decision 15).
  // Freezing waits until the kernel says that every process stands: timeout when one does not,
  // and then they go on.
  Result<> freeze(bool frozen, std::chrono::milliseconds deadline) const;
  // What was asked for last.
  bool frozen() const;

  // 1 to cgroup.kill: every process in it and below, whatever it is doing.
  Result<> kill() const;
  // rmdir of it and all below; EBUSY (the last processes are still leaving) is tried again for
  // up to two seconds. Gone already is success.
  Result<> remove() const;

 private:
  friend class CgroupRoot;
  Result<> limit_execs() const;
  std::string path_;
  DirFd dir_;
  CgroupApplied applied_;
};

}  // namespace talon::isolate
