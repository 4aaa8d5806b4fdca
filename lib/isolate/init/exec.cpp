// Starting an exec. All that can fail is done before the clone and undone again on failure, so
// that ExecFailed means: nothing was started and nothing is left. The child is cloned with
// CLONE_VM on a stack of its own and never with CLONE_VFORK: a workload that loops
// kill(-1, SIGSTOP) stops the child before its execve, and init must not wait for it.

#include "isolate/init/parse.h"
#include "isolate/init/state.h"

namespace talon::init {
namespace {

constexpr uint64_t kDefaultCap = 64ull << 20;

Exec* take_slot() {
  for (uint32_t i = 0; i < kMaxExecs; ++i) {
    Exec& e = g.execs_table[i];
    if (!e.used) {
      uint16_t generation = (uint16_t)(e.generation + 1);
      memset(&e, 0, sizeof e);
      e.generation = generation;
      e.used = true;
      e.status_fd = e.out_fd = e.err_fd = e.in_fd = e.mem_fd = e.log.fd = -1;
      g.high = g.high > i + 1 ? g.high : i + 1;
      return &e;
    }
  }
  return nullptr;
}

int watch_pipes(Exec& e) {
  uint32_t index = index_of(e);
  bool good = watch(e.status_fd, EPOLLIN, What::status, e.generation, index) &&
              watch(e.out_fd, EPOLLIN, What::out, e.generation, index) &&
              (e.err_fd < 0 || watch(e.err_fd, EPOLLIN, What::err, e.generation, index));
  return good ? 0 : ENOMEM;
}

int clone_child(Exec& e, int group) {
  struct clone_args args = {};
  // Shared memory is the quick way; but who kills the child for its group's memory, before its
  // execve, kills all that share its memory: then it gets a copy.
  args.flags = (memory_is_tight() ? 0 : CLONE_VM) | CLONE_CLEAR_SIGHAND;
  if (group >= 0) {
    args.flags |= CLONE_INTO_CGROUP;
    args.cgroup = (uint64_t)group;
  }
  args.exit_signal = SIGCHLD;
  args.stack = (uint64_t)e.block;
  args.stack_size = kChildStack;
  long pid = talon_clone3(&args, sizeof args, child_main, &context_of(e));
  if (pid < 0) {
    return (int)-pid;
  }
  e.pid = (int32_t)pid;
  return 0;
}

void take_numbers(Exec& e, const wire::Exec& request) {
  memcpy(e.px, request.px, sizeof e.px);
  e.tty = (request.flags & wire::kExecTty) != 0;
  e.flags = request.flags;
  e.cols = request.cols;
  e.rows = request.rows;
  e.max_output = request.max_output;
  e.grace_ns = min(request.grace_ms, 1ull << 40) * kMs;
  e.head_at = request.stdin_off;
  e.head_left = request.stdin_len;
  e.stdin_queued = request.stdin_len;
  e.stdin_open = (request.flags & wire::kExecStdin) != 0;
  e.close_stdin = !e.stdin_open;
}

// Everything up to the clone. On failure `stage` says where; the caller undoes it.
int prepare(Exec& e, const wire::Exec& request, int script, int& group, wire::Stage& stage) {
  stage = wire::Stage::request;
  int error = e.mem_inline ? 0 : map_request(e);
  if (error != 0) {
    return error;
  }
  const char* user_text = StringTable(e.mem, e.mem_size).string_at(request.user_off);
  if (user_text == nullptr || request.stdin_off > e.mem_size ||
      request.stdin_len > e.mem_size - request.stdin_off) {
    return EINVAL;
  }
  stage = wire::Stage::user;
  static User user;
  error = resolve_user(user_text, user);
  if (error != 0) {
    return error;
  }
  stage = wire::Stage::request;
  error = fill_block(e, request, user);
  if (error != 0) {
    return error;
  }
  stage = wire::Stage::pipe;
  ChildContext& child = context_of(e);
  bool want_stdin = e.stdin_open || e.head_left != 0;
  error = make_pipes(e, user, want_stdin, child);
  child.script = script;
  error = error != 0 ? error : watch_pipes(e);
  if (error != 0) {
    return error;
  }
  stage = wire::Stage::log;
  bool unlimited = (request.flags & wire::kExecUnlimitedLog) != 0;
  error = log_open(e, request.log_cap != 0 ? request.log_cap : kDefaultCap, unlimited);
  if (error != 0) {
    return error;
  }
  stage = wire::Stage::cgroup;
  error = make_group(e, request, group);
  if (error != 0) {
    return error;
  }
  stage = wire::Stage::clone;
  return clone_child(e, group);
}

void announce_started(Exec& e) {
  e.journal_started_due =
      !journal_write(wire::Record::started, e.px, (uint64_t)(uint32_t)e.pid, nullptr);
  wire::Started started = {};
  memcpy(started.px, e.px, sizeof e.px);
  started.pid = e.pid;
  broadcast(wire::Type::started, &started, sizeof started, e.conn, e.conn_generation, e.request);
}

const char* error_text(int error) {
  switch (error) {
    case ENOENT: return "No such file or directory";
    case EACCES: return "Permission denied";
    case EPERM: return "Operation not permitted";
    case ENOEXEC: return "Exec format error";
    case ENOTDIR: return "Not a directory";
    case ELOOP: return "Too many levels of symbolic links";
    case EISDIR: return "Is a directory";
    case E2BIG: return "Argument list too long";
    case ENOMEM: return "Cannot allocate memory";
    case ETXTBSY: return "Text file busy";
    case ENAMETOOLONG: return "File name too long";
    case EIO: return "Input/output error";
    case EINVAL: return "Invalid argument";
    case ELIBBAD: return "Accessing a corrupted shared library";
    case EAGAIN: return "Resource temporarily unavailable";
    default: return nullptr;
  }
}

// ENOENT of a file that is there: the kernel means what its #! line or ELF header names.
bool lacks_interpreter(const char* file, int error) {
  struct stat st = {};
  return error == ENOENT && file[0] == '/' && sys(__NR_newfstatat, kAtFdcwd, file, &st, 0) >= 0;
}

// What a shell would print; the exec counts as started and ends with 126 or 127.
void log_not_started(Exec& e, int error) {
  char line[1024];
  Text text(line, sizeof line - 2);
  const char* file = context_of(e).file;
  text.add("talon: ").add(file).add(": ");
  if (lacks_interpreter(file, error)) {
    text.add("its interpreter or loader is missing");
  } else if (const char* known = error_text(error)) {
    text.add(known);
  } else {
    text.add("error ").add((uint64_t)error);
  }
  size_t n = text.size();
  if (e.tty) {
    line[n++] = '\r';
  }
  line[n++] = '\n';
  log_output(e, e.tty ? wire::Kind::tty : wire::Kind::err, line, (uint32_t)n);
  (e.tty ? e.info.out_bytes : e.info.err_bytes) += n;
}

}  // namespace

void refuse_exec(uint32_t conn, uint64_t request, const char* px, wire::Stage stage, int error) {
  wire::ExecFailed failed = {};
  memcpy(failed.px, px, sizeof failed.px);
  failed.error = error;
  failed.stage = (uint32_t)stage;
  send_to(conn, g.conns[conn].generation, wire::Type::exec_failed, request, &failed, sizeof failed);
}

void unwatch_close(int& fd) {
  if (fd >= 0) {
    // A child before its execve may hold a copy: closing alone would leave the registration.
    struct epoll_event unused = {};
    sys(__NR_epoll_ctl, g.epoll, EPOLL_CTL_DEL, fd, &unused);
    close_fd(fd);
  }
}

void release_exec(Exec& e) {
  unwatch_close(e.status_fd);
  unwatch_close(e.out_fd);
  unwatch_close(e.err_fd);
  unwatch_close(e.in_fd);
  close_fd(e.mem_fd);
  close_fd(e.log.fd);
  free_block(e);
  if (e.in_buffer != nullptr) {
    unmap(e.in_buffer, wire::kStdinWindow);
    e.in_buffer = nullptr;
  }
  e.used = false;
}

void start_exec(uint32_t conn, const wire::Header& head, const wire::Exec& request,
                const ExecInput& input) {
  wire::Stage stage = wire::Stage::request;
  int error = 0;
  Exec* e = nullptr;
  if (g.paused) {
    stage = wire::Stage::paused;
    error = EBUSY;
  } else if (find_exec(request.px) != nullptr) {
    error = EEXIST;
  } else if (g.live >= (g.plan->live_execs != 0 ? g.plan->live_execs : kMaxExecs) ||
             (e = take_slot()) == nullptr) {
    stage = wire::Stage::too_many;
    error = EAGAIN;
  }
  if (error != 0) {
    refuse_exec(conn, head.request, request.px, stage, error);
    close(input.memfd);
    close(input.script);
    return;
  }
  take_numbers(*e, request);
  e->mem_fd = input.memfd;
  e->mem = input.strings;
  e->mem_size = input.size;
  e->mem_inline = input.strings != nullptr;
  e->conn = conn;
  e->conn_generation = g.conns[conn].generation;
  e->request = head.request;
  int group = -1;
  error = prepare(*e, request, input.script, group, stage);
  if (e->block != nullptr) {
    close_child_ends(context_of(*e));
  }
  close(input.script);
  close(group);
  if (error != 0) {
    log_discard(*e);
    remove_group(*e);
    release_exec(*e);
    refuse_exec(conn, head.request, request.px, stage, error);
    return;
  }
  e->alive = true;
  e->starting = true;
  ++g.live;
  e->started_ns = now_ns();
  uint64_t now = e->started_ns - g.paused_total;
  e->start_by = now + kStartDeadline;
  e->timeout_at =
      request.timeout_ms != 0 ? now + min(request.timeout_ms, 1ull << 40) * kMs : kNever;
  e->kill_at = kNever;
  if (e->head_left == 0) {
    close_fd(e->mem_fd);
  }
  if (e->in_fd >= 0) {
    stdin_pump(*e);
  }
}

void status_event(Exec& e) {
  if (e.status_fd < 0) {
    return;
  }
  ChildReport report = {};
  long n = read(e.status_fd, &report, sizeof report);
  if (n == -EAGAIN || n == -EINTR) {
    return;
  }
  unwatch_close(e.status_fd);
  e.starting = false;
  if (e.failed) {
    return;
  }
  if (n != (long)sizeof report) {
    free_block(e);  // exec'd or dead: nobody stands on that stack any more
    announce_started(e);
    return;
  }
  // The child still has to exit: its stack is freed when it is reaped.
  if (report.stage != 0) {
    e.failed = true;
    e.fail_stage = report.stage;
    e.fail_error = report.error;
    return;
  }
  e.info.exec_errno = report.error;
  e.exit_flags |= wire::kNotStarted;
  announce_started(e);
  log_not_started(e, report.error);
}

}  // namespace talon::init
