// Who this process is: ids, capabilities, limits, signals, keyring.
#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "probe.h"

static int ids(int argc, char** argv) {
  (void)argc;
  (void)argv;
  uid_t r, e, s;
  gid_t gr, ge, gs;
  getresuid(&r, &e, &s);
  getresgid(&gr, &ge, &gs);
  gid_t groups[256];
  const int n = getgroups(256, groups);
  char list[4096] = "";
  for (int i = 0; i < n; ++i) {
    snprintf(list + strlen(list), sizeof list - strlen(list), "%s%u", i > 0 ? " " : "", groups[i]);
  }
  json_begin();
  json_number("uid", r);
  json_number("euid", e);
  json_number("suid", s);
  json_number("gid", gr);
  json_number("egid", ge);
  json_number("sgid", gs);
  json_text("groups", list);
  json_number("pid", getpid());
  json_number("ppid", getppid());
  json_number("pgid", getpgid(0));
  json_number("sid", getsid(0));
  json_end();
  return 0;
}

static int caps(int argc, char** argv) {
  (void)argc;
  (void)argv;
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  struct __user_cap_data_struct data[2] = {{0}};
  if (syscall(SYS_capget, &header, data) != 0) {
    return 1;
  }
  uint64_t bounding = 0;
  uint64_t ambient = 0;
  for (unsigned cap = 0; cap < 64; ++cap) {
    if (prctl(PR_CAPBSET_READ, cap, 0, 0, 0) == 1) {
      bounding |= 1ull << cap;
    }
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, cap, 0, 0) == 1) {
      ambient |= 1ull << cap;
    }
  }
  json_begin();
  json_hex("inheritable", data[0].inheritable | (uint64_t)data[1].inheritable << 32);
  json_hex("permitted", data[0].permitted | (uint64_t)data[1].permitted << 32);
  json_hex("effective", data[0].effective | (uint64_t)data[1].effective << 32);
  json_hex("bounding", bounding);
  json_hex("ambient", ambient);
  json_number("no_new_privs", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
  json_number("securebits", prctl(PR_GET_SECUREBITS, 0, 0, 0, 0));
  json_number("dumpable", prctl(PR_GET_DUMPABLE, 0, 0, 0, 0));
  json_end();
  return 0;
}

// status PID: lines of /proc/PID/status that concern privilege and signals, as they are there.
static int status(int argc, char** argv) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%s/status", argc > 1 ? argv[1] : "self");
  FILE* f = fopen(path, "re");
  json_begin();
  if (f == NULL) {
    json_outcome(-1, errno);
    json_end();
    return 0;
  }
  static const char* const kWanted[] = {
      "Name",   "Uid",    "Gid",    "Groups", "NoNewPrivs", "Seccomp", "CapInh",  "CapPrm",
      "CapEff", "CapBnd", "CapAmb", "SigBlk", "SigIgn",     "SigCgt",  "Threads", "Seccomp_filters",
      "NSpid",  "State",  "PPid"};
  char line[4096];
  while (fgets(line, sizeof line, f) != NULL) {
    char* colon = strchr(line, ':');
    if (colon == NULL) {
      continue;
    }
    *colon = '\0';
    char* value = colon + 1 + strspn(colon + 1, " \t");
    value[strcspn(value, "\n")] = '\0';
    for (size_t i = 0; i < sizeof kWanted / sizeof *kWanted; ++i) {
      if (strcmp(line, kWanted[i]) == 0) {
        json_text(line, value);
      }
    }
  }
  fclose(f);
  json_end();
  return 0;
}

static int limits(int argc, char** argv) {
  (void)argc;
  (void)argv;
  static const struct {
    const char* name;
    int resource;
  } kLimits[] = {{"as", RLIMIT_AS},
                 {"core", RLIMIT_CORE},
                 {"cpu", RLIMIT_CPU},
                 {"data", RLIMIT_DATA},
                 {"fsize", RLIMIT_FSIZE},
                 {"memlock", RLIMIT_MEMLOCK},
                 {"msgqueue", RLIMIT_MSGQUEUE},
                 {"nofile", RLIMIT_NOFILE},
                 {"nproc", RLIMIT_NPROC},
                 {"nice", RLIMIT_NICE},
                 {"rtprio", RLIMIT_RTPRIO},
                 {"sigpending", RLIMIT_SIGPENDING},
                 {"stack", RLIMIT_STACK}};
  for (size_t i = 0; i < sizeof kLimits / sizeof *kLimits; ++i) {
    struct rlimit now = {0, 0};
    getrlimit(kLimits[i].resource, &now);
    struct rlimit more = now;
    more.rlim_max = now.rlim_max == RLIM_INFINITY ? RLIM_INFINITY : now.rlim_max + 1;
    const bool capped = now.rlim_max != RLIM_INFINITY;
    const int raised = capped ? setrlimit(kLimits[i].resource, &more) : 0;
    json_begin();
    json_text("limit", kLimits[i].name);
    json_number("soft", now.rlim_cur == RLIM_INFINITY ? -1 : (long long)now.rlim_cur);
    json_number("hard", capped ? (long long)now.rlim_max : -1);
    json_text("raise", capped ? error_name(raised == 0 ? 0 : errno) : "unlimited");
    json_end();
  }
  return 0;
}

// What a process inherits that is easily forgotten.
static int inherited(int argc, char** argv) {
  (void)argc;
  (void)argv;
  sigset_t blocked;
  sigprocmask(SIG_BLOCK, NULL, &blocked);
  int blocked_count = 0;
  int ignored_count = 0;
  int handled_count = 0;
  for (int s = 1; s < 65; ++s) {
    struct sigaction action;
    blocked_count += sigismember(&blocked, s) == 1;
    if (sigaction(s, NULL, &action) == 0) {
      ignored_count += action.sa_handler == SIG_IGN;
      handled_count += action.sa_handler != SIG_IGN && action.sa_handler != SIG_DFL;
    }
  }
  struct itimerval timer = {{0, 0}, {0, 0}};
  getitimer(ITIMER_REAL, &timer);
  const mode_t mask = umask(0);
  umask(mask);
  char cwd[4096];
  int death = 0;
  prctl(PR_GET_PDEATHSIG, &death, 0, 0, 0);
  json_begin();
  json_number("blocked", blocked_count);
  json_number("ignored", ignored_count);
  json_number("handled", handled_count);
  json_bool("timer", timer.it_value.tv_sec != 0 || timer.it_value.tv_usec != 0);
  json_number("alarm", alarm(0));
  json_number("umask", mask);
  errno = 0;
  json_number("nice", getpriority(PRIO_PROCESS, 0));
  json_number("policy", sched_getscheduler(0));
  json_number("personality", personality(0xffffffff));
  json_number("pdeathsig", death);
  json_text("cwd", syscall(SYS_getcwd, cwd, sizeof cwd) > 0 ? cwd : error_name(errno));
  json_end();
  return 0;
}

// The session keyring's id and description as far as keyctl tells.
static int keyring(int argc, char** argv) {
  (void)argc;
  (void)argv;
  const long id = syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0, 0, 0);
  json_begin();
  json_outcome(id, id < 0 ? errno : 0);
  json_end();
  return 0;
}

const struct command identity_commands[] = {
    {"ids", "user, group, process and session ids", ids},
    {"caps", "capability sets, no_new_privs, securebits, dumpable", caps},
    {"status", "[PID]: privilege and signal lines of /proc/PID/status", status},
    {"limits", "resource limits and whether they can be raised", limits},
    {"inherited", "signals, timers, umask, nice, personality, cwd", inherited},
    {"keyring", "the session keyring's id", keyring},
    {NULL, NULL, NULL},
};
