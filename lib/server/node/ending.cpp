// How sandboxes change and end: patch, stop and start, delete, death of init, life timeout.

#include <algorithm>

#include "base/fault.h"
#include "base/log.h"
#include "isolate/log_reader.h"
#include "server/node/codec.h"
#include "server/node/node.h"

namespace talon::server::node {

namespace {

constexpr Millis kKillDeadline{10'000};
constexpr Millis kReaperPause{10'000};
constexpr std::size_t kReaperSlice = 2'000;
constexpr int kRowTries = 40;  // with kRowPause: 4 s
constexpr Millis kRowPause{100};
constexpr Millis kSettleAgain{1000};

std::int64_t now_ms() { return system_clock().wall_ms(); }

}  // namespace

Task<store::SandboxRow> Node::patch(std::string tenant, std::string id, PatchRequest request) {
  auto found = co_await alive(tenant, id);
  TALON_CO_TRY(actor, std::move(found));
  auto begun = co_await begin_operation(actor, "patch");
  TALON_CO_TRY(operation, std::move(begun));
  if (actor->state() == State::deleting || actor->state() == State::deleted) {
    co_return wrong_state(actor->state(), "alive");
  }
  if (request.if_version && *request.if_version != actor->row.version) {
    co_return over_limit(Code::conflict, "If-Match",
                         "the sandbox has changed since that ETag; GET it again and repeat the "
                         "change");
  }
  const store::SandboxRow before = actor->row;
  const std::int64_t deadline_before = actor->deadline_ns;
  if (request.name) {
    actor->row.name = *request.name;
  }
  if (request.labels) {
    actor->row.labels_json = encode(*request.labels);
  }
  if (request.timeout) {
    const auto timeout = *request.timeout;
    auto wish = decode_wish(actor->row.spec_json);
    TALON_CO_TRY(changed, std::move(wish));
    changed.timeout = timeout;
    actor->row.spec_json = encode(changed);
    if (timeout) {
      actor->row.expires_ms = now_ms() + timeout->count();
      actor->deadline_ns = system_clock().mono_ns() + timeout->count() * 1'000'000;
    } else {
      actor->row.expires_ms.reset();
      actor->deadline_ns = 0;
    }
  }
  auto saved = co_await save(actor, "sandbox.changed", "{}");
  if (!saved) {
    actor->row = before;
    actor->deadline_ns = deadline_before;
    co_return std::unexpected(std::move(saved.error()));
  }
  operation.end();
  co_return actor->row;
}

Task<> Node::end_live(ActorPtr actor, Certificate why) {
  halt_services(actor);
  actor->ending = std::move(why);
  auto released = co_await actor->release();
  TALON_CO_TRY(owned, std::move(released));
  if (owned != nullptr) {
    const auto sandbox = std::make_shared<std::unique_ptr<isolate::Sandbox>>(std::move(owned));
    std::function<Result<>()> job = [sandbox]() -> Result<> {
      TALON_CHECK((*sandbox)->kill(kKillDeadline));
      return (*sandbox)->remove();
    };
    auto ended = co_await parts_.offload->run<void>(std::move(job));
    if (!ended) {
      log_warn("sandbox_end", {{"sandbox", actor->id()}, {"error", ended.error().message}});
      // It goes on, as far as it lives; whoever asks again ends what is left.
      actor->attach(std::move(*sandbox));
      actor->ending = {};
      start_services(actor);
      co_return std::unexpected(std::move(ended.error()));
    }
  }
  // Results that init wrote and could not send any more.
  auto read = co_await read_journal(actor);
  if (!read) {
    log_warn("journal", {{"sandbox", actor->id()}, {"error", read.error().message}});
  }
  actor->end_all_execs();
  co_return Result<>{};
}

Task<> Node::read_journal(ActorPtr actor) {
  struct Read {
    isolate::JournalChunk chunk;
    std::uint64_t offset = 0;
  };
  std::function<Result<Read>()> job = [data = parts_.data, id = actor->id(),
                                       offset = actor->journal_offset]() -> Result<Read> {
    Read read;
    read.offset = offset;
    TALON_TRY(logs, data->open_logs(id));
    TALON_TRY(chunk, isolate::read_journal(logs.get(), read.offset));
    read.chunk = std::move(chunk);
    return read;
  };
  auto done = co_await parts_.offload->run<Read>(std::move(job));
  if (!done && done.error().code == Code::not_found) {
    co_return Result<>{};
  }
  TALON_CO_TRY(read, std::move(done));
  actor->journal_offset = read.offset;
  if (read.chunk.damaged) {
    log_warn("journal_damaged", {{"sandbox", actor->id()}, {"offset", read.offset}});
  }
  for (const wire::JournalRecord& record : read.chunk.records) {
    const std::string_view px{record.px, ::strnlen(record.px, sizeof record.px)};
    const ExecPtr exec = actor->find_exec(px);
    if (exec == nullptr) {
      continue;
    }
    if (record.type == static_cast<std::uint16_t>(wire::Record::started) && !exec->started) {
      exec->started = true;
      exec->row.pid = static_cast<std::int32_t>(record.value);
      exec->changed.notify_all();
    } else if (record.type == static_cast<std::uint16_t>(wire::Record::exit)) {
      actor->finish_exec(exec, record.info, static_cast<std::int64_t>(record.wall_ns / 1'000'000));
    }
  }
  co_return Result<>{};
}

// init ended, or says things that nobody can act on: the sandbox is over, what it wrote stays.
Task<> Node::settle_dead(ActorPtr actor, std::string detail) {
  auto begun = co_await begin_operation(actor, "settle");
  if (!begun || actor->live() == nullptr || actor->state() == State::deleting ||
      actor->state() == State::failed) {
    co_return Result<>{};  // whoever holds it is ending it, or a DELETE will
  }
  auto explained = co_await why_dead(actor, std::move(detail));
  TALON_CO_TRY(why, std::move(explained));
  auto ended = co_await end_live(actor, why);
  if (!ended) {
    note(ended.error());
    auto slept = co_await sleep_for(kSettleAgain);  // then its watch asks for this again
    static_cast<void>(slept);
    co_return ended;
  }
  actor->row.state = to_string(State::stopped);
  actor->row.identity_json.clear();
  actor->row.certificate_json = encode(why);
  actor->row.ended_ms = why.at_ms;
  log_warn("sandbox_died",
           {{"sandbox", actor->id()}, {"reason", why.reason}, {"detail", why.detail}});
  auto saved = co_await save(actor, "sandbox.stopped", actor->row.certificate_json);
  co_return saved;
}

Task<store::SandboxRow> Node::stop_sandbox(std::string tenant, std::string id, Certificate why) {
  auto found = co_await alive(tenant, id);
  TALON_CO_TRY(actor, std::move(found));
  auto begun = co_await begin_operation(actor, "stop");
  TALON_CO_TRY(operation, std::move(begun));
  if (!allowed(actor->state(), State::stopped) || actor->state() == State::creating) {
    co_return wrong_state(actor->state(), "running or paused");
  }
  auto facts = co_await with_facts(actor, std::move(why));
  TALON_CO_TRY(certificate, std::move(facts));
  why = std::move(certificate);
  auto ended = co_await end_live(actor, why);
  if (!ended) {
    co_return std::unexpected(std::move(ended.error()));
  }
  actor->row.state = to_string(State::stopped);
  actor->row.identity_json.clear();
  actor->row.certificate_json = encode(why);
  actor->row.ended_ms = why.at_ms;
  fault::stop("stop.ended");
  auto saved = co_await save(actor, "sandbox.stopped", actor->row.certificate_json);
  if (!saved) {
    co_return std::unexpected(std::move(saved.error()));
  }
  operation.end();
  co_return actor->row;
}

Task<store::SandboxRow> Node::start_sandbox(std::string tenant, std::string id) {
  auto found = co_await alive(tenant, id);
  TALON_CO_TRY(actor, std::move(found));
  auto begun = co_await begin_operation(actor, "start");
  TALON_CO_TRY(operation, std::move(begun));
  if (actor->state() != State::stopped) {
    co_return wrong_state(actor->state(), "stopped");
  }
  auto decoded = decode_wish(actor->row.spec_json);
  TALON_CO_TRY(wish, std::move(decoded));
  operation.end();  // run_create holds it itself, without a gap: nothing else runs in between
  Chosen nothing_ahead;
  auto made = co_await run_create(actor, std::move(wish), std::move(nothing_ahead), true);
  if (!made) {
    co_return std::unexpected(std::move(made.error()));
  }
  co_return actor->row;
}

Task<> Node::remove(std::string tenant, std::string id, Certificate why) {
  const ActorPtr found = actor(tenant, id);
  if (found == nullptr) {
    auto old = co_await row(tenant, id);  // not_found, or already deleted
    if (!old) {
      co_return std::unexpected(std::move(old.error()));
    }
    co_return Result<>{};
  }
  fault::stop("delete.asked");
  auto begun = co_await begin_operation(found, "delete");
  TALON_CO_TRY(operation, std::move(begun));
  if (found->state() == State::deleted) {
    co_return Result<>{};
  }
  if (!allowed(found->state(), State::deleting) && found->state() != State::deleting) {
    co_return wrong_state(found->state(), "alive");
  }
  auto facts = co_await with_facts(found, std::move(why));
  TALON_CO_TRY(certificate, std::move(facts));
  why = std::move(certificate);
  const bool failed = found->state() == State::failed;
  found->row.state = to_string(State::deleting);
  if (!failed || found->row.certificate_json.empty()) {
    found->row.certificate_json = encode(why);  // a failed one keeps the reason it failed for
  }
  auto marked = co_await save(found, "sandbox.deleting", found->row.certificate_json);
  if (!marked && marked.error().code != Code::disk_full) {
    co_return marked;
  }
  fault::stop("delete.marked");
  auto ended = co_await end_live(found, why);
  if (!ended) {
    co_return ended;  // the row stays in `deleting`; DELETE again, or the next start, ends it
  }
  fault::stop("delete.ended");
  auto done = co_await finish_delete(found->row, std::move(why));
  if (!done) {
    co_return done;
  }
  fault::stop("delete.row");
  found->row.state = to_string(State::deleted);
  ++found->row.version;
  actors_.erase(found->id());
  operation.end();
  found->grew.notify_all();
  co_return Result<>{};
}

// The directories to trash, then the row to `deleted`, its execs to what is kept of them.
Task<> Node::finish_delete(store::SandboxRow row, Certificate why) {
  std::function<Result<>()> job = [data = parts_.data, store = parts_.store, row,
                                   why]() mutable -> Result<> {
    TALON_CHECK(fault::point("delete.trash"));
    TALON_CHECK(data->trash_sandbox(row.id));
    if (!row.workspace.empty()) {
      TALON_CHECK(data->trash_workspace(row.workspace));
    }
    TALON_CHECK(fault::point("delete.trashed"));
    row.state = to_string(State::deleted);
    row.identity_json.clear();
    row.updated_ms = now_ms();
    row.ended_ms = row.updated_ms;
    if (row.certificate_json.empty()) {
      row.certificate_json = encode(why);
    }
    store::EventRow event{.seq = 0,
                          .tenant = row.tenant,
                          .sandbox = row.id,
                          .type = "sandbox.deleted",
                          .data_json = row.certificate_json,
                          .at_ms = row.updated_ms};
    return store->write([&](store::Db& db) -> Result<> {
      if (!row.workspace.empty()) {
        auto workspace = store::get_workspace(db, row.tenant, row.workspace);
        if (workspace) {
          workspace->deleted_ms = row.updated_ms;
          TALON_CHECK(store::update_workspace(db, *workspace));
        }
      }
      TALON_CHECK(store::update_sandbox(db, row));
      TALON_CHECK(store::retire_execs_of(db, row.id));
      TALON_CHECK(store::delete_services_of(db, row.id));
      return store::insert_event(db, event);
    });
  };
  auto done = co_await parts_.offload->run<void>(job);
  // Room for the row comes from the reserve, and where other writers took that already, from
  // what the reaper now removes: the sandbox's own files are in trash/ by now.
  for (int i = 0; i < kRowTries && !done && done.error().code == Code::disk_full; ++i) {
    note(done.error());
    trash_.notify_all();
    auto pause = co_await sleep_for(kRowPause);
    if (!pause) {
      break;
    }
    done = co_await parts_.offload->run<void>(job);
  }
  trash_.notify_all();
  co_return done;
}

// Removes what lies in trash/ a slice at a time, so that a tree of millions of files never holds
// a pool thread for long, and makes the reserve again once there is room.
Task<> Node::reaper() {
  while (true) {
    const std::uint64_t seen = trash_.version();
    std::function<Result<bool>()> job = [data = parts_.data]() -> Result<bool> {
      return data->empty_trash(kReaperSlice);
    };
    auto empty = co_await parts_.offload->run<bool>(std::move(job));
    if (empty && !*empty) {
      auto pause = co_await sleep_for(Millis{1});
      if (!pause) {
        co_return Result<>{};
      }
      continue;
    }
    if (!empty) {
      log_warn("reaper", {{"error", empty.error().message}});
    }
    if (!reserve_) {
      std::function<Result<>()> refill = [data = parts_.data] { return data->make_reserve(); };
      auto made = co_await parts_.offload->run<void>(std::move(refill));
      if (made) {
        reserve_ = true;
        log_info("disk_reserve", {{"reserve", "made again"}});
      }
    }
    auto woken = co_await trash_.wait(seen, kReaperPause);
    if (!woken && woken.error().code != Code::timeout) {
      co_return Result<>{};
    }
  }
}

Task<> Node::life_timer() {
  while (true) {
    auto slept = co_await sleep_for(Millis{250});
    if (!slept) {
      co_return Result<>{};
    }
    const std::int64_t now = system_clock().mono_ns();
    for (const auto& [id, actor] : actors_) {
      if (actor->deadline_ns != 0 && now >= actor->deadline_ns && actor->operation.empty()) {
        actor->deadline_ns = now + 30'000'000'000;  // again if this attempt fails
        Certificate why{
            .reason = "timeout", .detail = "its life timeout passed", .by = "", .at_ms = now_ms()};
        group_->spawn("life_timeout", remove(actor->row.tenant, id, std::move(why)));
      }
    }
  }
}

}  // namespace talon::server::node
