// What this process can see: namespaces, descriptors, mounts, devices, files.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "probe.h"

static const char* link_of(const char* path, char* buffer, size_t size) {
  const ssize_t n = readlink(path, buffer, size - 1);
  if (n < 0) {
    return error_name(errno);
  }
  buffer[n] = '\0';
  return buffer;
}

static int namespaces(int argc, char** argv) {
  static const char* const kNames[] = {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"};
  const char* pid = argc > 1 ? argv[1] : "self";
  json_begin();
  for (size_t i = 0; i < sizeof kNames / sizeof *kNames; ++i) {
    char path[128];
    char target[128];
    snprintf(path, sizeof path, "/proc/%s/ns/%s", pid, kNames[i]);
    json_text(kNames[i], link_of(path, target, sizeof target));
  }
  json_end();
  return 0;
}

// One line per open descriptor; fcntl finds them, so this works without /proc too.
static int fds(int argc, char** argv) {
  (void)argc;
  (void)argv;
  for (int fd = 0; fd < 65536; ++fd) {
    const int flags = fcntl(fd, F_GETFD);
    if (flags < 0) {
      continue;
    }
    struct stat st;
    memset(&st, 0, sizeof st);
    fstat(fd, &st);
    char path[64];
    char target[4096];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    json_begin();
    json_number("fd", fd);
    json_text("target", link_of(path, target, sizeof target));
    json_text("type", S_ISREG(st.st_mode)    ? "file"
                      : S_ISDIR(st.st_mode)  ? "directory"
                      : S_ISFIFO(st.st_mode) ? "pipe"
                      : S_ISSOCK(st.st_mode) ? "socket"
                      : S_ISCHR(st.st_mode)  ? "device"
                                             : "other");
    json_number("uid", st.st_uid);
    json_number("mode", st.st_mode & 07777);
    json_number("open_flags", fcntl(fd, F_GETFL));
    json_bool("cloexec", (flags & FD_CLOEXEC) != 0);
    json_end();
  }
  return 0;
}

// mountinfo (proc(5)): root, mount point, options, type, source, super options.
static int mounts(int argc, char** argv) {
  (void)argc;
  (void)argv;
  FILE* f = fopen("/proc/self/mountinfo", "re");
  if (f == NULL) {
    json_begin();
    json_outcome(-1, errno);
    json_end();
    return 0;
  }
  static char line[65536];
  while (fgets(line, sizeof line, f) != NULL) {
    line[strcspn(line, "\n")] = '\0';
    char* words[64];
    int n = 0;
    int dash = 0;
    for (char* w = strtok(line, " "); w != NULL && n < 64; w = strtok(NULL, " ")) {
      if (dash == 0 && strcmp(w, "-") == 0) {
        dash = n;
      }
      words[n++] = w;
    }
    if (dash < 6 || n < dash + 4) {
      continue;
    }
    json_begin();
    json_text("root", words[3]);
    json_text("point", words[4]);
    json_text("options", words[5]);
    json_text("propagation", dash > 6 ? words[6] : "");
    json_text("type", words[dash + 1]);
    json_text("source", words[dash + 2]);
    json_text("super", words[dash + 3]);
    json_end();
  }
  fclose(f);
  return 0;
}

static int list(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    DIR* d = opendir(argv[i]);
    if (d == NULL) {
      json_begin();
      json_text("directory", argv[i]);
      json_outcome(-1, errno);
      json_end();
      continue;
    }
    for (const struct dirent* e = readdir(d); e != NULL; e = readdir(d)) {
      struct stat st;
      memset(&st, 0, sizeof st);
      const int r = fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW);
      if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) {
        continue;
      }
      json_begin();
      json_text("directory", argv[i]);
      json_text("entry", e->d_name);
      json_number("mode", r == 0 ? (long long)st.st_mode : -1);
      json_number("uid", st.st_uid);
      json_number("gid", st.st_gid);
      if (S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode)) {
        json_number("major", major(st.st_rdev));
        json_number("minor", minor(st.st_rdev));
      }
      json_end();
    }
    closedir(d);
  }
  return 0;
}

// Opens each path as asked and says how that went and how many of the first 4 KiB could be read.
static int open_as(int flags, int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    char buffer[4096];
    const int fd = open(argv[i], flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    const int error = fd < 0 ? errno : 0;
    json_begin();
    json_text("path", argv[i]);
    json_outcome(fd < 0 ? -1 : 0, error);
    if (fd >= 0 && (flags & O_ACCMODE) == O_RDONLY) {
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
static int readable(int argc, char** argv) { return open_as(O_RDONLY, argc, argv); }
static int writable(int argc, char** argv) { return open_as(O_WRONLY, argc, argv); }

// Tries to write the text to the path: what open() lets through, write() may still refuse.
static int write_to(int argc, char** argv) {
  if (argc != 3) {
    return 2;
  }
  const int fd = open(argv[1], O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  const ssize_t n = fd < 0 ? -1 : write(fd, argv[2], strlen(argv[2]));
  const int error = n < 0 ? errno : 0;
  json_begin();
  json_text("path", argv[1]);
  json_bool("opened", fd >= 0);
  json_outcome(n, error);
  json_end();
  return 0;
}

static int stat_of(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    struct stat st;
    struct statvfs fs;
    struct statfs type;
    memset(&st, 0, sizeof st);
    memset(&type, 0, sizeof type);
    memset(&fs, 0, sizeof fs);
    const int r = lstat(argv[i], &st);
    const int error = r == 0 ? 0 : errno;
    char target[4096];
    json_begin();
    json_text("path", argv[i]);
    json_outcome(r, error);
    if (r == 0) {
      statvfs(argv[i], &fs);
      statfs(argv[i], &type);
      json_number("mode", st.st_mode);
      json_number("rdev", (long long)st.st_rdev);
      json_hex("fs_type", (uint64_t)type.f_type);
      json_number("uid", st.st_uid);
      json_number("gid", st.st_gid);
      json_number("dev", (long long)st.st_dev);
      json_number("ino", (long long)st.st_ino);
      json_number("size", st.st_size);
      json_bool("readonly", (fs.f_flag & ST_RDONLY) != 0);
      json_number("fs_bytes", (long long)(fs.f_blocks * fs.f_frsize));
      if (S_ISLNK(st.st_mode)) {
        json_text("link", link_of(argv[i], target, sizeof target));
      }
    }
    json_end();
  }
  return 0;
}

// F9: from every directory descriptor and from /, climbs `..` until it stays where it is, and says
// which files it finds there.
static int climb(int argc, char** argv) {
  for (int fd = -1; fd < 4096; ++fd) {
    int at = fd < 0 ? open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                    : openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (at < 0) {
      continue;
    }
    struct stat before;
    struct stat now;
    fstat(at, &before);
    for (int i = 0; i < 64; ++i) {
      const int up = openat(at, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
      if (up < 0) {
        break;
      }
      close(at);
      at = up;
      fstat(at, &now);
      if (now.st_dev == before.st_dev && now.st_ino == before.st_ino) {
        break;
      }
      before = now;
    }
    for (int i = 1; i < argc; ++i) {
      const int r = faccessat(at, argv[i][0] == '/' ? argv[i] + 1 : argv[i], F_OK, 0);
      const int error = r == 0 ? 0 : errno;
      json_begin();
      json_number("from", fd);
      json_text("path", argv[i]);
      json_outcome(r, error);
      json_end();
    }
    close(at);
  }
  return 0;
}

static bool numeric_or_self(const char* name) {
  return (name[0] >= '0' && name[0] <= '9') || strcmp(name, "self") == 0 ||
         strcmp(name, "thread-self") == 0;
}

static long files_seen;

// Tries to open for writing (it writes nothing) every file below; a line for each that opens.
static void sweep(const char* dir, int depth) {
  DIR* d = depth < 16 ? opendir(dir) : NULL;
  for (const struct dirent* e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d)) {
    char path[4096];
    struct stat st;
    if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
        (strcmp(dir, "/proc") == 0 && numeric_or_self(e->d_name)) ||
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name) >= (int)sizeof path ||
        fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
      continue;
    }
    if (S_ISDIR(st.st_mode)) {
      sweep(path, depth + 1);
    } else if (!S_ISLNK(st.st_mode)) {
      ++files_seen;
      const int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
      if (fd >= 0) {
        close(fd);
        json_begin();
        json_text("path", path);
        json_end();
      }
    }
  }
  if (d != NULL) {
    closedir(d);
  }
}

static int writable_below(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    files_seen = 0;
    sweep(argv[i], 0);
    json_begin();
    json_text("directory", argv[i]);
    json_number("files", files_seen);
    json_end();
  }
  return 0;
}

const struct command view_commands[] = {
    {"ns", "[PID]: the process's namespaces", namespaces},
    {"fds", "every open descriptor", fds},
    {"mounts", "every mount, from mountinfo", mounts},
    {"list", "DIR…: entries with mode, owner and device numbers", list},
    {"read", "PATH…: whether each can be opened and read", readable},
    {"write", "PATH…: whether each can be opened for writing", writable},
    {"write-to", "PATH TEXT: whether the text can be written", write_to},
    {"writable-below", "DIR…: every file below that opens for writing, no process's own in /proc",
     writable_below},
    {"stat", "PATH…: lstat and the file system's flags", stat_of},
    {"climb", "PATH…: whether each is found at the top of `..` from / and every descriptor", climb},
    {NULL, NULL, NULL},
};
