// Requests of talond. Every frame is checked before it means anything: a frame of the wrong size
// or with a malformed id closes the connection, a well-formed one that cannot be done is answered.

#include "isolate/init/parse.h"
#include "isolate/init/state.h"

namespace talon::init {
namespace {

constexpr unsigned long kTiocswinsz = 0x5414;  // ioctl_tty(2)

template <class T>
bool take(const wire::Header& head, const unsigned char* payload, T& out) {
  return take_payload(payload, head.length, out);
}

void answer(uint32_t conn, const wire::Header& head, int error) {
  wire::Done done = {error, 0};
  send_to(conn, g.conns[conn].generation, wire::Type::done, head.request, &done, sizeof done);
}

int end_exec(const wire::EndExec& request) {
  Exec* e = find_exec(request.px);
  if (e == nullptr || e->failed) {
    return ESRCH;
  }
  if (e->alive) {
    e->end_signal = -1;
  }
  if (request.grace_ms == 0 || g.paused) {  // who stands still cannot use a grace
    kill_group(*e);
    return 0;
  }
  e->term_sent = true;
  e->kill_at = active_now() + min(request.grace_ms, 1ull << 40) * kMs;
  if (e->tty) {  // a shell at a terminal ignores TERM
    signal_exec(*e, SIGHUP, wire::Scope::all);
    signal_exec(*e, SIGCONT, wire::Scope::all);
  }
  signal_exec(*e, SIGTERM, wire::Scope::all);
  return 0;
}

int signal_request(const wire::Signal& request) {
  Exec* e = find_exec(request.px);
  if (e == nullptr || e->failed) {
    return ESRCH;
  }
  if (request.number < 0 || request.number > 64 || request.scope > (uint32_t)wire::Scope::all) {
    return EINVAL;
  }
  int error = signal_exec(*e, request.number, (wire::Scope)request.scope);
  if (error == 0 && e->alive && request.number != 0) {
    e->end_signal = request.number;
  }
  return error;
}

int resize(const wire::Resize& request) {
  Exec* e = find_exec(request.px);
  if (e == nullptr || e->failed) {
    return ESRCH;
  }
  if (!e->tty || e->out_fd < 0) {
    return ENOTTY;
  }
  uint16_t size[4] = {request.rows, request.cols, 0, 0};
  long err = sys(__NR_ioctl, e->out_fd, kTiocswinsz, size);
  if (err < 0) {
    return (int)-err;
  }
  e->cols = request.cols;
  e->rows = request.rows;
  wire::ResizePayload payload = {request.cols, request.rows};
  log_mark(*e, wire::Kind::resize, &payload, sizeof payload);
  return 0;
}

void flow(uint32_t conn, const wire::Flow& request) {
  Exec* e = find_exec(request.px);
  if (e != nullptr && e->tty) {
    set_flow(*e, request.limit, conn);
  }
}

int mark(const wire::Mark& request) {
  bool pause = request.paused != 0;
  if (pause == g.paused) {
    return 0;
  }
  // A full disk may refuse a pause; what is paused must always be able to go on.
  if (!journal_write(pause ? wire::Record::paused : wire::Record::resumed, "", 0, nullptr) &&
      pause) {
    return ENOSPC;
  }
  uint64_t now = now_ns();
  if (pause) {
    g.paused_since = now;
  } else {
    g.paused_total += now - g.paused_since;
  }
  g.paused = pause;
  return 0;
}

bool exec_frame(uint32_t conn, const wire::Header& head, const unsigned char* payload, int* fds,
                int fd_count) {
  wire::Exec request;
  if (!take_exec(payload, head.length, request)) {
    return false;
  }
  bool inlined = (request.flags & wire::kExecInline) != 0;
  bool with_script = (request.flags & wire::kExecScript) != 0;
  int wanted = (inlined ? 0 : 1) + (with_script ? 1 : 0);
  if (fd_count == kFdsLost) {
    refuse_exec(conn, head.request, request.px, wire::Stage::request, EMFILE);
    return true;
  }
  if (fd_count != wanted) {
    return false;
  }
  ExecInput input = {};
  input.memfd = inlined ? -1 : fds[0];
  input.script = with_script ? fds[wanted - 1] : -1;
  if (inlined) {
    input.strings = payload + sizeof request;
    input.size = head.length - sizeof request;
  }
  fds[0] = -1;
  fds[1] = -1;
  start_exec(conn, head, request, input);
  return true;
}

bool stdin_request(uint32_t conn, const wire::Header& head, const unsigned char* payload) {
  wire::StdinData data;
  if (!take_stdin(payload, head.length, data)) {
    return false;
  }
  stdin_frame(conn, head, data, payload + sizeof data);
  return true;
}

}  // namespace

bool handle_frame(uint32_t conn, const wire::Header& head, const unsigned char* payload, int* fds,
                  int fd_count) {
  switch ((wire::Type)head.type) {
    case wire::Type::exec: return exec_frame(conn, head, payload, fds, fd_count);
    case wire::Type::stdin_data: return stdin_request(conn, head, payload);
    case wire::Type::signal: {
      wire::Signal request;
      if (!take(head, payload, request)) {
        return false;
      }
      answer(conn, head, signal_request(request));
      return true;
    }
    case wire::Type::end_exec: {
      wire::EndExec request;
      if (!take(head, payload, request)) {
        return false;
      }
      answer(conn, head, end_exec(request));
      return true;
    }
    case wire::Type::resize: {
      wire::Resize request;
      if (!take(head, payload, request)) {
        return false;
      }
      answer(conn, head, resize(request));
      return true;
    }
    case wire::Type::mark: {
      wire::Mark request;
      if (!take(head, payload, request)) {
        return false;
      }
      answer(conn, head, mark(request));
      return true;
    }
    case wire::Type::flow: {
      wire::Flow request;
      if (!take(head, payload, request)) {
        return false;
      }
      flow(conn, request);
      return true;
    }
    case wire::Type::shutdown:
      if (head.length != 0) {
        return false;
      }
      end_init();
    default: return false;
  }
}

}  // namespace talon::init
