// Traps for init and for the runtime (F3, F7), and what must hold in every thread (S11, I2).
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "probe.h"

#define UNUSED (void)argc, (void)argv

// All capabilities, permitted and effective.
static long capset_all(int argc, char** argv) {
  UNUSED;
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  struct __user_cap_data_struct data[2] = {{~0u, ~0u, 0}, {0x1ff, 0x1ff, 0}};
  return syscall(SYS_capset, &header, data);
}
// Only inheritable: what CVE-2022-29162 left behind.
static long capset_inheritable(int argc, char** argv) {
  UNUSED;
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  struct __user_cap_data_struct data[2] = {{0}};
  if (syscall(SYS_capget, &header, data) != 0) {
    return -1;
  }
  data[0].inheritable = 1u << CAP_SYS_ADMIN;
  return syscall(SYS_capset, &header, data);
}

static long ptrace_child(int argc, char** argv) {
  UNUSED;
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  const long result = ptrace(PTRACE_ATTACH, child, NULL, NULL);
  const int error = errno;
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  errno = error;
  return result;
}

// Makes its parent its tracer, then stops: a tracer that does not know stays waiting.
static int traceme_stop(int argc, char** argv) {
  UNUSED;
  json_begin();
  const long result = ptrace(PTRACE_TRACEME, 0, NULL, NULL);
  json_outcome(result, result < 0 ? errno : 0);
  json_end();
  raise(SIGSTOP);
  for (;;) {
    pause();
  }
  return 0;
}

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

// CVE-2019-5736: waits for a process that runs a memfd (init's child, made to execute itself by
// `#!/proc/self/exe`), keeps its file by O_PATH, and writes to it when the process is gone.
static void overwrite(const char* pid, int held) {
  char link[64];
  char path[64];
  snprintf(path, sizeof path, "/proc/%s", pid);
  for (int i = 0; i < 100 && access(path, F_OK) == 0; ++i) {
    kill((pid_t)atol(pid), SIGKILL);
    usleep(1000);
  }
  snprintf(link, sizeof link, "/proc/self/fd/%d", held);
  const int fd = open(link, O_RDWR | O_CLOEXEC);
  const int opened = fd < 0 ? errno : 0;
  const ssize_t n = fd < 0 ? -1 : write(fd, "XXXX", 4);
  const int written = n < 0 ? errno : 0;
  const int cut = fd < 0 || ftruncate(fd, 0) != 0 ? errno : 0;
  json_begin();
  json_text("opened", error_name(opened));
  json_text("written", error_name(written));
  json_text("truncated", error_name(cut));
  json_end();
  if (fd >= 0) {
    close(fd);
  }
}

static int catch_exe(int argc, char** argv) {
  const double end = now_s() + (argc > 1 ? (double)number_or_exit(argv[1]) : 5);
  while (now_s() < end) {
    DIR* d = opendir("/proc");
    for (const struct dirent* e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d)) {
      char path[300];
      char target[256];
      if (e->d_name[0] < '2' || e->d_name[0] > '9') {
        if (e->d_name[0] != '1' || e->d_name[1] == '\0') {
          continue;
        }
      }
      snprintf(path, sizeof path, "/proc/%s/exe", e->d_name);
      const ssize_t n = readlink(path, target, sizeof target - 1);
      if (n <= 0) {
        continue;
      }
      target[n] = '\0';
      const int held = strstr(target, "memfd:") != NULL ? open(path, O_PATH | O_CLOEXEC) : -1;
      if (held >= 0) {
        overwrite(e->d_name, held);
        close(held);
        closedir(d);
        return 0;
      }
    }
    if (d != NULL) {
      closedir(d);
    }
  }
  return 0;
}

static bool is_ours(const char* pid) {
  char path[300];
  char line[512];
  unsigned uid = 0;
  bool ours = false;
  snprintf(path, sizeof path, "/proc/%s/status", pid);
  FILE* f = fopen(path, "re");
  while (f != NULL && fgets(line, sizeof line, f) != NULL) {
    if (sscanf(line, "Uid: %u", &uid) == 1) {
      ours = uid == getuid();
    }
  }
  if (f != NULL) {
    fclose(f);
  }
  return ours;
}

// Everything that would reach into a process, its memory, descriptors, or what it shares with init.
static int ways_into(const char* name) {
  const pid_t pid = (pid_t)atol(name);
  char buffer[16];
  char path[300];
  struct iovec here = {buffer, sizeof buffer};
  struct iovec there = {(void*)0x200000, sizeof buffer};
  int ways = ptrace(PTRACE_SEIZE, pid, NULL, NULL) == 0;
  ways += process_vm_readv(pid, &here, 1, &there, 1, 0) > 0;
  ways += process_vm_writev(pid, &here, 1, &there, 1, 0) > 0;
  static const char* const kFiles[] = {"mem", "environ", "maps", "oom_score_adj", "fd/16", "fd/0"};
  for (size_t i = 0; i < sizeof kFiles / sizeof *kFiles; ++i) {
    snprintf(path, sizeof path, "/proc/%s/%s", name, kFiles[i]);
    const int fd = open(path, (i == 0 || i == 3 ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK);
    ways += fd >= 0 && (i == 3 || read(fd, buffer, sizeof buffer) > 0);
    if (fd >= 0) {
      close(fd);
    }
  }
  const int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
  for (int fd = 0; pidfd >= 0 && fd < 32; ++fd) {
    ways += syscall(SYS_pidfd_getfd, pidfd, fd, 0) >= 0;
  }
  if (pidfd >= 0) {
    close(pidfd);
  }
  return ways;
}

// Between clone and execve a child of init runs in init's memory, under the exec's user at the end.
// Stops it there, again and again, and tries every way in. `met`: processes of our own user that we
// may not look into, which only such a child is.
static int window(int argc, char** argv) {
  const double end = now_s() + (argc > 1 ? (double)number_or_exit(argv[1]) : 5);
  long met = 0;
  long opened = 0;
  while (now_s() < end) {
    kill(-1, SIGSTOP);
    DIR* d = opendir("/proc");
    for (const struct dirent* e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d)) {
      char path[300];
      char target[256];
      const long pid = atol(e->d_name);
      snprintf(path, sizeof path, "/proc/%s/exe", e->d_name);
      if (pid > 1 && pid != getpid() && readlink(path, target, sizeof target) < 0 &&
          errno == EACCES && is_ours(e->d_name)) {
        const int ways = ways_into(e->d_name);
        // Still before its execve? Else it was an ordinary process by then.
        if (readlink(path, target, sizeof target) < 0 && errno == EACCES) {
          ++met;
          opened += ways;
        }
      }
    }
    if (d != NULL) {
      closedir(d);
    }
  }
  kill(-1, SIGCONT);
  json_begin();
  json_number("met", met);
  json_number("opened", opened);
  json_end();
  return 0;
}

static void* try_bpf(void* result) {
  static char zeros[128];
  *(int*)result = syscall(SYS_bpf, 0, zeros, sizeof zeros) < 0 ? errno : 0;
  char path[64];
  snprintf(path, sizeof path, "/proc/self/task/%ld/status", syscall(SYS_gettid));
  FILE* f = fopen(path, "re");
  char line[4096];
  while (f != NULL && fgets(line, sizeof line, f) != NULL) {
    line[strcspn(line, "\n")] = '\0';
    char* value = strchr(line, '\t');
    if (value != NULL && (strncmp(line, "Seccomp:", 8) == 0 || strncmp(line, "NoNewPrivs:", 11) == 0 ||
                          strncmp(line, "Seccomp_filters:", 16) == 0)) {
      *strchr(line, ':') = '\0';
      json_text(line, value + 1);
    }
  }
  if (f != NULL) {
    fclose(f);
  }
  return NULL;
}

// What a second thread is under, and what it may do.
static int thread_status(int argc, char** argv) {
  UNUSED;
  pthread_t thread;
  int error = 0;
  json_begin();
  const int made = pthread_create(&thread, NULL, try_bpf, &error);
  if (made == 0) {
    pthread_join(thread, NULL);
  }
  json_text("made", error_name(made));
  json_text("bpf", error_name(error));
  json_end();
  return 0;
}

// Each call by number, with zeros for arguments: for calls that must be refused.
static int calls(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const long number = (long)number_or_exit(argv[i]);
    const long result = syscall(number, 0, 0, 0, 0, 0, 0);
    const int error = result < 0 ? errno : 0;
    json_begin();
    json_number("number", number);
    json_outcome(result, error);
    json_end();
  }
  return 0;
}

// Becomes another program image of the probe: what holds must survive an exec.
static int exec_again(int argc, char** argv) {
  (void)argc;
  execv("/proc/self/exe", argv);
  return 1;
}

const struct command trap_commands[] = {
    {"traceme-stop", "makes its parent its tracer and stops", traceme_stop},
    {"catch-exe", "[SECONDS]: keeps a memfd that is executed and tries to overwrite it", catch_exe},
    {"window", "[SECONDS]: stops init's children before their execve and tries to get into them",
     window},
    {"thread-status", "filter and no_new_privs of a second thread, and bpf in it", thread_status},
    {"calls", "NUMBER…: each of these system calls, without arguments", calls},
    {"exec", "COMMAND…: that command after another execve", exec_again},
    {NULL, NULL, NULL},
};

const struct attempt trap_attempts[] = {
    {"capset-all", "every capability", capset_all},
    {"capset-inheritable", "SYS_ADMIN as inheritable", capset_inheritable},
    {"ptrace-child", "PTRACE_ATTACH to an own child, which must work", ptrace_child},
    {NULL, NULL, NULL},
};
