// Pause and resume. Only the execs are frozen; init stays awake, so logs, state, kill, stop and
// delete work meanwhile. The row decides: what a dead daemon left half done is made what its row
// says when the sandbox is adopted.

#include "base/fault.h"
#include "base/log.h"
#include "server/node/node.h"

namespace talon::server::node {

namespace {

constexpr Millis kFreezeDeadline{4'000};  // below what another operation waits for this one

}  // namespace

// Init is told before the freeze and after the thaw: while it knows of a pause, clocks stand still
// and nothing is started, which harms nobody; the other way round a timeout could pass in between.
Task<> Node::set_paused(ActorPtr actor, bool paused) {
  if (paused) {
    auto marked = co_await actor->mark(true);
    if (!marked) {
      co_return marked;
    }
  }
  fault::stop("pause.marked");
  isolate::Sandbox* live = actor->live();
  if (live == nullptr) {
    co_return wrong_state(actor->state(), "running or paused");
  }
  // `live` stays: who releases it waits for the operation that this is part of.
  std::function<Result<>()> job = [live, paused] { return live->freeze(paused, kFreezeDeadline); };
  auto frozen = co_await parts_.offload->run<void>(std::move(job));
  fault::stop("pause.frozen");
  if (paused && frozen) {
    co_return Result<>{};
  }
  auto resumed = co_await actor->mark(false);
  if (!frozen) {
    co_return frozen;
  }
  co_return resumed;
}

Task<store::SandboxRow> Node::pause_sandbox(std::string tenant, std::string id) {
  auto found = co_await alive(tenant, id);
  TALON_CO_TRY(actor, std::move(found));
  auto begun = co_await begin_operation(actor, "pause");
  TALON_CO_TRY(operation, std::move(begun));
  if (actor->state() != State::running) {
    co_return wrong_state(actor->state(), "running and not paused");
  }
  auto paused = co_await set_paused(actor, true);
  if (!paused) {
    note(paused.error());
    co_return std::unexpected(std::move(paused.error()).in("pause the sandbox"));
  }
  store::SandboxRow next = actor->row;
  next.state = to_string(State::paused);
  fault::stop("pause.before_row");
  auto saved = co_await save_next(actor, std::move(next), "sandbox.paused", "{}");
  if (!saved) {
    // A later daemon would let it go on: so does this one.
    auto undone = co_await set_paused(actor, false);
    if (!undone) {
      log_warn("resume", {{"sandbox", actor->id()}, {"error", undone.error().message}});
    }
    co_return std::unexpected(std::move(saved.error()));
  }
  operation.end();
  co_return actor->row;
}

Task<store::SandboxRow> Node::resume_sandbox(std::string tenant, std::string id) {
  auto found = co_await alive(tenant, id);
  TALON_CO_TRY(actor, std::move(found));
  auto begun = co_await begin_operation(actor, "resume");
  TALON_CO_TRY(operation, std::move(begun));
  if (actor->state() != State::paused) {
    co_return wrong_state(actor->state(), "paused");
  }
  auto resumed = co_await set_paused(actor, false);
  if (!resumed) {
    co_return std::unexpected(std::move(resumed.error()).in("resume the sandbox"));
  }
  store::SandboxRow next = actor->row;
  next.state = to_string(State::running);
  fault::stop("resume.before_row");
  auto saved = co_await save_next(actor, std::move(next), "sandbox.resumed", "{}");
  if (!saved) {
    actor->row.state = to_string(State::running);
    // It runs, and a disk that is full must not keep it from running; a later daemon finds a row
    // that says `paused` and pauses it again.
    log_warn("resume", {{"sandbox", actor->id()}, {"error", saved.error().message}});
  }
  operation.end();
  co_return actor->row;
}

Task<> Node::resume_if_paused(std::string tenant, std::string id) {
  auto found = co_await alive(tenant, id);
  TALON_CO_TRY(actor, std::move(found));
  if (actor->state() != State::paused && actor->operation != "pause") {
    co_return Result<>{};
  }
  auto resumed = co_await resume_sandbox(tenant, id);
  // Another call was first: what was wanted is so.
  if (!resumed && (resumed.error().code != Code::wrong_state || actor->state() != State::running)) {
    co_return std::unexpected(std::move(resumed.error()));
  }
  co_return Result<>{};
}

}  // namespace talon::server::node
