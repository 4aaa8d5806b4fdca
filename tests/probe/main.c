#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probe.h"

static const struct command* const kCommands[] = {identity_commands, view_commands,
                                                  process_commands, load_commands,
                                                  trap_commands,     neighbour_commands};
static const struct attempt* const kAttempts[] = {namespace_attempts, mount_attempts,
                                                  kernel_attempts,    socket_attempts,
                                                  process_attempts,   terminal_attempts,
                                                  trap_attempts,      neighbour_attempts};
enum {
  kCommandTables = sizeof kCommands / sizeof *kCommands,
  kAttemptTables = sizeof kAttempts / sizeof *kAttempts,
};

static const struct attempt* find_attempt(const char* name) {
  for (int t = 0; t < kAttemptTables; ++t) {
    for (const struct attempt* a = kAttempts[t]; a->name != NULL; ++a) {
      if (strcmp(a->name, name) == 0) {
        return a;
      }
    }
  }
  return NULL;
}

static void attempt_once(const struct attempt* a, int argc, char** argv) {
  fflush(stdout);
  const pid_t child = fork();
  if (child < 0) {
    json_begin();
    json_text("try", a->name);
    json_text("problem", "fork");
    json_outcome(-1, errno);
    json_end();
    return;
  }
  if (child == 0) {
    errno = 0;
    const long result = a->run(argc, argv);
    const int error = result < 0 ? errno : 0;
    json_begin();
    json_text("try", a->name);
    if (argc > 1) {
      json_text("argument", argv[1]);
    }
    json_outcome(result, error);
    json_end();
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) {
    json_begin();
    json_text("try", a->name);
    json_number("signal", WTERMSIG(status));
    json_end();
  }
}

// Outside of any sandbox, as root, much of this would really happen: a tmpfs over /tmp, /proc gone.
static bool on_the_host(void) {
  unsigned long inside = 1, outside = 1, count = 0;
  FILE* map = fopen("/proc/self/uid_map", "re");
  if (map != NULL) {
    if (fscanf(map, "%lu %lu %lu", &inside, &outside, &count) != 3) {
      count = 0;
    }
    fclose(map);
  }
  return inside == 0 && outside == 0 && count == 4294967295ul && getenv("PROBE_ON_HOST") == NULL;
}

static int try_one(int argc, char** argv) {
  const struct attempt* a = argc > 0 ? find_attempt(argv[0]) : NULL;
  if (a == NULL) {
    fprintf(stderr, "probe: nothing to try is called `%s`\n", argc > 0 ? argv[0] : "");
    return 2;
  }
  attempt_once(a, argc, argv);
  return 0;
}

// Every attempt that needs no argument, one after another.
static int try_all(void) {
  for (int t = 0; t < kAttemptTables; ++t) {
    for (const struct attempt* a = kAttempts[t]; a->name != NULL; ++a) {
      if (strchr(a->help, ':') == NULL) {  // "ARGS: help" takes arguments
        char* argv[] = {(char*)(uintptr_t)a->name, NULL};
        attempt_once(a, 1, argv);
      }
    }
  }
  return 0;
}

static int usage(FILE* out) {
  fputs("usage: probe COMMAND [ARGS] | probe try NAME [ARGS] | probe try-all\n", out);
  for (int t = 0; t < kCommandTables; ++t) {
    for (const struct command* c = kCommands[t]; c->name != NULL; ++c) {
      fprintf(out, "  %-20s %s\n", c->name, c->help);
    }
  }
  for (int t = 0; t < kAttemptTables; ++t) {
    for (const struct attempt* a = kAttempts[t]; a->name != NULL; ++a) {
      fprintf(out, "  try %-24s %s\n", a->name, a->help);
    }
  }
  return out == stdout ? 0 : 2;
}

int main(int argc, char** argv) {
  if (argc < 2) {
    return usage(stderr);
  }
  if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0) {
    return usage(stdout);
  }
  const bool tries = strncmp(argv[1], "try", 3) == 0 || strncmp(argv[1], "init-", 5) == 0 ||
                     strcmp(argv[1], "kill-stop-loop") == 0 || strcmp(argv[1], "calls") == 0;
  if (tries && on_the_host()) {
    fputs(
        "probe: this is no sandbox (the initial user namespace); set PROBE_ON_HOST=1 if that is "
        "meant\n",
        stderr);
    return 3;
  }
  if (strcmp(argv[1], "try") == 0) {
    return try_one(argc - 2, argv + 2);
  }
  if (strcmp(argv[1], "try-all") == 0) {
    return try_all();
  }
  for (int t = 0; t < kCommandTables; ++t) {
    for (const struct command* c = kCommands[t]; c->name != NULL; ++c) {
      if (strcmp(c->name, argv[1]) == 0) {
        return c->run(argc - 1, argv + 1);
      }
    }
  }
  fprintf(stderr, "probe: no command `%s`\n", argv[1]);
  return 2;
}
