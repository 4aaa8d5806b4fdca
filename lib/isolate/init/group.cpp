// The cgroup of an exec, x/<number>, by the directory descriptor Slot::execs; and signals. It has a
// number and not the exec's id because it is made before the exec is known, and cgroups cannot be
// renamed. Without
// that descriptor (tests, hosts without cgroups) a group is the process group: weaker, because a
// process leaves it by setsid; talond reports it.

#include "isolate/init/state.h"

namespace talon::init {
namespace {

constexpr uint32_t kSeen = 2048;  // pids told apart in one `all` signal
constexpr int kPasses = 4;

long open_in_group(const Exec& e, const char* file, int flags) {
  char path[64];
  Text(path, sizeof path).add(e.group).add("/").add(file);
  return openat(g.execs, path, flags | O_NOFOLLOW);
}

// 0, or errno; a file that is not there (no controller) is ENOENT.
int write_group(const Exec& e, const char* file, const char* value) {
  long fd = open_in_group(e, file, O_WRONLY);
  if (fd < 0) {
    return (int)-fd;
  }
  long n = write((int)fd, value, length(value));
  close((int)fd);
  return n < 0 ? (int)-n : 0;
}

int write_number(const Exec& e, const char* file, uint64_t value) {
  char text[24];
  Text(text, sizeof text).add(value);
  int error = write_group(e, file, text);
  return error == ENOENT ? 0 : error;
}

long read_group(const Exec& e, const char* file, char* buffer, size_t size) {
  long fd = open_in_group(e, file, O_RDONLY);
  if (fd < 0) {
    return fd;
  }
  long n = read((int)fd, buffer, size - 1);
  close((int)fd);
  buffer[n > 0 ? n : 0] = 0;
  return n;
}

uint64_t number_at(const char* text) {
  uint64_t value = 0;
  while (*text >= '0' && *text <= '9') {
    value = value * 10 + (uint64_t)(*text++ - '0');
  }
  return value;
}

// The number after `key` at the start of a line; false when there is no such line.
bool find_value(const char* text, const char* key, uint64_t& value) {
  while (*text != 0) {
    if (starts_with(text, key)) {
      value = number_at(text + length(key));
      return true;
    }
    while (*text != 0 && *text++ != '\n') {
    }
  }
  return false;
}

uint64_t value_of(const char* text, const char* key) {
  uint64_t value = 0;
  find_value(text, key, value);
  return value;
}

// Of x/ itself; 0 when there is none.
uint64_t number_in_execs(const char* file) {
  long fd = openat(g.execs, file, O_RDONLY | O_NOFOLLOW);
  if (fd < 0) {
    return 0;
  }
  char text[24];
  long n = read((int)fd, text, sizeof text - 1);
  close((int)fd);
  text[n > 0 ? n : 0] = 0;
  return number_at(text);
}

int apply_limits(const Exec& e, const wire::Exec& request) {
  int error = 0;
  if (request.memory_max != 0) {
    error = write_number(e, "memory.max", request.memory_max);
    error = error != 0 ? error : write_number(e, "memory.oom.group", 1);
  }
  if (error == 0 && request.pids_max != 0) {
    error = write_number(e, "pids.max", request.pids_max);
  }
  if (error == 0 && request.cpu_quota_us != 0) {
    char text[48];
    uint64_t period = request.cpu_period_us != 0 ? request.cpu_period_us : 100000;
    Text(text, sizeof text).add(request.cpu_quota_us).add(" ").add(period);
    error = write_group(e, "cpu.max", text);
    error = error == ENOENT ? 0 : error;
  }
  return error;
}

// One reading of cgroup.procs; signals every pid not yet in `seen`. Returns how many were new.
uint32_t signal_members(const Exec& e, int number, int only_pgid, uint32_t* seen,
                        uint32_t& seen_count) {
  long fd = open_in_group(e, "cgroup.procs", O_RDONLY);
  if (fd < 0) {
    return 0;
  }
  size_t size = 0;
  while (size < sizeof g_scratch - 1) {
    long n = read((int)fd, g_scratch + size, sizeof g_scratch - 1 - size);
    if (n <= 0) {
      break;
    }
    size += (size_t)n;
  }
  close((int)fd);
  g_scratch[size] = 0;
  uint32_t fresh = 0;
  for (const char* p = reinterpret_cast<const char*>(g_scratch); *p != 0;) {
    auto pid = (uint32_t)number_at(p);
    while (*p != 0 && *p++ != '\n') {
    }
    bool known = pid == 0;
    for (uint32_t i = 0; i < seen_count && !known; ++i) {
      known = seen[i] == pid;
    }
    if (known || seen_count == kSeen) {
      continue;
    }
    seen[seen_count++] = pid;
    if (only_pgid != 0 && sys(__NR_getpgid, pid) != only_pgid) {
      continue;
    }
    ++fresh;
    sys(__NR_kill, pid, number);
  }
  return fresh;
}

// Processes may fork while they are counted: read again until nothing new shows.
uint32_t signal_group(const Exec& e, int number, int only_pgid) {
  static uint32_t seen[kSeen];
  uint32_t seen_count = 0;
  uint32_t total = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    uint32_t fresh = signal_members(e, number, only_pgid, seen, seen_count);
    total += fresh;
    if (fresh == 0) {
      break;
    }
  }
  return total;
}

}  // namespace

int make_group(Exec& e) {
  if (g.execs < 0 || e.has_group) {
    return 0;
  }
  char name[24];
  long err = 0;
  do {  // an init before this one may have left some
    e.group = ++g.groups;
    Text(name, sizeof name).add(e.group);
    err = sys(__NR_mkdirat, g.execs, name, 0755);
  } while (err == -EEXIST);
  if (err < 0) {
    return (int)-err;
  }
  e.has_group = true;
  e.group_dir = (int)openat(g.execs, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (e.group_dir < 0) {
    int error = -e.group_dir;
    remove_group(e);
    return error;
  }
  return 0;
}

int limit_group(const Exec& e, const wire::Exec& request) {
  return e.has_group ? apply_limits(e, request) : 0;
}

// Whether the kernel may soon kill for the memory that all execs have together (x/memory.max).
bool memory_is_tight() {
  constexpr uint64_t kRoom = 2 << 20;  // what an execve may need before it has memory of its own
  if (g.execs < 0 || g.no_memory_controller) {
    return false;
  }
  // Read each time: a sandbox that was made ahead gets its limit after init started.
  uint64_t limit = number_in_execs("memory.max");  // 0: no controller, or "max"
  return limit != 0 && number_in_execs("memory.current") + kRoom > limit;
}

void kill_group(Exec& e) {
  if (e.has_group && write_group(e, "cgroup.kill", "1") == 0) {
    return;
  }
  if (e.has_group) {
    signal_group(e, SIGKILL, 0);
  }
  if (e.alive) {
    sys(__NR_kill, -e.pid, SIGKILL);
    sys(__NR_kill, e.pid, SIGKILL);  // before its setsid it is in no group of its own
  }
}

int signal_exec(Exec& e, int number, wire::Scope scope) {
  if (scope == wire::Scope::process) {
    return e.alive ? (int)-sys(__NR_kill, e.pid, number) : ESRCH;
  }
  if (scope == wire::Scope::group) {
    if (e.alive) {
      return (int)-sys(__NR_kill, -e.pid, number);
    }
    // The number may be another process's by now: only members of this exec count.
    return e.has_group && signal_group(e, number, e.pid) != 0 ? 0 : ESRCH;
  }
  if (!e.has_group) {
    return e.alive ? (int)-sys(__NR_kill, -e.pid, number) : ESRCH;
  }
  if (number == SIGKILL) {
    kill_group(e);
    return 0;
  }
  return signal_group(e, number, 0) != 0 ? 0 : ESRCH;
}

void remove_group(Exec& e) {
  e.rmdir_at = 0;
  if (!e.has_group) {
    return;
  }
  char name[24];
  Text(name, sizeof name).add(e.group);
  long err = sys(__NR_unlinkat, g.execs, name, kAtRemovedir);
  if (err >= 0 || err == -ENOENT) {
    e.has_group = false;
    return;
  }
  // Right after an exit the kernel is still letting go (EBUSY); a child that lives on is heard
  // of by SIGCHLD, which asks again.
  if (e.rmdir_tries < 8) {
    e.rmdir_at = now_ns() + (2 * kMs << e.rmdir_tries);
    ++e.rmdir_tries;
  }
}

namespace {

// The group's CPU time is that of all its processes, those that nobody waited for too.
void read_cpu(Exec& e) {
  char text[1024];
  if (read_group(e, "cpu.stat", text, sizeof text) <= 0) {
    return;
  }
  uint64_t periods = 0;
  if (!find_value(text, "nr_periods ", periods)) {  // without the controller only times are there
    g.no_cpu_controller = true;
    return;
  }
  e.info.user_us = value_of(text, "user_usec ");
  e.info.system_us = value_of(text, "system_usec ");
  e.info.throttled = value_of(text, "nr_throttled ");
  e.info.throttled_us = value_of(text, "throttled_usec ");
}

// Small files of /proc: the number of bytes, NUL-terminated, or less than 1.
long read_proc(int32_t pid, const char* file, char* buffer, size_t size) {
  char path[48];
  Text(path, sizeof path).add("/proc/").add((uint64_t)(uint32_t)pid).add("/").add(file);
  long fd = openat(-100 /* AT_FDCWD */, path, O_RDONLY | O_NOFOLLOW);
  if (fd < 0) {
    return fd;
  }
  long n = read((int)fd, buffer, size - 1);
  close((int)fd);
  buffer[n > 0 ? n : 0] = 0;
  return n;
}

// The exec whose group, as /proc/<pid>/cgroup shows it ("0::/x/<number>\n"), a process is in.
Exec* exec_of_group(const char* text) {
  constexpr const char* kHead = "0::/x/";
  if (!starts_with(text, kHead)) {
    return nullptr;
  }
  uint64_t group = number_at(text + length(kHead));
  for (uint32_t i = 0; i < g.high; ++i) {
    Exec& e = g.execs_table[i];
    if (e.used && e.has_group && e.group == group) {
      return &e;
    }
  }
  return nullptr;
}

}  // namespace

bool group_lives(const Exec& e) {
  char text[64];
  return e.has_group && read_group(e, "cgroup.events", text, sizeof text) > 0 &&
         value_of(text, "populated ") != 0;
}

int32_t note_killed() {
  if (g.no_memory_controller) {
    return -1;
  }
  struct {
    int32_t signo, error, code, pad, pid, uid, status;
    char rest[128 - 28];
  } info = {};  // siginfo_t of a SIGCHLD
  struct rusage usage = {};
  constexpr int kNoWait = 0x01000000 | 4 | 1;  // WNOWAIT | WEXITED | WNOHANG, wait.h
  long err = sys(__NR_waitid, 0 /* P_ALL */, 0, &info, kNoWait | __WALL, &usage);
  if (err < 0 || info.pid <= 0) {
    return -1;
  }
  if (info.status != SIGKILL || info.code != 2 /* CLD_KILLED */) {
    return info.pid;
  }
  char text[wire::kIdSize + 16];
  Exec* e = read_proc(info.pid, "cgroup", text, sizeof text) > 0 ? exec_of_group(text) : nullptr;
  uint64_t bytes = (uint64_t)usage.ru_maxrss * 1024;
  if (e == nullptr || bytes <= e->info.biggest_bytes) {
    return info.pid;
  }
  char name[sizeof e->info.biggest_name + 1];
  long n = read_proc(info.pid, "comm", name, sizeof name);
  if (n > 1) {
    name[n - 1] = 0;  // its newline
    memset(e->info.biggest_name, 0, sizeof e->info.biggest_name);
    memcpy(e->info.biggest_name, name, (size_t)n);
    e->info.biggest_bytes = bytes;
  }
  return info.pid;
}

void read_group_end(Exec& e) {
  if (!e.has_group) {
    return;
  }
  if (!g.no_cpu_controller) {
    read_cpu(e);
  }
  if (g.no_memory_controller) {
    return;
  }
  char text[512];
  long n = read_group(e, "memory.events", text, sizeof text);
  if (n == -ENOENT) {
    g.no_memory_controller = true;
    return;
  }
  if (n > 0 && value_of(text, "oom_kill ") != 0) {
    e.exit_flags |= wire::kOom;
  }
  if (read_group(e, "memory.peak", text, sizeof text) > 0) {
    e.info.peak_bytes = number_at(text);
  }
}

}  // namespace talon::init
