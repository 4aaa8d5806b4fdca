// Why things ended, with what is known about it, and how long that is kept.

#include <sys/wait.h>

#include <csignal>

#include "base/fault.h"
#include "base/log.h"
#include "isolate/log_reader.h"
#include "server/node/codec.h"
#include "server/node/node.h"

namespace talon::server::node {

namespace {

constexpr int kExecsKept = 10'000;              // ended ones of a sandbox (decision 23)
constexpr std::uint64_t kExecsTrimEvery = 500;  // ends between two looks
constexpr int kExpireBatch = 500;               // rows of one commit, so that others get their turn
constexpr Millis kExpirePause{3'600'000};

std::int64_t now_ms() { return system_clock().wall_ms(); }

// "" when nothing is there any more: a certificate without its last lines is one all the same.
std::string last_output(const DataDir& data, const std::string& id, const std::string& px) {
  auto logs = data.open_logs(id);
  if (!logs) {
    return {};
  }
  // One byte more than is shown tells whether the first line is whole.
  return isolate::last_output(logs->get(), px, kLastBytes + 1).value_or("");
}

}  // namespace

void Node::write_exec(const ActorPtr& actor, const ExecPtr& exec) {
  if (exec->exited) {
    exec->row.result_json = encode(exec->info);
    parts_.metrics->add("talon_execs_ended_total", {});
    Certificate why = certificate_of(exec->info, exec->row.ended_ms.value_or(now_ms()));
    if (exec->cut) {
      why.reason = actor->ending.reason;
      why.by = actor->ending.by;
      why.detail = "it ended with its sandbox: " + actor->ending.detail;
    } else if (why.reason == "user") {
      why.by = exec->ended_by;
    }
    exec->row.certificate_json = encode(why);
    if (exec->unrecorded) {
      group_->spawn("remove_log", remove_log(actor, exec->row.id));
    } else if (exec->cut || exec->info.out_bytes + exec->info.err_bytes != 0) {
      group_->spawn("last_output", add_last_output(actor, exec, std::move(why)));
    }
    if (++actor->execs_ended % kExecsTrimEvery == 0) {
      parts_.store->write_behind([id = actor->id()](store::Db& db) -> Result<> {
        TALON_CHECK(store::trim_execs_of(db, id, kExecsKept));
        return {};
      });
    }
  }
  fault::stop("exec.before_row");
  parts_.store->write_behind(
      [row = exec->row](store::Db& db) -> Result<> { return store::upsert_exec(db, row); });
}

// Beside the answer that waits for the exit: reading the log takes its time.
Task<> Node::add_last_output(ActorPtr actor, ExecPtr exec, Certificate certificate) {
  std::function<Result<std::string>()> job = [data = parts_.data, id = actor->id(),
                                              px = exec->row.id]() -> Result<std::string> {
    return last_output(*data, id, px);
  };
  auto read = co_await parts_.offload->run<std::string>(std::move(job));
  TALON_CO_TRY(text, std::move(read));
  if (text.empty()) {
    co_return Result<>{};
  }
  certificate.last_output = std::move(text);
  exec->row.certificate_json = encode(certificate);
  parts_.store->write_behind([id = exec->row.id, sandbox = exec->row.sandbox,
                              text = exec->row.certificate_json](store::Db& db) -> Result<> {
    return store::set_exec_certificate(db, sandbox, id, text);
  });
  co_return Result<>{};
}

Task<Certificate> Node::with_facts(ActorPtr actor, Certificate why) {
  const ExecPtr newest = actor->newest_exec();
  const std::string px = newest == nullptr ? "" : newest->row.id;
  std::function<Result<Certificate>()> job = [data = parts_.data, id = actor->id(), px,
                                              live = actor->live(),
                                              why]() mutable -> Result<Certificate> {
    if (live != nullptr) {
      if (const auto stats = live->stats()) {
        why.peak_bytes = stats->memory_peak_bytes.value_or(0);
      }
    }
    if (!px.empty()) {
      why.last_output = last_output(*data, id, px);
      why.last_exec = why.last_output.empty() ? "" : px;
    }
    return why;
  };
  // The operation that is under way keeps `live`.
  auto done = co_await parts_.offload->run<Certificate>(std::move(job));
  co_return done;
}

// init has ended, or says things that nobody can act on.
Task<Certificate> Node::why_dead(ActorPtr actor, std::string detail) {
  struct Facts {
    std::optional<int> status;
    bool oom = false;
  };
  std::function<Result<Facts>()> job = [live = actor->live()]() -> Result<Facts> {
    Facts facts{.status = live->init_status()};
    const auto stats = live->stats();
    facts.oom = stats && stats->init_oom_kills != 0;
    return facts;
  };
  auto found = co_await parts_.offload->run<Facts>(std::move(job));
  TALON_CO_TRY(facts, std::move(found));
  Certificate why{.reason = "error", .detail = std::move(detail), .by = "", .at_ms = now_ms()};
  const int status = facts.status.value_or(0);
  if (facts.status && WIFSIGNALED(status)) {
    why.signal = WTERMSIG(status);
    why.reason = *why.signal == SIGSYS ? "seccomp" : "signal";
    why.detail = "init was ended by signal " + std::to_string(*why.signal);
  } else if (facts.status) {
    why.exit_code = WEXITSTATUS(status);
    why.reason = "exit";
    why.detail = "init exited with code " + std::to_string(*why.exit_code);
  }
  if (facts.oom) {
    why.reason = "oom";
    why.detail = "init was killed because the sandbox's memory limit was reached";
  }
  auto done = co_await with_facts(actor, std::move(why));
  co_return done;
}

// Takes away what has been kept long enough, at the start and then every hour.
Task<> Node::retention() {
  while (true) {
    const std::int64_t before = now_ms() - config_.retention.count();
    std::int64_t removed = 0;
    std::int64_t last = 0;
    do {
      std::function<Result<std::int64_t>()> job = [store = parts_.store,
                                                   before]() -> Result<std::int64_t> {
        std::int64_t rows = 0;
        TALON_CHECK(store->write([&](store::Db& db) -> Result<> {
          TALON_TRY(sandboxes, store::expire_sandboxes(db, before, kExpireBatch));
          TALON_TRY(events, store::expire_events(db, before, kExpireBatch));
          rows = sandboxes + events;
          return {};
        }));
        return rows;
      };
      auto done = co_await parts_.offload->run<std::int64_t>(std::move(job));
      if (!done) {
        log_warn("retention", {{"error", done.error().message}});
      }
      last = done.value_or(0);
      removed += last;
    } while (last != 0);
    if (removed != 0) {
      log_info("retention", {{"removed", removed}});
    }
    auto slept = co_await sleep_for(kExpirePause);
    if (!slept) {
      co_return Result<>{};
    }
  }
}

}  // namespace talon::server::node
