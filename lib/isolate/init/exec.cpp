// Starting an exec. All that can fail is done before the clone and undone again on failure, so
// that ExecFailed means: nothing was started and nothing is left. The child is cloned with
// CLONE_VM on a stack of its own and never with CLONE_VFORK: a workload that loops
// kill(-1, SIGSTOP) stops the child before its execve, and init must not wait for it.

#include "isolate/init/parse.h"
#include "isolate/init/state.h"

namespace talon::init {
namespace {

constexpr uint64_t kDefaultCap = 64ull << 20;

Exec* free_slot() {
  for (Exec& e : g.execs_table) {
    if (!e.used) {
      uint16_t generation = (uint16_t)(e.generation + 1);
      memset(&e, 0, sizeof e);
      e.generation = generation;
      e.status_fd = e.out_fd = e.err_fd = e.in_fd = e.mem_fd = e.log.fd = e.group_dir = -1;
      e.ends = {0, -1, -1, -1};
      return &e;
    }
  }
  return nullptr;
}

Exec* take_slot() {
  Exec* e = g.next != nullptr ? g.next : free_slot();
  g.next = nullptr;
  if (e != nullptr) {
    e->used = true;
    g.high = g.high > index_of(*e) + 1 ? g.high : index_of(*e) + 1;
  }
  return e;
}

int clone_child(Exec& e) {
  struct clone_args args = {};
  // Shared memory is the quick way; but who kills the child for its group's memory, before its
  // execve, kills all that share its memory: then it gets a copy.
  args.flags = (memory_is_tight() ? 0 : CLONE_VM) | CLONE_CLEAR_SIGHAND;
  if (e.group_dir >= 0) {
    args.flags |= CLONE_INTO_CGROUP;
    args.cgroup = (uint64_t)e.group_dir;
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
  e.flow_limit = wire::kNoLimit;
}

// Everything up to the clone. On failure `stage` says where; the caller undoes it.
int prepare(Exec& e, const wire::Exec& request, int script, wire::Stage& stage) {
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
  g.last_uid = user.uid;
  g.last_gid = user.gid;
  stage = wire::Stage::request;
  error = fill_block(e, request, user);
  if (error != 0) {
    return error;
  }
  stage = wire::Stage::pipe;
  error = make_pipes(e, user, e.stdin_open || e.head_left != 0);
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
  error = make_group(e);
  error = error != 0 ? error : limit_group(e, request);
  if (error != 0) {
    return error;
  }
  stage = wire::Stage::clone;
  ChildContext& child = context_of(e);
  child.in = e.ends.in;
  child.out = e.ends.out;
  child.err = e.ends.err;
  child.status = e.ends.status;
  child.script = script;
  return clone_child(e);
}

void announce_started(Exec& e) {
  e.journal_started_due =
      !journal_write(wire::Record::started, e.px, (uint64_t)(uint32_t)e.pid, nullptr);
  wire::Started started = {};
  memcpy(started.px, e.px, sizeof e.px);
  started.pid = e.pid;
  started.group = e.has_group ? e.group : 0;
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

void retire(int& fd) {
  if (fd >= 0) {
    if (g.retired_count == sizeof g.retired / sizeof g.retired[0]) {
      close_retired();
    }
    struct epoll_event unused = {};
    sys(__NR_epoll_ctl, g.epoll, EPOLL_CTL_DEL, fd, &unused);
    g.retired[g.retired_count++] = fd;
    fd = -1;
  }
}

void close_retired() {
  while (g.retired_count > 0) {
    close(g.retired[--g.retired_count]);
  }
}

void prepare_next() {
  g.prepare_due = false;
  if (g.next == nullptr) {
    g.next = free_slot();
    if (g.next == nullptr) {
      return;
    }
    if (g.started_count == 0) {  // the first time; later all this is there
      static User user;
      resolve_user("", user);
      memory_is_tight();
      prepare_block();
    }
  }
  if (g.next->status_fd < 0) {
    g.prepare_due = make_status(*g.next) == 0 && make_output(*g.next, g.last_uid, g.last_gid) == 0;
  } else if (g.execs >= 0 && !g.next->has_group) {
    g.prepare_due = make_group(*g.next) == 0;
    if (g.prepare_due && g.started_count == 0) {
      read_group_end(*g.next);  // learns which controllers there are
      g.next->info = {};
    }
  } else {
    log_prepare(*g.next);
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
  error = prepare(*e, request, input.script, stage);
  // Behind the clone: the child does not wait for the file system.
  int name_error = error == 0 ? log_name(*e) : 0;
  close_child_ends(*e);
  close(input.script);
  close_fd(e->group_dir);
  g.prepare_due = true;
  ++g.started_count;
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
  if (name_error != 0) {
    e->failed = true;
    e->fail_stage = (uint32_t)wire::Stage::log;
    e->fail_error = name_error;
    kill_group(*e);
  }
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
  retire(e.status_fd);
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
