#include <linux/signalfd.h>

#include "isolate/init/state.h"

// The one loop. Nothing in it blocks but epoll_wait; every source has a bound per turn, so a
// flood on one pipe delays the others by one turn at most.

namespace talon::init {
namespace {

constexpr int kReapsPerTurn = 256;

uint64_t turn_mono = 0;
uint64_t turn_wall = 0;

Exec* exec_of_pid(int32_t pid) {
  for (uint32_t i = 0; i < g.high; ++i) {
    Exec& e = g.execs_table[i];
    if (e.used && e.alive && e.pid == pid) {
      return &e;
    }
  }
  return nullptr;
}

// A child that called PTRACE_TRACEME has made init its tracer; its stops end only by our hand.
void let_go(int32_t pid, int status) {
  if (sys(__NR_ptrace, 17 /* PTRACE_DETACH, ptrace(2) */, pid, 0, status >> 8 & 0x7f) < 0) {
    sys(__NR_kill, pid, SIGKILL);
  }
}

void reap() {
  g.reap_more = false;
  for (int n = 0;; ++n) {
    if (n == kReapsPerTurn) {
      g.reap_more = true;
      return;
    }
    int status = 0;
    struct rusage usage = {};
    long pid = sys(__NR_wait4, note_killed(), &status, WNOHANG | __WALL, &usage);
    if (pid == -EINTR) {
      continue;
    }
    if (pid <= 0) {
      return;
    }
    if ((status & 0xff) == 0x7f) {
      let_go((int32_t)pid, status);
    } else if (Exec* e = exec_of_pid((int32_t)pid)) {
      reaped(*e, status, usage);
    }
  }
}

void child_event() {
  struct signalfd_siginfo info;  // one SIGCHLD is pending at most
  read(g.child_signals, &info, sizeof info);
  reap();
  // Whoever was reaped may have been the last of a group. Not at once: a workload that sheds
  // orphans all the time must not cost a rmdir of every group for each of them.
  uint64_t now = now_ns();
  for (uint32_t i = 0; i < g.high; ++i) {
    Exec& e = g.execs_table[i];
    if (e.used && e.finished && e.has_group) {
      e.rmdir_tries = 0;
      e.rmdir_at = e.rmdir_at != 0 ? e.rmdir_at : now + 2 * kMs;
    }
  }
}

void exec_event(What what, uint16_t generation, uint32_t index) {
  if (index >= kMaxExecs) {
    return;
  }
  Exec& e = g.execs_table[index];
  if (!e.used || e.generation != generation) {
    return;
  }
  switch (what) {
    case What::status: status_event(e); break;
    case What::out: output_event(e, 0); break;
    case What::err: output_event(e, 1); break;
    case What::in: stdin_event(e); break;
    default: break;
  }
}

void dispatch(const struct epoll_event& event) {
  auto what = (What)(event.data >> 56);
  auto generation = (uint16_t)(event.data >> 32);
  auto index = (uint32_t)event.data;
  switch (what) {
    case What::listener: accept_conns(); break;
    case What::child: child_event(); break;
    case What::conn:
      if (index < kMaxConns && g.conns[index].generation == generation) {
        conn_event(index, event.events);
      }
      break;
    default: exec_event(what, generation, index);
  }
}

int wait_ms() {
  if (g.reap_more || g.prepare_due || g.retired_count != 0) {
    return 0;
  }
  uint64_t next = log_spare_due();
  for (uint32_t i = 0; i < g.high; ++i) {
    if (g.execs_table[i].used) {
      next = min(next, due_at(g.execs_table[i]));
    }
  }
  if (next == kNever) {
    return -1;
  }
  uint64_t now = now_ns();
  return next <= now ? 0 : (int)min((next - now + kMs - 1) / kMs, 60000);
}

void settle_due() {
  uint64_t now = 0;
  for (uint32_t i = 0; i < g.high; ++i) {
    Exec& e = g.execs_table[i];
    if (!e.used) {
      continue;
    }
    uint64_t due = due_at(e);
    if (due == kNever) {
      continue;
    }
    now = now != 0 ? now : now_ns();
    if (due <= now) {
      settle(e);
    }
  }
  while (g.high > 0 && !g.execs_table[g.high - 1].used) {
    --g.high;
  }
}

// While a child is on its way to its program there is time: for what the next exec needs, and to
// take away the groups of those that ended.
void chores() {
  close_retired();
  if (!g.prepare_due) {
    uint64_t due = log_spare_due();
    if (due == 0 || (due != kNever && due <= now_ns())) {
      log_make_spare();
      g.prepare_due = true;
    }
    return;
  }
  prepare_next();
  if (g.prepare_due) {
    return;
  }
  for (uint32_t i = 0; i < g.high; ++i) {
    Exec& e = g.execs_table[i];
    if (e.used && e.rmdir_at != 0 && e.rmdir_tries == 0) {
      e.rmdir_at = now_ns();
    }
  }
}

void announce_appended() {
  if (g.appended) {
    uint64_t one = 1;
    write(g.event, &one, sizeof one);
    g.appended = false;
  }
}

void die_if_setup_fails(long err) {
  if (err < 0) {
    exit_group(2);
  }
}

}  // namespace

Exec* find_exec(const char* px) {
  for (uint32_t i = 0; i < g.high; ++i) {
    Exec& e = g.execs_table[i];
    if (e.used && equal(e.px, px)) {
      return &e;
    }
  }
  return nullptr;
}

bool watch(int fd, uint32_t events, What what, uint16_t generation, uint32_t index) {
  struct epoll_event event = {};
  event.events = events;
  event.data = tag(what, generation, index);
  return sys(__NR_epoll_ctl, g.epoll, EPOLL_CTL_ADD, fd, &event) >= 0;
}

void take_times(uint64_t& mono, uint64_t& wall) {
  if (turn_mono == 0) {
    turn_mono = clock_ns(CLOCK_BOOTTIME);
    turn_wall = clock_ns(CLOCK_REALTIME);
  }
  mono = turn_mono;
  wall = turn_wall;
}

void end_init() {
  journal_write(wire::Record::init_end, "", 0, nullptr);
  exit_group(0);
}

void run_loop(const wire::Ready& ready) {
  uint64_t all = ~0ull;
  sys(__NR_rt_sigprocmask, 0 /* SIG_BLOCK */, &all, nullptr, sizeof all);
  uint64_t child = 1ull << (SIGCHLD - 1);
  g.child_signals = (int)sys(__NR_signalfd4, -1, &child, sizeof child, SFD_CLOEXEC | SFD_NONBLOCK);
  g.epoll = (int)sys(__NR_epoll_create1, EPOLL_CLOEXEC);
  die_if_setup_fails(g.child_signals);
  die_if_setup_fails(g.epoll);
  watch(g.child_signals, EPOLLIN, What::child, 0, 0);
  if (g.listener >= 0) {
    watch(g.listener, EPOLLIN, What::listener, 0, 0);
  }
  if (g.conns[0].fd >= 0) {
    watch(g.conns[0].fd, EPOLLIN, What::conn, 0, 0);
  }
  journal_open();
  journal_write(wire::Record::init_start, "", wire::kVersion, nullptr);
  broadcast(wire::Type::ready, &ready, sizeof ready);
  g.prepare_due = true;
  for (;;) {
    struct epoll_event events[64];
    long n = sys(__NR_epoll_pwait, g.epoll, events, 64, wait_ms(), nullptr, 8);
    turn_mono = 0;
    for (long i = 0; i < n; ++i) {
      dispatch(events[i]);
    }
    if (g.reap_more) {
      reap();
    }
    if (n == 0) {
      chores();
    }
    settle_due();
    announce_appended();
  }
}

}  // namespace talon::init
