// An exec's input: first the inline bytes of the request's memfd, then frames. Offsets count from
// the first byte of the process's stdin, inline bytes included. At most kStdinWindow streamed
// bytes wait here; a frame is answered when the pipe has taken it or nobody reads any more.

#include "isolate/init/state.h"

namespace talon::init {
namespace {

constexpr int kWritesPerTurn = 8;

void answer(uint32_t conn, uint16_t generation, uint64_t request, const char* px, uint64_t accepted,
            int error, bool is_closed) {
  wire::StdinAck ack = {};
  memcpy(ack.px, px, sizeof ack.px);
  ack.accepted = accepted;
  ack.error = error;
  ack.closed = is_closed ? 1 : 0;
  send_to(conn, generation, wire::Type::stdin_ack, request, &ack, sizeof ack);
}

void answer_written(Exec& e) {
  uint32_t done = 0;
  while (done < e.ack_count && e.acks[done].end <= e.stdin_written) {
    const Ack& ack = e.acks[done++];
    answer(ack.conn, ack.generation, ack.request, e.px, e.stdin_written, 0, e.in_fd < 0);
  }
  if (done != 0) {
    e.ack_count -= done;
    memmove(e.acks, e.acks + done, e.ack_count * sizeof(Ack));
  }
}

void set_watch(Exec& e, bool wanted) {
  if (wanted && !e.in_watched) {
    e.in_watched = watch(e.in_fd, EPOLLOUT, What::in, e.generation, index_of(e));
  } else if (!wanted && e.in_watched) {
    struct epoll_event unused = {};
    sys(__NR_epoll_ctl, g.epoll, EPOLL_CTL_DEL, e.in_fd, &unused);
    e.in_watched = false;
  }
}

// A recording of what is typed shows it where the terminal took it.
long write_input(Exec& e, const void* bytes, size_t size) {
  long n = write(e.in_fd, bytes, (size_t)min(size, wire::kMaxFrame));
  if (n > 0 && e.tty && (e.flags & wire::kExecRecordInput) != 0) {
    log_mark(e, wire::Kind::input, bytes, (uint32_t)n);
  }
  return n;
}

// One write of what comes next. Returns what write(2) said.
long write_next(Exec& e) {
  if (e.head_left != 0) {
    uint64_t size = min(e.head_left, 64 * 1024);
    long have = sys(__NR_pread64, e.mem_fd, g_scratch, size, e.head_at);
    if (have <= 0) {
      return -EIO;
    }
    long n = write_input(e, g_scratch, (size_t)have);
    if (n > 0) {
      e.head_at += (uint64_t)n;
      e.head_left -= (uint64_t)n;
      e.stdin_written += (uint64_t)n;
    }
    if (e.head_left == 0) {
      close_fd(e.mem_fd);
    }
    return n;
  }
  long n = write_input(e, e.in_buffer + e.in_begin, e.in_size);
  if (n > 0) {
    e.in_begin += (uint32_t)n;
    e.in_size -= (uint32_t)n;
    e.stdin_written += (uint64_t)n;
  }
  return n;
}

void free_buffer(Exec& e) {
  if (e.in_buffer != nullptr) {
    unmap(e.in_buffer, wire::kStdinWindow);
    e.in_buffer = nullptr;
  }
  e.in_begin = 0;
  e.in_size = 0;
}

void finish_if_written(Exec& e) {
  if (!e.close_stdin) {
    return;
  }
  // A terminal has no end of file of its own: whoever gave input, inline or as frames, and closed
  // it has its reader told so.
  if (e.tty && (e.stdin_open || e.stdin_queued != 0)) {
    const char end_of_file = 4;  // VEOF
    write(e.in_fd, &end_of_file, 1);
  }
  e.stdin_open = false;
  unwatch_close(e.in_fd);
  e.in_watched = false;
}

bool keep(Exec& e, const unsigned char* bytes, uint32_t size) {
  if (e.in_buffer == nullptr) {
    void* p = map(wire::kStdinWindow, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    if (is_err(p)) {
      return false;
    }
    e.in_buffer = static_cast<unsigned char*>(p);
  }
  if (e.in_begin + e.in_size + size > wire::kStdinWindow) {
    memmove(e.in_buffer, e.in_buffer + e.in_begin, e.in_size);
    e.in_begin = 0;
  }
  memcpy(e.in_buffer + e.in_begin + e.in_size, bytes, size);
  e.in_size += size;
  e.stdin_queued += size;
  return true;
}

// What the pipe takes at once needs no buffer. Returns how much that was; an error shows again
// when the rest is written.
uint32_t write_through(Exec& e, const unsigned char* bytes, uint32_t size) {
  if (e.head_left != 0 || e.in_size != 0 || size == 0) {
    return 0;
  }
  long n = write_input(e, bytes, size);
  if (n <= 0) {
    return 0;
  }
  e.stdin_queued += (uint64_t)n;
  e.stdin_written += (uint64_t)n;
  return (uint32_t)n;
}

// errno for a frame that cannot be taken; of it no more is kept then than
// the next acknowledgement says.
int take_frame(Exec& e, wire::StdinData& data, const unsigned char* bytes) {
  if (data.offset == wire::kStdinAppend) {
    data.offset = e.stdin_queued;
  }
  if (data.offset > e.stdin_queued) {
    return EINVAL;
  }
  uint64_t skip = min(e.stdin_queued - data.offset, data.length);
  auto fresh = (uint32_t)(data.length - skip);
  if (e.in_fd < 0 || (!e.stdin_open && fresh != 0)) {
    return fresh != 0 || e.stdin_written < data.offset + data.length ? EPIPE : 0;
  }
  if (e.ack_count == kAcks || e.in_size + fresh > wire::kStdinWindow) {
    return EAGAIN;
  }
  const uint32_t through = write_through(e, bytes + skip, fresh);
  skip += through;
  fresh -= through;
  if (fresh != 0 && !keep(e, bytes + skip, fresh)) {
    return ENOMEM;
  }
  if ((data.flags & wire::kStdinClose) != 0) {
    e.close_stdin = true;
  }
  return 0;
}

}  // namespace

void stdin_pump(Exec& e) {
  for (int i = 0; e.in_fd >= 0 && (e.head_left != 0 || e.in_size != 0); ++i) {
    if (i == kWritesPerTurn) {
      set_watch(e, true);
      break;
    }
    long n = write_next(e);
    if (n == -EAGAIN) {
      set_watch(e, true);
      break;
    }
    if (n < 0 && n != -EINTR) {
      stdin_drop(e, EPIPE);
      return;
    }
  }
  if (e.in_fd >= 0 && e.head_left == 0 && e.in_size == 0) {
    free_buffer(e);
    set_watch(e, false);
    finish_if_written(e);
  }
  answer_written(e);
}

void stdin_drop(Exec& e, int error) {
  unwatch_close(e.in_fd);
  e.in_watched = false;
  e.stdin_open = false;
  e.head_left = 0;
  close_fd(e.mem_fd);
  free_buffer(e);
  for (uint32_t i = 0; i < e.ack_count; ++i) {
    const Ack& ack = e.acks[i];
    answer(ack.conn, ack.generation, ack.request, e.px, e.stdin_written, error, true);
  }
  e.ack_count = 0;
}

void stdin_frame(uint32_t conn, const wire::Header& head, wire::StdinData data,
                 const unsigned char* bytes) {
  uint16_t generation = g.conns[conn].generation;
  Exec* e = find_exec(data.px);
  if (e == nullptr || e->failed) {
    answer(conn, generation, head.request, data.px, 0, ENOENT, true);
    return;
  }
  int error = g.paused ? EBUSY : take_frame(*e, data, bytes);
  if (error != 0 || e->in_fd < 0) {
    answer(conn, generation, head.request, data.px, e->stdin_written, error, e->in_fd < 0);
    return;
  }
  e->acks[e->ack_count++] = {head.request, data.offset + data.length, conn, generation};
  stdin_pump(*e);
}

}  // namespace talon::init
