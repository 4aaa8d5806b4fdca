// Making and entering namespaces by every call that can (S1, S6).
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probe.h"

static const struct {
  const char* name;
  unsigned long flag;
} kFlags[] = {{"user", CLONE_NEWUSER},     {"mnt", CLONE_NEWNS},    {"pid", CLONE_NEWPID},
              {"net", CLONE_NEWNET},       {"ipc", CLONE_NEWIPC},   {"uts", CLONE_NEWUTS},
              {"cgroup", CLONE_NEWCGROUP}, {"time", CLONE_NEWTIME}, {"none", 0}};

// The flag named by the argument, or user.
static unsigned long flag_of(int argc, char** argv) {
  for (size_t i = 0; argc > 1 && i < sizeof kFlags / sizeof *kFlags; ++i) {
    if (strcmp(argv[1], kFlags[i].name) == 0) {
      return kFlags[i].flag;
    }
  }
  return CLONE_NEWUSER;
}

static long end_child(long pid) {
  if (pid == 0) {
    _exit(0);
  }
  if (pid > 0) {
    const int kept = errno;
    waitpid((pid_t)pid, NULL, 0);
    errno = kept;
    return 0;
  }
  return -1;
}

static long try_unshare(int argc, char** argv) { return unshare((int)flag_of(argc, argv)); }
static long unshare_user(int argc, char** argv) {
  (void)argc;
  (void)argv;
  return unshare(CLONE_NEWUSER);
}

// A user namespace first, then everything that it would allow (the probe of S6's FAIL).
static long unshare_user_mount(int argc, char** argv) {
  (void)argc;
  (void)argv;
  return unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET);
}

static long raw_clone(unsigned long flags) {
#ifdef __x86_64__
  return end_child(syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0));
#else
  return end_child(syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0));
#endif
}
static long try_clone(int argc, char** argv) { return raw_clone(flag_of(argc, argv)); }
static long clone_user(int argc, char** argv) {
  (void)argc;
  (void)argv;
  return raw_clone(CLONE_NEWUSER);
}

static long raw_clone3(unsigned long flags) {
  struct clone_args args;
  memset(&args, 0, sizeof args);
  args.flags = flags;
  args.exit_signal = SIGCHLD;
  return end_child(syscall(SYS_clone3, &args, sizeof args));
}
static long try_clone3(int argc, char** argv) { return raw_clone3(flag_of(argc, argv)); }
static long clone3_user(int argc, char** argv) {
  (void)argc;
  (void)argv;
  return raw_clone3(CLONE_NEWUSER);
}
static long clone3_plain(int argc, char** argv) {
  (void)argc;
  (void)argv;
  return raw_clone3(0);
}
// clone3 into a cgroup by descriptor: the named one, else the root of the mount that is visible.
static long clone3_into(int argc, char** argv) {
  const char* path = argc > 1 ? argv[1] : "/sys/fs/cgroup";
  const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  struct clone_args args;
  memset(&args, 0, sizeof args);
  args.flags = CLONE_INTO_CGROUP;
  args.exit_signal = SIGCHLD;
  args.cgroup = (unsigned long long)fd;
  return fd < 0 ? -1 : end_child(syscall(SYS_clone3, &args, sizeof args));
}

// setns to a namespace of a process: "setns [NAME] [PID]".
static long try_setns(int argc, char** argv) {
  char path[64];
  const char* name = argc > 1 ? argv[1] : "user";
  snprintf(path, sizeof path, "/proc/%s/ns/%s", argc > 2 ? argv[2] : "self", name);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  return fd < 0 ? -1 : setns(fd, 0);
}
static long setns_init(int argc, char** argv) {
  (void)argc;
  (void)argv;
  const int fd = (int)syscall(SYS_pidfd_open, 1, 0);
  return fd < 0 ? -1 : setns(fd, CLONE_NEWNS | CLONE_NEWNET);
}

// A thread: what every threaded program needs.
static int nothing(void* unused) {
  (void)unused;
  return 0;
}
static long thread(int argc, char** argv) {
  (void)argc;
  (void)argv;
  static char stack[65536] __attribute__((aligned(16)));
  const int pid =
      clone(nothing, stack + sizeof stack, CLONE_VM | CLONE_FS | CLONE_FILES | SIGCHLD, NULL);
  return end_child(pid < 0 ? -1 : pid);
}

const struct attempt namespace_attempts[] = {
    {"unshare-user", "unshare(CLONE_NEWUSER)", unshare_user},
    {"unshare-user-mount", "unshare(CLONE_NEWUSER|CLONE_NEWNS|CLONE_NEWNET)", unshare_user_mount},
    {"unshare", "user|mnt|pid|net|ipc|uts|cgroup|time: unshare of that kind", try_unshare},
    {"clone-newuser", "clone(CLONE_NEWUSER)", clone_user},
    {"clone", "user|mnt|…|none: clone of that kind", try_clone},
    {"clone3-newuser", "clone3(CLONE_NEWUSER)", clone3_user},
    {"clone3-plain", "clone3 of an ordinary child", clone3_plain},
    {"clone3-cgroup", "clone3(CLONE_INTO_CGROUP) into the visible cgroup", clone3_into},
    {"clone3-into", "DIR: clone3(CLONE_INTO_CGROUP) into that cgroup", clone3_into},
    {"clone3", "user|mnt|…|none: clone3 of that kind", try_clone3},
    {"setns", "[NAME] [PID]: setns to that namespace", try_setns},
    {"setns-init", "setns to init's namespaces by pidfd", setns_init},
    {"thread", "a thread-like clone, which must work", thread},
    {NULL, NULL, NULL},
};
