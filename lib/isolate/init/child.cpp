// The new process between clone3 and execve. It runs on its own stack but in init's memory:
// nothing here may write to anything but its context and its stack.

#include "isolate/init/state.h"

namespace talon::init {
namespace {

constexpr int kFirstFree = 5;  // 0-2, script, status

int status_place(const ChildContext& c) { return c.script < 0 ? 3 : 4; }

[[noreturn]] void give_up(int status, uint32_t stage, long err) {
  ChildReport report = {stage, (int32_t)-err};
  write(status, &report, sizeof report);
  exit_group(err == -ENOENT ? 127 : 126);
}

int moved_up(int fd) { return fd >= 0 && fd < kFirstFree ? (int)dup_from(fd, kFirstFree) : fd; }

// 0-2 (and 3 for a script) become the exec's, the next one the status pipe; all else is closed at
// once, so that a child stopped before its execve holds no end of anybody's pipe. The numbers in
// `c` stay as they are: init closes its own copies by them, perhaps at this very moment.
long place_descriptors(const ChildContext& c) {
  int from[5] = {c.in == 0 ? 0 : moved_up(c.in), moved_up(c.out), moved_up(c.err),
                 moved_up(c.script), moved_up(c.status)};
  int status = status_place(c);
  from[status] = from[4];
  for (int to = 0; to <= status; ++to) {
    long err = from[to] == to ? sys(__NR_fcntl, to, F_SETFD, 0)
                              : sys(__NR_dup3, from[to], to, to == status ? O_CLOEXEC : 0);
    if (err < 0) {
      return err;
    }
  }
  return sys(__NR_close_range, status + 1, ~0u, 0);
}

long drop_bounding(uint64_t caps) {
  for (unsigned cap = 0; cap < 64; ++cap) {
    if ((caps >> cap & 1) != 0) {
      long err = sys(__NR_prctl, PR_CAPBSET_DROP, cap, 0, 0, 0);
      if (err < 0) {
        return err;
      }
    }
  }
  return 0;
}

// Decision 1, in this order; exact under no_new_privs.
long become_user(const ChildContext& c) {
  long err = drop_bounding(c.drop_caps);
  err = err < 0 ? err : sys(__NR_setgroups, c.group_count, c.groups);
  err = err < 0 ? err : sys(__NR_setresgid, c.gid, c.gid, c.gid);
  err = err < 0 ? err : sys(__NR_setresuid, c.uid, c.uid, c.uid);
  return err < 0 ? err : set_caps(c.caps, c.caps, 0);
}

// The directory must be inside the sandbox's root: the kernel names one outside it
// "(unreachable)/…" (CVE-2024-21626).
long enter_cwd(ChildContext& c) {
  long err = sys(__NR_chdir, c.cwd);
  if (err < 0 && c.default_cwd && (err == -ENOENT || err == -ENOTDIR || err == -EACCES)) {
    err = sys(__NR_chdir, "/");
  }
  if (err < 0) {
    return err;
  }
  err = sys(__NR_getcwd, c.buffer, sizeof c.buffer);
  if (err < 0) {
    return err;
  }
  return c.buffer[0] == '/' ? 0 : -EXDEV;
}

// A file without #! and without a known format is a shell script, as execvp(3) has it.
long try_exec(const ChildContext& c, const char* path) {
  long err = sys(__NR_execve, path, c.argv, c.envp);
  if (err == -ENOEXEC) {
    const char* first = c.argv[0];
    c.argv[0] = path;
    c.argv[-1] = "/bin/sh";
    sys(__NR_execve, "/bin/sh", c.argv - 1, c.envp);
    c.argv[0] = first;
  }
  return err;
}

long search(ChildContext& c) {
  if (c.file[0] == 0) {
    return -ENOENT;
  }
  for (const char* p = c.file; *p != 0; ++p) {
    if (*p == '/') {
      return try_exec(c, c.file);
    }
  }
  size_t name = length(c.file);
  bool denied = false;
  for (const char* p = c.path;; ++p) {
    const char* end = p;
    while (*end != 0 && *end != ':') {
      ++end;
    }
    auto dir = (size_t)(end - p);
    if (dir + name + 3 <= sizeof c.buffer) {
      memcpy(c.buffer, p, dir);
      if (dir == 0) {
        c.buffer[dir++] = '.';
      }
      c.buffer[dir++] = '/';
      memcpy(c.buffer + dir, c.file, name + 1);
      long err = try_exec(c, c.buffer);
      denied = denied || err == -EACCES;
      bool next = err == -EACCES || err == -ENOENT || err == -ENOTDIR || err == -ESTALE ||
                  err == -ENODEV || err == -ETIMEDOUT || err == -ENAMETOOLONG || err == -ELOOP;
      if (!next) {
        return err;
      }
    }
    p = end;
    if (*p == 0) {
      return denied ? -EACCES : -ENOENT;
    }
  }
}

}  // namespace

void child_main(void* context) {
  auto& c = *static_cast<ChildContext*>(context);
  constexpr auto kClone = (uint32_t)wire::Stage::clone;
  long err = place_descriptors(c);
  if (err < 0) {
    give_up(c.status, kClone, err);
  }
  int status = status_place(c);
  sys(__NR_setsid);
  if (c.tty) {
    err = sys(__NR_ioctl, 0, 0x540E /* TIOCSCTTY, ioctl_tty(2) */, 0);
    if (err < 0) {
      give_up(status, kClone, err);
    }
  }
  struct rlimit64 limit = {c.nofile_soft, c.nofile_hard};
  sys(__NR_prlimit64, 0, RLIMIT_NOFILE, &limit, nullptr);
  err = become_user(c);
  if (err < 0) {
    give_up(status, kClone, err);
  }
  err = enter_cwd(c);
  if (err < 0) {
    give_up(status, (uint32_t)wire::Stage::cwd, err);
  }
  uint64_t none = 0;
  sys(__NR_rt_sigprocmask, 2 /* SIG_SETMASK */, &none, nullptr, sizeof none);
  give_up(status, 0, search(c));
}

}  // namespace talon::init
