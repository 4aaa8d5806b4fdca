// Processes: exec rows are written behind (decision 25), the journal is the truth.

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "base/fault.h"
#include "base/id.h"
#include "base/log.h"
#include "server/node/codec.h"
#include "server/node/node.h"

namespace talon::server::node {

namespace {

std::unexpected<Error> no_process(std::string_view px) {
  return fail(Code::not_found, "there is no process " + std::string{px} + " in this sandbox");
}

// The sandbox's env under the exec's own, then the defaults under both: earlier names win.
Env merged_env(const Env& own, const Env& sandbox, bool tty) {
  Env env = own;
  for (const auto& [name, value] : sandbox) {
    const bool taken =
        std::any_of(own.begin(), own.end(), [&](const auto& entry) { return entry.first == name; });
    if (!taken) {
      env.emplace_back(name, value);
    }
  }
  if (tty) {
    env.emplace_back("TERM", "xterm-256color");
  }
  isolate::add_default_env(env);
  return env;
}

isolate::ExecSpec make_spec(const ExecRequest& request, const SandboxWish& wish) {
  isolate::ExecSpec spec;
  spec.id = request.id;
  if (request.argv.empty()) {
    isolate::set_command(spec, request.command);
  } else {
    spec.argv = request.argv;
  }
  spec.tty = request.tty;
  spec.cols = request.cols;
  spec.rows = request.rows;
  spec.record_input = request.record == Recording::input;
  spec.env = merged_env(request.env, wish.env, request.tty);
  spec.cwd = request.cwd;  // "" = init's default, which falls back to "/" when it is missing
  spec.user = request.user.empty() ? wish.user : request.user;
  spec.stdin_head = request.stdin_head;
  spec.stdin_open = request.stdin_open;
  spec.timeout = request.timeout;
  spec.grace = request.grace;
  spec.max_output = request.max_output;
  spec.log_cap = request.log_cap;
  spec.limits = wish.limits;
  return spec;
}

}  // namespace

Task<Node::Started> Node::spawn(std::string tenant, std::string id, ExecRequest request) {
  auto found = co_await running(tenant, id);
  TALON_CO_TRY(actor, std::move(found));
  if (actor->held()) {
    co_return busy(actor->operation);
  }
  auto launched = co_await launch(actor, std::move(request));
  TALON_CO_TRY(exec, std::move(launched));
  Started out;
  out.actor = std::move(actor);
  out.exec = std::move(exec);
  co_return out;
}

Task<ExecPtr> Node::launch(ActorPtr actor, ExecRequest request) {
  if (!reserve_) {
    co_return over_limit(Code::disk_full, "reserve",
                         "the disk is full; free space under the data directory, then try again");
  }
  if (actor->live_execs() >= limits::kLiveExecs) {
    co_return over_limit(Code::too_many, "live_execs",
                         "256 processes run in this sandbox already; end some first");
  }
  if (request.id.empty()) {
    request.id = new_id(IdKind::exec);
  }
  auto decoded = decode_wish(actor->row.spec_json);
  TALON_CO_TRY(wish, std::move(decoded));
  isolate::ExecSpec spec = make_spec(request, wish);
  auto exec = std::make_shared<Exec>(parts_.ex);
  exec->row.id = request.id;
  exec->row.sandbox = actor->id();
  exec->row.tenant = actor->row.tenant;
  exec->row.state = "running";
  exec->row.spec_json = encode(request);
  exec->row.started_ms = system_clock().wall_ms();
  exec->stdin_accepted = request.stdin_head.size();
  exec->unrecorded = request.tty && request.record == Recording::none;
  fault::stop("exec.before_send");
  auto started = co_await actor->start_exec(std::move(spec), exec);
  if (!started) {
    note(started.error());
    co_return std::unexpected(std::move(started.error()));
  }
  fault::stop("exec.started");
  parts_.metrics->add("talon_execs_started_total", {});
  co_return exec;
}

Task<> Node::wait_exit(ActorPtr actor, ExecPtr exec) {
  while (!exec->exited) {
    if (actor->draining) {
      co_return fail(Code::unavailable,
                     "talond is stopping; the command goes on, and its output and result are at "
                     "processes/" +
                         exec->row.id + " when talond is back");
    }
    const std::uint64_t seen = exec->changed.version();
    auto woken = co_await exec->changed.wait(seen, Millis{60'000});
    if (!woken && woken.error().code != Code::timeout) {
      co_return std::unexpected(std::move(woken.error()));
    }
  }
  co_return Result<>{};
}

Task<Node::Found> Node::exec(std::string tenant, std::string id, std::string px) {
  auto owner = co_await alive(tenant, id);
  TALON_CO_TRY(actor, std::move(owner));
  Found found;
  found.actor = actor;
  found.exec = actor->find_exec(px);
  if (found.exec != nullptr) {
    found.row = found.exec->row;
    co_return found;
  }
  auto row = co_await stored_exec(actor->row.tenant, id, px);
  TALON_CO_TRY(stored, std::move(row));
  found.row = std::move(stored);
  co_return found;
}

Task<store::ExecRow> Node::stored_exec(std::string tenant, std::string id, std::string px) {
  if (!is_id(IdKind::exec, px)) {
    co_return no_process(px);
  }
  std::function<Result<store::ExecRow>()> job = [store = parts_.store, tenant, id,
                                                 px]() -> Result<store::ExecRow> {
    store::ExecRow row;
    TALON_CHECK(store->read([&](store::Db& db) -> Result<> {
      TALON_TRY(stored, store::get_exec(db, tenant, id, px));
      row = std::move(stored);
      return {};
    }));
    return row;
  };
  auto row = co_await parts_.offload->run<store::ExecRow>(std::move(job));
  if (!row && row.error().code == Code::not_found) {
    co_return no_process(px);
  }
  co_return row;
}

Task<store::ExecPage> Node::execs(std::string tenant, std::string id, std::string after,
                                  int limit) {
  auto owner = co_await alive(tenant, id);
  TALON_CO_TRY(actor, std::move(owner));
  std::function<Result<store::ExecPage>()> job = [store = parts_.store, tenant = actor->row.tenant,
                                                  id, after, limit]() -> Result<store::ExecPage> {
    store->flush();  // rows are written behind; a list shows what was started before it
    store::ExecPage page;
    TALON_CHECK(store->read([&](store::Db& db) -> Result<> {
      TALON_TRY(stored, store::list_execs(db, tenant, id, after, limit));
      page = std::move(stored);
      return {};
    }));
    return page;
  };
  auto page = co_await parts_.offload->run<store::ExecPage>(std::move(job));
  co_return page;
}

Task<> Node::signal_exec(std::string tenant, std::string id, std::string px, int number,
                         wire::Scope scope, std::string by) {
  auto looked = co_await exec(tenant, id, px);
  TALON_CO_TRY(found, std::move(looked));
  // `all` also reaches children that outlive the exec's own process, also of an exec that this
  // daemon has never held: init knows.
  const bool held = found.exec != nullptr && !found.exec->ended;
  const bool over = scope == wire::Scope::all ? (found.exec != nullptr && found.exec->ended)
                                              : (!held || found.exec->exited);
  if (over) {
    auto error = fail(Code::wrong_state, "the process " + px + " has ended");
    error.error().field = "exited";
    co_return error;
  }
  // KILL needs nobody who runs; any other signal would wait for the resume.
  if (found.actor->state() == State::paused && number != SIGKILL) {
    co_return wrong_state(State::paused, "running");
  }
  if (found.exec != nullptr) {
    found.exec->ended_by = by;
  }
  auto sent = co_await found.actor->signal(px, number, scope);
  if (!sent && (sent.error().sys == ESRCH || sent.error().sys == ENOENT)) {
    auto error = fail(Code::wrong_state, "the process " + px + " has ended");
    error.error().field = "exited";
    co_return error;
  }
  co_return sent;
}

Task<> Node::end_exec(std::string tenant, std::string id, std::string px, Millis grace,
                      std::string by) {
  auto looked = co_await exec(tenant, id, px);
  TALON_CO_TRY(found, std::move(looked));
  if ((found.exec != nullptr && found.exec->ended) || found.actor->live() == nullptr) {
    co_return Result<>{};
  }
  if (found.exec != nullptr) {
    found.exec->ended_by = by;
  }
  auto sent = co_await found.actor->end_exec(px, grace);
  if (!sent && sent.error().sys != ESRCH && sent.error().sys != ENOENT) {
    co_return sent;
  }
  if (found.exec == nullptr) {
    co_return Result<>{};
  }
  const std::int64_t end = system_clock().mono_ns() + (grace + Millis{10'000}).count() * 1'000'000;
  while (!found.exec->exited) {
    const std::int64_t left = (end - system_clock().mono_ns()) / 1'000'000;
    if (left <= 0) {
      co_return fail(Code::timeout, "the process has not ended within its grace time and 10 s");
    }
    const std::uint64_t seen = found.exec->changed.version();
    auto woken = co_await found.exec->changed.wait(seen, Millis{left});
    if (!woken && woken.error().code != Code::timeout) {
      co_return woken;
    }
  }
  co_return Result<>{};
}

Task<Node::StdinResult> Node::feed_stdin(std::string tenant, std::string id, std::string px,
                                         std::optional<std::uint64_t> offset, std::string bytes,
                                         bool close, Millis wait) {
  auto looked = co_await exec(tenant, id, px);
  TALON_CO_TRY(found, std::move(looked));
  if (found.exec == nullptr || found.exec->exited) {
    auto error = fail(Code::wrong_state, "the process " + px + " has ended");
    error.error().field = "exited";
    co_return error;
  }
  if (found.actor->state() == State::paused) {
    co_return wrong_state(State::paused, "running");  // nothing is queued (decision 15)
  }
  constexpr std::size_t kPiece = wire::kStdinFrame;
  const ExecPtr exec = found.exec;
  std::uint64_t at = offset.value_or(0);
  std::size_t sent = 0;
  const std::int64_t end = system_clock().mono_ns() + wait.count() * 1'000'000;
  do {
    const std::size_t size = std::min(kPiece, bytes.size() - sent);
    const Millis left{std::max<std::int64_t>(0, (end - system_clock().mono_ns()) / 1'000'000)};
    const bool last = sent + size == bytes.size();
    Result<> piece;
    if (offset) {
      piece =
          co_await found.actor->send_stdin(exec, at, bytes.substr(sent, size), close && last, left);
    } else {  // behind whatever was given by anybody: only init knows how much that is
      auto append = found.actor->append_stdin(exec, bytes.substr(sent, size), close && last);
      piece = co_await with_deadline(std::move(append), left);
    }
    if (!piece) {
      if (piece.error().code == Code::timeout) {
        break;  // the answer says how far it came
      }
      if (piece.error().sys == EINVAL) {
        co_return bad_field("offset", "it leaves a gap: the process has been given " +
                                          std::to_string(exec->stdin_accepted) + " bytes so far");
      }
      if (piece.error().sys == EPIPE || piece.error().sys == ENOENT) {
        auto error = fail(Code::wrong_state, "the input of the process is closed");
        error.error().field = "stdin_closed";
        co_return error;
      }
      co_return std::unexpected(std::move(piece.error()));
    }
    at += size;
    sent += size;
  } while (sent < bytes.size());
  StdinResult result;
  result.accepted = exec->stdin_accepted;
  result.closed = exec->stdin_closed;
  co_return result;
}

LogStream Node::log(const Found& found, isolate::Cursor from, Follow follow) const {
  LogStream::Source source;
  source.offload = parts_.offload;
  source.data = parts_.data;
  source.actor = found.actor;
  source.exec = found.exec;
  source.px = found.row.id;
  return LogStream(std::move(source), from, follow);
}

}  // namespace talon::server::node
