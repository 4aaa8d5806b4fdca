// The cgroup of an exec, x/<px>, by the directory descriptor Slot::execs; and signals. Without
// that descriptor (tests, hosts without cgroups) a group is the process group: weaker, because a
// process leaves it by setsid; talond reports it.

#include "isolate/init/state.h"

namespace talon::init {
namespace {

constexpr uint32_t kSeen = 2048;  // pids told apart in one `all` signal
constexpr int kPasses = 4;

long open_in_group(const Exec& e, const char* file, int flags) {
  char path[wire::kIdSize + 32];
  Text(path, sizeof path).add(e.px).add("/").add(file);
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

uint64_t value_of(const char* text, const char* key) {
  while (*text != 0) {
    if (starts_with(text, key)) {
      return number_at(text + length(key));
    }
    while (*text != 0 && *text++ != '\n') {
    }
  }
  return 0;
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

int make_group(Exec& e, const wire::Exec& request, int& dir) {
  if (g.execs < 0) {
    return 0;
  }
  long err = sys(__NR_mkdirat, g.execs, e.px, 0755);
  if (err < 0) {
    return (int)-err;
  }
  e.has_group = true;
  int error = apply_limits(e, request);
  if (error != 0) {
    return error;
  }
  long fd = openat(g.execs, e.px, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (fd < 0) {
    return (int)-fd;
  }
  dir = (int)fd;
  return 0;
}

// Whether the kernel may soon kill for the memory that all execs have together (x/memory.max).
bool memory_is_tight() {
  constexpr uint64_t kRoom = 2 << 20;  // what an execve may need before it has memory of its own
  static uint64_t limit = 0;           // it is written before init starts, and stays
  if (g.execs < 0 || limit == kNever) {
    return false;
  }
  if (limit == 0) {
    limit = number_in_execs("memory.max");
    limit = limit != 0 ? limit : kNever;  // no controller, or "max"
  }
  return limit != kNever && number_in_execs("memory.current") + kRoom > limit;
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
  long err = sys(__NR_unlinkat, g.execs, e.px, kAtRemovedir);
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

void read_group_end(Exec& e) {
  if (!e.has_group || g.no_memory_controller) {
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
