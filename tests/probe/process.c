// What one process may do to another, above all to init (I7, I10, F2 to F4, F7, S10).
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "probe.h"

#define UNUSED (void)argc, (void)argv

// Every file of /proc/1 that would tell or change something; for writing where that is the harm.
static int init_files(int argc, char** argv) {
  UNUSED;
  static const struct {
    const char* name;
    int flags;
  } kFiles[] = {{"mem", O_RDONLY},           {"mem", O_RDWR},
                {"environ", O_RDONLY},       {"maps", O_RDONLY},
                {"smaps", O_RDONLY},         {"auxv", O_RDONLY},
                {"stack", O_RDONLY},         {"syscall", O_RDONLY},
                {"personality", O_RDONLY},   {"fd", O_RDONLY},
                {"fd/0", O_RDONLY},          {"fd/3", O_RDONLY},
                {"fdinfo", O_RDONLY},        {"map_files", O_RDONLY},
                {"root", O_RDONLY},          {"root/etc", O_RDONLY},
                {"cwd", O_RDONLY},           {"exe", O_RDONLY},
                {"exe", O_WRONLY},           {"ns/mnt", O_RDONLY},
                {"ns/user", O_RDONLY},       {"ns/net", O_RDONLY},
                {"oom_score_adj", O_WRONLY}, {"coredump_filter", O_WRONLY},
                {"comm", O_WRONLY},          {"clear_refs", O_WRONLY},
                {"timerslack_ns", O_WRONLY}, {"io", O_RDONLY},
                {"uid_map", O_WRONLY},       {"setgroups", O_WRONLY},
                {"pagemap", O_RDONLY},       {"task/1/mem", O_RDONLY}};
  for (size_t i = 0; i < sizeof kFiles / sizeof *kFiles; ++i) {
    char path[64];
    char buffer[512];
    snprintf(path, sizeof path, "/proc/1/%s", kFiles[i].name);
    const int fd = open(path, kFiles[i].flags | O_CLOEXEC | O_NONBLOCK);
    const int error = fd < 0 ? errno : 0;
    json_begin();
    json_text("path", path);
    json_bool("write", kFiles[i].flags != O_RDONLY);
    json_outcome(fd < 0 ? -1 : 0, error);
    if (fd >= 0 && kFiles[i].flags == O_RDONLY) {
      const ssize_t n = read(fd, buffer, sizeof buffer);
      json_number("read", n);
      json_text("read_error", error_name(n < 0 ? errno : 0));
    }
    json_end();
    if (fd >= 0) {
      close(fd);
    }
  }
  return 0;
}

// I10: becomes every id that is mapped and tries from there to limit, renice, trace, stop and end
// init. Prints how often each call succeeded; that init lives on is for the test to see.
static int init_from_every_id(int argc, char** argv) {
  const long long last = argc > 1 ? number_or_exit(argv[1]) : 65535;
  long became = 0, limited = 0, niced = 0, traced = 0, io = 0, scheduled = 0, killed = 0;
  int first_limit_error = 0;
  int first_trace_error = 0;
  for (long long id = 0; id <= last; ++id) {
    // The saved id stays 0, so the way back is open.
    if (setresgid((gid_t)id, (gid_t)id, 0) != 0 || setresuid((uid_t)id, (uid_t)id, 0) != 0) {
      (void)!setresuid(0, 0, 0);
      (void)!setresgid(0, 0, 0);
      continue;
    }
    ++became;
    struct rlimit one = {.rlim_cur = 1, .rlim_max = 1};
    if (prlimit(1, RLIMIT_NOFILE, &one, NULL) == 0) {
      ++limited;
    } else if (first_limit_error == 0) {
      first_limit_error = errno;
    }
    niced += setpriority(PRIO_PROCESS, 1, 19) == 0;
    io += syscall(SYS_ioprio_set, 1, 1, 3 << 13) == 0;
    scheduled += syscall(SYS_sched_setscheduler, 1, 5 /* SCHED_IDLE */, &(int){0}) == 0;
    if (ptrace(PTRACE_ATTACH, 1, NULL, NULL) == 0) {
      ++traced;
    } else if (first_trace_error == 0) {
      first_trace_error = errno;
    }
    killed += kill(1, SIGSTOP) == 0;
    killed += kill(1, SIGKILL) == 0;
    if (setresuid(0, 0, 0) != 0 || setresgid(0, 0, 0) != 0) {
      return 1;
    }
  }
  json_begin();
  json_number("became", became);
  json_number("limited", limited);
  json_text("limit_error", error_name(first_limit_error));
  json_number("niced", niced);
  json_number("io", io);
  json_number("scheduled", scheduled);
  json_number("traced", traced);
  json_text("trace_error", error_name(first_trace_error));
  json_number("kill_accepted", killed);  // the kernel drops both for a namespace's init
  json_end();
  return 0;
}

static long ptrace_init(int argc, char** argv) {
  UNUSED;
  return ptrace(PTRACE_ATTACH, 1, NULL, NULL);
}
static long ptrace_seize(int argc, char** argv) {
  UNUSED;
  return ptrace(PTRACE_SEIZE, 1, NULL, NULL);
}
static long traceme(int argc, char** argv) {
  UNUSED;
  return ptrace(PTRACE_TRACEME, 0, NULL, NULL);
}
static long vm_read(int argc, char** argv) {
  UNUSED;
  char buffer[16];
  struct iovec here = {buffer, sizeof buffer};
  struct iovec there = {(void*)0x200000, sizeof buffer};
  return process_vm_readv(1, &here, 1, &there, 1, 0);
}
static long vm_write(int argc, char** argv) {
  UNUSED;
  char buffer[16] = "";
  struct iovec here = {buffer, sizeof buffer};
  struct iovec there = {(void*)0x200000, sizeof buffer};
  return process_vm_writev(1, &here, 1, &there, 1, 0);
}
static long getfd(int argc, char** argv) {
  const int pidfd = (int)syscall(SYS_pidfd_open, 1, 0);
  return pidfd < 0
             ? -1
             : syscall(SYS_pidfd_getfd, pidfd, argc > 1 ? (int)number_or_exit(argv[1]) : 3, 0);
}
static long open_mem(int argc, char** argv) {
  UNUSED;
  return open("/proc/1/mem", O_RDONLY | O_CLOEXEC);
}
static long madvise_init(int argc, char** argv) {
  UNUSED;
  const int pidfd = (int)syscall(SYS_pidfd_open, 1, 0);
  struct iovec there = {(void*)0x200000, 4096};
  return pidfd < 0 ? -1 : syscall(SYS_process_madvise, pidfd, &there, 1, 21 /* PAGEOUT */, 0);
}
static long kill_init(int argc, char** argv) {
  return kill(1, argc > 1 ? (int)number_or_exit(argv[1]) : SIGKILL);
}
static long kill_pid(int argc, char** argv) {
  return argc < 2
             ? (errno = EINVAL, -1)
             : kill((pid_t)number_or_exit(argv[1]), argc > 2 ? (int)number_or_exit(argv[2]) : 0);
}
static long prlimit_init(int argc, char** argv) {
  UNUSED;
  struct rlimit one = {.rlim_cur = 1, .rlim_max = 1};
  return prlimit(1, RLIMIT_NOFILE, &one, NULL);
}
static long renice_init(int argc, char** argv) {
  UNUSED;
  return setpriority(PRIO_PROCESS, 1, 19);
}
static long become(int argc, char** argv) {
  const uid_t id = argc > 1 ? (uid_t)number_or_exit(argv[1]) : 65536;
  return setresuid(id, id, id);
}
static long become_unmapped(int argc, char** argv) {
  UNUSED;
  return setresuid(65536, 65536, 65536);
}
static long become_unmapped_fs(int argc, char** argv) {
  UNUSED;
  (void)syscall(SYS_setfsuid, 65536);
  errno = EINVAL;
  return syscall(SYS_setfsuid, -1) == 65536 ? 0 : -1;  // what it is now
}
// How many of 0…65535 can be taken.
static long become_all(int argc, char** argv) {
  UNUSED;
  long worked = 0;
  for (uid_t id = 0; id < 65536; ++id) {
    worked += setresuid(id, id, 0) == 0;
    if (setresuid(0, 0, 0) != 0) {
      return -1;
    }
  }
  return worked;
}
static long drop_groups(int argc, char** argv) {
  UNUSED;
  const gid_t group = 27;
  return setgroups(1, &group);
}
static long oom_lower(int argc, char** argv) {
  UNUSED;
  const int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  return fd < 0 ? -1 : write(fd, "-1000", 5);
}
static long exe_write(int argc, char** argv) {
  UNUSED;
  return open("/proc/self/exe", O_WRONLY | O_CLOEXEC);
}
static long init_exe_write(int argc, char** argv) {
  UNUSED;
  return open("/proc/1/exe", O_WRONLY | O_CLOEXEC);
}
// CVE-2024-21626: a working directory by an inherited descriptor. The number that can be entered.
static long chdir_fds(int argc, char** argv) {
  UNUSED;
  long entered = 0;
  for (int fd = 0; fd <= 64; ++fd) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    entered += chdir(path) == 0;
  }
  return entered;
}

const struct command process_commands[] = {
    {"init-files", "files of /proc/1: whether each opens", init_files},
    {"init-from-every-id", "[LAST]: tries to harm init as each id", init_from_every_id},
    {NULL, NULL, NULL},
};

const struct attempt process_attempts[] = {
    {"ptrace-init", "PTRACE_ATTACH to init", ptrace_init},
    {"ptrace-seize-init", "PTRACE_SEIZE of init", ptrace_seize},
    {"ptrace-traceme", "PTRACE_TRACEME", traceme},
    {"vm-read-init", "process_vm_readv of init", vm_read},
    {"vm-write-init", "process_vm_writev to init", vm_write},
    {"pidfd-getfd-init", "init's descriptor 3", getfd},
    {"pidfd-getfd", "FD: init's descriptor FD", getfd},
    {"open-init-mem", "/proc/1/mem", open_mem},
    {"madvise-init", "process_madvise of init", madvise_init},
    {"kill-init", "SIGKILL to init", kill_init},
    {"signal-init", "NUMBER: that signal to init", kill_init},
    {"kill", "PID [NUMBER]: a signal, by default none", kill_pid},
    {"prlimit-init", "init's RLIMIT_NOFILE", prlimit_init},
    {"renice-init", "init's nice value", renice_init},
    {"setresuid", "ID: all three user ids", become},
    {"setresuid-unmapped", "user id 65536", become_unmapped},
    {"setfsuid-unmapped", "file system id 65536", become_unmapped_fs},
    {"setresuid-all", "how many of the ids 0 to 65535 can be taken", become_all},
    {"setgroups", "one supplementary group", drop_groups},
    {"oom-lower", "own oom_score_adj to -1000", oom_lower},
    {"exe-write", "/proc/self/exe for writing", exe_write},
    {"init-exe-write", "/proc/1/exe for writing", init_exe_write},
    {"chdir-fds", "how many of /proc/self/fd/0 to 64 can be entered", chdir_fds},
    {NULL, NULL, NULL},
};
