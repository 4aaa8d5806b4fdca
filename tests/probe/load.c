// Payloads that do something: output of a known content, memory, CPU, processes, signals, ends.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "probe.h"

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static long long argument(int argc, char** argv, int i, long long otherwise) {
  return argc > i ? number_or_exit(argv[i]) : otherwise;
}

static int exit_with(int argc, char** argv) { return (int)argument(argc, argv, 1, 0); }

static int raise_signal(int argc, char** argv) {
  const int number = (int)argument(argc, argv, 1, SIGTERM);
  signal(number, SIG_DFL);
  raise(number);
  return 0;
}

static int spin(int argc, char** argv) {
  const double end = now_s() + (double)argument(argc, argv, 1, 1);
  volatile unsigned long n = 0;
  while (now_s() < end) {
    for (int i = 0; i < 100000; ++i) {
      n = n + 1;
    }
  }
  return 0;
}

static int sleep_for(int argc, char** argv) {
  const double end = now_s() + (double)argument(argc, argv, 1, 1);
  while (now_s() < end) {
    usleep(10000);
  }
  return 0;
}

static void nothing(int number) { (void)number; }

// Catches SIGTERM, SIGINT and SIGHUP and goes on.
static int stubborn(int argc, char** argv) {
  struct sigaction action = {.sa_handler = nothing};
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGHUP, &action, NULL);
  puts("ready");
  fflush(stdout);
  return sleep_for(argc, argv);
}

// BYTES [FD] [CHUNK]: byte i is 'a' + i % 26, a newline every 64; CHUNK bytes a write.
static int output(int argc, char** argv) {
  const long long total = argument(argc, argv, 1, 0);
  const int fd = (int)argument(argc, argv, 2, 1);
  const long long chunk = argument(argc, argv, 3, 65536);
  char* buffer = malloc((size_t)chunk);
  if (buffer == NULL || chunk < 1) {
    return 1;
  }
  for (long long at = 0; at < total;) {
    const long long want = total - at < chunk ? total - at : chunk;
    for (long long i = 0; i < want; ++i) {
      buffer[i] = (at + i) % 64 == 63 ? '\n' : (char)('a' + (at + i) % 26);
    }
    for (long long done = 0; done < want;) {
      const ssize_t n = write(fd, buffer + done, (size_t)(want - done));
      if (n < 0 && errno != EINTR) {
        fprintf(stderr, "probe: write: %s\n", error_name(errno));
        return 1;
      }
      done += n > 0 ? n : 0;
    }
    at += want;
  }
  free(buffer);
  return 0;
}

// MIB [SECONDS]: touches that much memory, says so, holds it.
static int eat_memory(int argc, char** argv) {
  const size_t size = (size_t)argument(argc, argv, 1, 16) << 20;
  char* at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) {
    json_begin();
    json_outcome(-1, errno);
    json_end();
    return 1;
  }
  for (size_t i = 0; i < size; i += 4096) {
    at[i] = 1;
  }
  puts("ready");
  fflush(stdout);
  const double end = now_s() + (double)argument(argc, argv, 2, 0);
  while (now_s() < end) {
    usleep(10000);
  }
  return 0;
}

// N: children that live until all were tried; prints how many there could be.
static int fork_many(int argc, char** argv) {
  const long long wanted = argument(argc, argv, 1, 100);
  int gate[2];
  if (pipe(gate) != 0) {
    return 1;
  }
  long long made = 0;
  int error = 0;
  for (; made < wanted; ++made) {
    const pid_t child = fork();
    if (child < 0) {
      error = errno;
      break;
    }
    if (child == 0) {
      char byte;
      close(gate[1]);
      (void)!read(gate[0], &byte, 1);
      _exit(0);
    }
  }
  close(gate[1]);
  while (wait(NULL) > 0) {
  }
  json_begin();
  json_number("made", made);
  json_text("name", error_name(error));
  json_end();
  return 0;
}

// SECONDS: a daemon that left session and parent, and keeps the pipes; prints its pid.
static int double_fork(int argc, char** argv) {
  const pid_t child = fork();
  if (child == 0) {
    setsid();
    const pid_t grandchild = fork();
    if (grandchild != 0) {
      printf("%d\n", (int)grandchild);
      fflush(stdout);
      _exit(0);
    }
    sleep_for(argc, argv);
    puts("late");
    fflush(stdout);
    _exit(0);
  }
  waitpid(child, NULL, 0);
  return 0;
}

// [SECONDS]: stops everything that it may, again and again (decision 14b, F10).
static int kill_stop_loop(int argc, char** argv) {
  const double end = now_s() + (double)argument(argc, argv, 1, 10);
  long rounds = 0;
  puts("ready");
  fflush(stdout);
  while (now_s() < end) {
    kill(-1, SIGSTOP);
    ++rounds;
  }
  json_begin();
  json_number("rounds", rounds);
  json_end();
  return 0;
}

// PATH BYTES: writes until that many are there or the disk is full.
static int fill(int argc, char** argv) {
  if (argc < 3) {
    return 2;
  }
  static char block[1 << 20];
  memset(block, 'x', sizeof block);
  const long long total = number_or_exit(argv[2]);
  const int fd = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  long long written = 0;
  int error = fd < 0 ? errno : 0;
  while (fd >= 0 && written < total) {
    const long long want = total - written;
    const ssize_t n =
        write(fd, block, want < (long long)sizeof block ? (size_t)want : sizeof block);
    if (n < 0) {
      error = errno;
      break;
    }
    written += n;
  }
  json_begin();
  json_number("written", written);
  json_text("name", error_name(error));
  json_end();
  return 0;
}

// DIR N: empty files until that many are there or the file system has no inode left; removes them.
static int fill_inodes(int argc, char** argv) {
  if (argc < 3 || chdir(argv[1]) != 0) {
    return 2;
  }
  char name[32];
  const long long wanted = number_or_exit(argv[2]);
  long long made = 0;
  int error = 0;
  for (; made < wanted; ++made) {
    snprintf(name, sizeof name, "inode-%lld", made);
    const int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
      error = errno;
      break;
    }
    close(fd);
  }
  for (long long i = 0; i < made; ++i) {
    snprintf(name, sizeof name, "inode-%lld", i);
    unlink(name);
  }
  json_begin();
  json_number("made", made);
  json_text("name", error_name(error));
  json_end();
  return 0;
}

// Prints argv, one JSON line each, then the environment.
static int echo_arguments(int argc, char** argv) {
  extern char** environ;
  for (int i = 1; i < argc; ++i) {
    json_begin();
    json_text("argument", argv[i]);
    json_end();
  }
  for (char** e = environ; *e != NULL; ++e) {
    json_begin();
    json_text("environment", *e);
    json_end();
  }
  return 0;
}

const struct command load_commands[] = {
    {"exit", "N: ends with that code", exit_with},
    {"raise", "N: ends by that signal", raise_signal},
    {"spin", "[SECONDS]: uses one CPU", spin},
    {"sleep", "[SECONDS]: sleeps", sleep_for},
    {"stubborn", "[SECONDS]: prints `ready`, then ignores TERM, INT and HUP", stubborn},
    {"output", "BYTES [FD] [CHUNK]: known bytes, CHUNK a write", output},
    {"eat-memory", "MIB [SECONDS]: touches and holds memory", eat_memory},
    {"fork-many", "N: how many children there can be at once", fork_many},
    {"double-fork", "[SECONDS]: leaves a daemon that holds the pipes", double_fork},
    {"kill-stop-loop", "[SECONDS]: kill(-1, SIGSTOP) over and over", kill_stop_loop},
    {"fill", "PATH BYTES: writes a file until it is that big", fill},
    {"fill-inodes", "DIR N: empty files until there are that many or no inode is left",
     fill_inodes},
    {"echo", "ARG…: its arguments and environment", echo_arguments},
    {NULL, NULL, NULL},
};
