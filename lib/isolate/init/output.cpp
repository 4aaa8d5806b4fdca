// Reading what an exec prints, and the end rule (decision 18): when the exec's own process is
// reaped, its pipes are read until empty, then until EOF or 50 ms of silence, at most 1 s; then
// the exit frame. Children that keep the pipes keep their reader; what they print is late.

#include "isolate/init/state.h"

namespace talon::init {
namespace {

constexpr unsigned long kFionread = 0x541B;  // ioctl_tty(2)
constexpr long kSmallRead = 4096;
constexpr uint8_t kSmallRow = 16;      // small reads in a row, each within
constexpr uint64_t kRowGap = 4 * kMs;  // of the one before it
constexpr uint64_t kRmdirLater = 2 * kMs;

int& fd_of(Exec& e, int which) { return which == 0 ? e.out_fd : e.err_fd; }

bool closed(const Exec& e) { return e.out_fd < 0 && e.err_fd < 0; }

wire::Kind kind_of(const Exec& e, int which) {
  if (e.tty) {
    return wire::Kind::tty;
  }
  return which == 0 ? wire::Kind::out : wire::Kind::err;
}

// Keeps exactly the first max_output bytes; one byte more ends the exec.
void take_output(Exec& e, int which, const unsigned char* data, uint32_t size) {
  if ((e.exit_flags & wire::kOutputLimit) != 0) {
    return;
  }
  uint32_t keep = size;
  if (e.max_output != 0) {
    uint64_t have = e.info.out_bytes + e.info.err_bytes;
    keep = (uint32_t)min(size, e.max_output - min(have, e.max_output));
  }
  if (keep != 0) {
    log_output(e, kind_of(e, which), data, keep);
    (which == 0 ? e.info.out_bytes : e.info.err_bytes) += keep;
  }
  if (keep < size) {
    e.exit_flags |= wire::kOutputLimit;
    kill_group(e);
  }
}

void set_interest(Exec& e, int which, uint32_t events) {
  struct epoll_event event = {};
  event.events = events;
  event.data = tag(which == 0 ? What::out : What::err, e.generation, index_of(e));
  sys(__NR_epoll_ctl, g.epoll, EPOLL_CTL_MOD, fd_of(e, which), &event);
}

// A program that writes line by line would fill the log with frame headers and wake its readers
// for each line: after some small reads in a row the pipe is left alone for a millisecond.
bool gather(Exec& e, int which, long size) {
  bool draining = !e.alive && !e.exited;
  if (draining || size >= kSmallRead) {
    e.small_reads[which] = 0;
    return false;
  }
  uint64_t now = now_ns();
  bool in_a_row = now - e.last_read[which] < kRowGap;
  e.last_read[which] = now;
  e.small_reads[which] = in_a_row ? (uint8_t)min(e.small_reads[which] + 1u, 255) : 0;
  if (e.small_reads[which] < kSmallRow) {
    return false;
  }
  e.gather_at[which] = now + kGather;
  set_interest(e, which, 0);
  return true;
}

void stop_gathering(Exec& e, int which) {
  if (e.gather_at[which] != 0) {
    e.gather_at[which] = 0;
    if (fd_of(e, which) >= 0) {
      set_interest(e, which, EPOLLIN);
    }
  }
}

// The terminal of a live process whose watcher has not caught up is left alone. It is not watched
// then: a hang-up would show again and again.
bool hold(Exec& e) {
  if (e.held || !e.tty || !e.alive || e.info.out_bytes < e.flow_limit || e.gather_at[0] != 0) {
    return e.held;
  }
  struct epoll_event unused = {};
  sys(__NR_epoll_ctl, g.epoll, EPOLL_CTL_DEL, e.out_fd, &unused);
  e.held = true;
  return true;
}

void release_hold(Exec& e) {
  if (e.held && e.out_fd >= 0) {
    e.held = !watch(e.out_fd, EPOLLIN, What::out, e.generation, index_of(e));
  }
}

// Returns whether the pipe may hold more that is to be read now.
bool read_once(Exec& e, int which) {
  if (hold(e)) {
    return false;
  }
  int& fd = fd_of(e, which);
  long n = read(fd, g_io, sizeof g_io);
  if (n == -EINTR) {
    return true;
  }
  if (n == -EAGAIN) {
    e.must_read[which] = 0;
    return false;
  }
  if (n <= 0) {  // EOF; EIO: the terminal has no other end any more
    e.must_read[which] = 0;
    if (e.tty) {
      unwatch_close(fd);
    } else {
      retire(fd);
    }
    return false;
  }
  e.must_read[which] -= min((uint64_t)n, e.must_read[which]);
  if (!e.alive && !e.exited) {
    e.quiet_at = now_ns() + kSilence;
  }
  take_output(e, which, g_io, (uint32_t)n);
  return !gather(e, which, n);
}

void read_turn(Exec& e, int which) {
  for (int i = 0; i < kReadsPerTurn && fd_of(e, which) >= 0; ++i) {
    if (!read_once(e, which)) {
      return;
    }
  }
}

void announce_exit(Exec& e) {
  if (e.log.dropped) {
    e.exit_flags |= wire::kLostOutput;
  }
  e.info.flags = e.exit_flags;
  e.exit_due = !log_mark(e, wire::Kind::exit, &e.info, sizeof e.info);
  e.exited = true;
  e.journal_exit_due = !journal_write(wire::Record::exit, e.px, 0, &e.info);
  wire::Exited exited = {};
  memcpy(exited.px, e.px, sizeof e.px);
  exited.info = e.info;
  broadcast(wire::Type::exited, &exited, sizeof exited);
}

void close_log(Exec& e) {
  if (e.log.fd >= 0) {
    close_fd(e.log.fd);
    budget_ended(e);
  }
}

void announce_end(Exec& e) {
  e.end_due = e.exit_due || !log_mark(e, wire::Kind::end, nullptr, 0);
  e.finished = true;
  if (!e.end_due) {
    close_log(e);  // before anybody hears of the end
  }
  stdin_drop(e, EPIPE);
  wire::Ended ended = {};
  memcpy(ended.px, e.px, sizeof e.px);
  broadcast(wire::Type::ended, &ended, sizeof ended);
  e.rmdir_at = now_ns() + kRmdirLater;  // or when the next one has been cloned: see loop.cpp
}

bool drained(Exec& e) {
  uint64_t now = now_ns();
  // All of a group that ran out of memory is killed; which of them was the biggest is known when
  // all are reaped.
  if ((e.exit_flags & wire::kOom) != 0 && now < e.drain_until) {
    if (now < e.quiet_at) {
      return false;
    }
    if (group_lives(e)) {
      e.quiet_at = now + kMs;
      return false;
    }
  }
  if (closed(e)) {
    return true;
  }
  return e.must_read[0] == 0 && e.must_read[1] == 0 && (now >= e.quiet_at || now >= e.drain_until);
}

void announce_failure(Exec& e) {
  wire::ExecFailed failed = {};
  memcpy(failed.px, e.px, sizeof e.px);
  failed.stage = e.fail_stage;
  failed.error = e.fail_error;
  log_discard(e);
  kill_group(e);
  remove_group(e);
  send_to(e.conn, e.conn_generation, wire::Type::exec_failed, e.request, &failed, sizeof failed);
  unwatch_close(e.out_fd);
  unwatch_close(e.err_fd);
  stdin_drop(e, ENOENT);
  e.exited = true;
  e.finished = true;
}

void release_if_done(Exec& e) {
  if (e.finished && !e.exit_due && !e.end_due && !e.journal_exit_due && !e.journal_started_due) {
    close_log(e);
    if (!e.has_group) {
      release_exec(e);
    }
  }
}

// Frames and records that a full disk did not take, in their order.
void retry_writes(Exec& e) {
  if (!log_flush_lost(e)) {
    return;
  }
  if (e.exit_due) {
    // The frame was due before the process's children printed on: it is not late.
    e.exit_due = !log_mark(e, wire::Kind::exit, &e.info, sizeof e.info);
  }
  if (e.end_due && !e.exit_due) {
    e.end_due = !log_mark(e, wire::Kind::end, nullptr, 0);
  }
  if (e.journal_started_due) {
    e.journal_started_due =
        !journal_write(wire::Record::started, e.px, (uint64_t)(uint32_t)e.pid, nullptr);
  }
  if (e.journal_exit_due && !e.journal_started_due) {
    e.journal_exit_due = !journal_write(wire::Record::exit, e.px, 0, &e.info);
  }
}

bool writes_due(const Exec& e) {
  return e.exit_due || e.end_due || e.journal_started_due || e.journal_exit_due;
}

// Moves the exec on as far as it goes now.
void advance(Exec& e) {
  if (!e.alive && !e.exited && drained(e)) {
    announce_exit(e);
  }
  if (e.exited && !e.finished && closed(e)) {
    announce_end(e);
  }
  release_if_done(e);
}

void check_times(Exec& e) {
  uint64_t now = active_now();
  if (e.starting && now >= e.start_by && !e.failed) {
    e.failed = true;
    e.fail_stage = (uint32_t)wire::Stage::clone;
    e.fail_error = ETIMEDOUT;
    kill_group(e);
    return;
  }
  if (now >= e.kill_at) {
    e.kill_at = kNever;
    kill_group(e);
  }
  if (e.alive && now >= e.timeout_at) {
    e.timeout_at = kNever;
    e.exit_flags |= wire::kTimedOut;
    if (e.grace_ns == 0) {
      kill_group(e);
    } else {
      signal_exec(e, SIGTERM, wire::Scope::all);
      e.kill_at = now + e.grace_ns;
    }
  }
}

}  // namespace

void set_flow(Exec& e, uint64_t limit, uint32_t conn) {
  e.flow_limit = limit;
  e.flow_conn = conn;
  if (e.info.out_bytes < limit) {
    release_hold(e);
  }
}

void forget_flow(uint32_t conn) {
  for (uint32_t i = 0; i < g.high; ++i) {
    Exec& e = g.execs_table[i];
    if (e.used && e.flow_limit != wire::kNoLimit && e.flow_conn == conn) {
      set_flow(e, wire::kNoLimit, conn);
    }
  }
}

void output_event(Exec& e, int which) {
  if (fd_of(e, which) >= 0) {
    read_turn(e, which);
  }
  if (!e.starting) {
    advance(e);
  }
}

void reaped(Exec& e, int status, const struct rusage& usage) {
  if (e.starting) {
    status_event(e);
  }
  e.alive = false;
  --g.live;
  release_hold(e);
  if (e.failed) {
    announce_failure(e);
    free_block(e);
    release_if_done(e);
    return;
  }
  e.starting = false;
  free_block(e);
  uint64_t now = now_ns();
  wire::ExitInfo& info = e.info;
  int signal = status & 0x7f;
  info.code = signal != 0 ? -1 : status >> 8 & 0xff;
  info.signal = signal;
  info.user_us = (uint64_t)usage.ru_utime.tv_sec * 1000000u + (uint64_t)usage.ru_utime.tv_usec;
  info.system_us = (uint64_t)usage.ru_stime.tv_sec * 1000000u + (uint64_t)usage.ru_stime.tv_usec;
  info.max_rss_kb = (uint64_t)usage.ru_maxrss;
  info.duration_ns = now - e.started_ns;
  bool asked = e.end_signal == -1 || (e.end_signal != 0 && e.end_signal == signal);
  if (asked) {
    e.exit_flags |= wire::kKilled;
  }
  read_group_end(e);
  e.drain_until = now + kDrainMost;
  e.quiet_at = now + kSilence;
  for (int which = 0; which < 2; ++which) {
    int bytes = 0;
    stop_gathering(e, which);
    if (fd_of(e, which) >= 0 && sys(__NR_ioctl, fd_of(e, which), kFionread, &bytes) >= 0) {
      e.must_read[which] = (uint64_t)bytes;
    }
    read_turn(e, which);
  }
  advance(e);
}

void settle(Exec& e) {
  check_times(e);
  for (int which = 0; which < 2; ++which) {
    if (e.gather_at[which] != 0 && now_ns() >= e.gather_at[which]) {
      stop_gathering(e, which);
      read_turn(e, which);
    }
  }
  if (writes_due(e) && now_ns() >= e.log.retry_at) {
    e.log.retry_at = now_ns() + kLogRetry;
    retry_writes(e);
  }
  if (!e.alive && !e.exited) {
    // The silence may only be that this turn has not read yet.
    read_turn(e, 0);
    read_turn(e, 1);
  }
  if (e.rmdir_at != 0 && now_ns() >= e.rmdir_at) {
    remove_group(e);
  }
  if (!e.starting) {
    advance(e);
  }
}

uint64_t due_at(const Exec& e) {
  uint64_t due = kNever;
  if (!g.paused) {
    uint64_t active = e.kill_at;
    if (e.starting && !e.failed) {
      active = min(active, e.start_by);
    }
    if (e.alive) {
      active = min(active, e.timeout_at);
    }
    due = active == kNever ? kNever : active + g.paused_total;
  }
  if (!e.alive && !e.exited) {
    due = min(due, min(e.quiet_at, e.drain_until));
  }
  if (writes_due(e)) {
    due = min(due, e.log.retry_at);
  }
  if (e.rmdir_at != 0) {
    due = min(due, e.rmdir_at);
  }
  for (uint64_t at : e.gather_at) {
    due = at != 0 ? min(due, at) : due;
  }
  return due;
}

}  // namespace talon::init
