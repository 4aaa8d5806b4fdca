// Project quota: a project id on directories, which their new files inherit, and a limit for it.

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/quota.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/limits.h"
#include "isolate/disk.h"
#include "isolate/host_probe.h"

namespace talon::isolate::disk {

namespace {

constexpr std::uint64_t kBlock = 1024;  // QIF_DQBLKSIZE: quotactl(2) counts limits in these
constexpr int kTries = 64;

Result<dqblk> quota_of(int dir, std::uint32_t project) {
  dqblk quota{};
  if (syscall(SYS_quotactl_fd, dir, QCMD(Q_GETQUOTA, PRJQUOTA), project, &quota) != 0 &&
      errno != ENOENT && errno != ESRCH) {  // XFS: never used
    return fail_sys(errno, "read a project's quota");
  }
  return quota;
}

Result<> set_project(int dir, std::uint32_t project) {
  fsxattr attributes{};
  if (ioctl(dir, FS_IOC_FSGETXATTR, &attributes) == 0) {
    attributes.fsx_projid = project;
    attributes.fsx_xflags |= FS_XFLAG_PROJINHERIT;
    if (ioctl(dir, FS_IOC_FSSETXATTR, &attributes) == 0) {
      return {};
    }
  }
  return fail_sys(errno, "give a directory its project");
}

Result<std::uint32_t> random_project() {
  std::uint32_t number = 0;
  if (getrandom(&number, sizeof(number), 0) != static_cast<ssize_t>(sizeof(number))) {
    return fail_sys(errno, "getrandom");
  }
  return limits::kProjectBase + number % limits::kProjects;
}

// `dir` becomes the one member of a project that had none. Two daemons that meet at one number both
// count two members; the second of them, or both, go elsewhere.
Result<std::uint32_t> claim_project(int dir, std::uint64_t bytes) {
  for (int i = 0; i < kTries; ++i) {
    TALON_TRY(project, random_project());
    TALON_TRY(before, quota_of(dir, project));
    if (before.dqb_curinodes != 0) {
      continue;
    }
    TALON_CHECK(set_quota(dir, project, bytes));
    TALON_CHECK(set_project(dir, project));
    TALON_TRY(after, quota_of(dir, project));
    if (after.dqb_curinodes == 1) {
      return project;
    }
    TALON_CHECK(set_project(dir, 0));
  }
  return fail(Code::unavailable, "no project id is free");
}

}  // namespace

Result<> set_quota(int dir, std::uint32_t project, std::uint64_t bytes) {
  dqblk quota{};
  quota.dqb_bhardlimit = quota.dqb_bsoftlimit = bytes / kBlock;
  // Empty files cost blocks of the host's too. As many as a tmpfs of the size may have.
  quota.dqb_ihardlimit = quota.dqb_isoftlimit = std::max<std::uint64_t>(65536, bytes / 4096);
  quota.dqb_valid = QIF_LIMITS;
  if (syscall(SYS_quotactl_fd, dir, QCMD(Q_SETQUOTA, PRJQUOTA), project, &quota) != 0) {
    return fail_sys(errno, "limit a project");
  }
  return {};
}

bool has_project_quota(int dir) { return probe::project_quota(dir); }

Result<std::uint32_t> project_of(int dir) {
  fsxattr attributes{};
  if (ioctl(dir, FS_IOC_FSGETXATTR, &attributes) != 0) {
    // A file system without the notion (tmpfs, overlay).
    return errno == ENOTTY || errno == EOPNOTSUPP ? Result<std::uint32_t>{0}
                                                  : fail_sys(errno, "read a directory's project");
  }
  const std::uint32_t project = attributes.fsx_projid;
  const bool ours =
      project >= limits::kProjectBase && project < limits::kProjectBase + limits::kProjects;
  return ours ? project : 0;
}

Result<std::uint32_t> limit_by_quota(std::span<const int> trees, std::uint64_t bytes) {
  TALON_TRY(project, project_of(trees.front()));
  if (project == 0) {
    TALON_TRY(claimed, claim_project(trees.front(), bytes));
    project = claimed;
  } else {
    TALON_CHECK(set_quota(trees.front(), project, bytes));
  }
  // One project for all: a rename from one to another is EXDEV, and overlayfs renames what it has
  // copied from work/ to upper/.
  for (const int tree : trees.subspan(1)) {
    TALON_CHECK(set_project(tree, project));
  }
  return project;
}

}  // namespace talon::isolate::disk
