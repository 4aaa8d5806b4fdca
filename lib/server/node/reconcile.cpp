// At start: rows against processes, processes against rows, directories against both. Adopt what
// is provably ours, settle the rest with a reason, end what nobody knows. What it did is logged.

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "base/fault.h"
#include "base/log.h"
#include "isolate/log_reader.h"
#include "server/node/codec.h"
#include "server/node/node.h"

namespace talon::server::node {

namespace {

std::int64_t now_ms() { return system_clock().wall_ms(); }

// What the journal and the rows say together about the execs of an adopted sandbox.
struct History {
  std::uint64_t journal_offset = 0;
  std::vector<store::ExecRow> live;
  std::vector<store::ExecRow> settled;  // rows to write: missing, or still `running` there
  std::map<std::string, wire::ExitInfo> ends;
  std::size_t collected = 0;  // ends that no daemon had seen
};

Result<History> read_history(const DataDir& data, store::Store& store,
                             const store::SandboxRow& sandbox) {
  std::map<std::string, store::ExecRow> rows;
  TALON_CHECK(store.read([&](store::Db& db) -> Result<> {
    std::string after;
    do {
      TALON_TRY(page, store::list_execs(db, sandbox.tenant, sandbox.id, after, 500));
      for (store::ExecRow& row : page.rows) {
        std::string id = row.id;
        rows.emplace(std::move(id), std::move(row));
      }
      after = page.next;
    } while (!after.empty());
    return {};
  }));
  History history;
  TALON_TRY(logs, data.open_logs(sandbox.id));
  TALON_TRY(chunk, isolate::read_journal(logs.get(), history.journal_offset));
  std::set<std::string> started;
  std::set<std::string> changed;
  for (const wire::JournalRecord& record : chunk.records) {
    const std::string px{record.px, ::strnlen(record.px, sizeof record.px)};
    const auto at_ms = static_cast<std::int64_t>(record.wall_ns / 1'000'000);
    if (record.type == static_cast<std::uint16_t>(wire::Record::started)) {
      started.insert(px);
      auto [it, fresh] = rows.try_emplace(px);
      if (fresh) {
        it->second = {.id = px,
                      .sandbox = sandbox.id,
                      .tenant = sandbox.tenant,
                      .state = "running",
                      .spec_json = "{}",
                      .pid = 0,
                      .result_json = "",
                      .started_ms = at_ms,
                      .ended_ms = std::nullopt};
        changed.insert(px);
      }
      it->second.pid = static_cast<std::int32_t>(record.value);
    } else if (record.type == static_cast<std::uint16_t>(wire::Record::exit)) {
      const auto it = rows.find(px);
      history.ends[px] = record.info;
      if (it != rows.end() && it->second.state == "running") {
        ++history.collected;
        it->second.state = "exited";
        it->second.result_json = encode(record.info);
        Certificate why = certificate_of(record.info, at_ms);
        why.last_output = isolate::last_output(logs.get(), px, kLastBytes + 1).value_or("");
        it->second.certificate_json = encode(why);
        it->second.ended_ms = at_ms;
        changed.insert(px);
      }
    }
  }
  for (auto& [px, row] : rows) {
    if (row.state == "running" && started.contains(px)) {
      history.live.push_back(row);
    } else if (row.state == "running") {
      // A row without a journal record: the daemon died before init had it.
      row.state = "exited";
      row.ended_ms = now_ms();
      changed.insert(px);
    }
    if (changed.contains(px)) {
      history.settled.push_back(row);
    }
  }
  return history;
}

}  // namespace

// One line of the report, the log and the metric.
void Node::did(std::string_view sandbox, std::string_view what, std::string detail) {
  log_info("reconcile", {{"sandbox", sandbox}, {"did", what}, {"detail", detail}});
  parts_.metrics->add("talon_reconcile_total", "did=\"" + std::string{what} + "\"");
  ++report_.counts[std::string{what}];
  if (report_.actions.size() < kReportedActions) {
    report_.actions.push_back({std::string{sandbox}, std::string{what}, std::move(detail)});
  }
}

Task<> Node::reconcile() {
  const std::int64_t began_ns = system_clock().mono_ns();
  report_.at_ms = now_ms();
  std::function<Result<std::vector<store::SandboxRow>>()> job =
      [store = parts_.store]() -> Result<std::vector<store::SandboxRow>> {
    std::vector<store::SandboxRow> rows;
    TALON_CHECK(store->read([&](store::Db& db) -> Result<> {
      store::SandboxFilter filter;
      filter.limit = 500;
      do {
        TALON_TRY(page, store::list_sandboxes(db, filter));
        rows.insert(rows.end(), page.rows.begin(), page.rows.end());
        filter.after = page.next;
      } while (!filter.after.empty());
      return {};
    }));
    return rows;
  };
  auto read = co_await parts_.offload->run<std::vector<store::SandboxRow>>(std::move(job));
  TALON_CO_TRY(rows, std::move(read));
  fault::stop("reconcile.read");
  report_.rows = rows.size();
  std::vector<std::string> keep;
  for (store::SandboxRow& row : rows) {
    const std::string id = row.id;
    auto settled = co_await reconcile_row(std::move(row), keep);
    if (!settled) {
      // One sandbox that cannot be settled must not keep the others from being served.
      did(id, "error", settled.error().message);
    }
  }
  std::function<Result<std::vector<std::string>>()> sweep =
      [isolator = parts_.isolator, keep]() -> Result<std::vector<std::string>> {
    return isolator->sweep(keep);
  };
  fault::stop("reconcile.before_sweep");
  auto swept = co_await parts_.offload->run<std::vector<std::string>>(std::move(sweep));
  TALON_CO_TRY(lines, std::move(swept));
  parts_.metrics->add("talon_prewarm_reclaimed_total", "outcome=\"left\"",
                      static_cast<double>(std::ranges::count_if(
                          lines, [](const auto& line) { return line.contains(" is left"); })));
  for (std::string& line : lines) {
    did("", "orphan", std::move(line));
  }
  fault::stop("reconcile.swept");
  auto directories = co_await sweep_directories();
  if (!directories) {
    co_return directories;
  }
  reserve_ = parts_.data->reserve_present();
  fault::stop("reconcile.done");
  report_.took_ms = (system_clock().mono_ns() - began_ns) / 1'000'000;
  log_info("reconciled", {{"rows", report_.rows},
                          {"adopted", keep.size()},
                          {"orphans", lines.size()},
                          {"exits_collected", report_.exits_collected},
                          {"ms", report_.took_ms}});
  co_return Result<>{};
}

Task<> Node::reconcile_row(store::SandboxRow row, std::vector<std::string>& keep) {
  const State state = parse_state(row.state).value_or(State::failed);
  if (state == State::deleting) {
    // Its processes, if any are left, are ended by the sweep: it is not in `keep`.
    Certificate why{.reason = "user", .detail = "", .by = "", .at_ms = now_ms()};
    const std::string id = row.id;
    auto done = co_await finish_delete(std::move(row), std::move(why));
    if (done) {
      did(id, "deleted", "its deletion was half done");
    }
    co_return done;
  }
  auto actor = std::make_shared<Actor>(parts_.ex, hooks(), std::move(row));
  actors_[actor->id()] = actor;
  if (actor->row.expires_ms) {
    const std::int64_t left_ms = std::max<std::int64_t>(*actor->row.expires_ms - now_ms(), 1);
    actor->deadline_ns = system_clock().mono_ns() + left_ms * 1'000'000;
  }
  auto loaded = co_await load_services(actor);
  if (!loaded) {  // the sandbox is worth more than its services: it is adopted
    did(actor->id(), "error", "its services: " + loaded.error().message);
  }
  if (state == State::stopped || state == State::failed) {
    halt_services(actor);
    co_return Result<>{};
  }
  Certificate why{.reason = "error", .detail = "", .by = "", .at_ms = now_ms()};
  if (actor->row.identity_json.empty()) {
    did(actor->id(), "failed", "talond ended while the sandbox was being made");
    auto failed = co_await fail_create(
        actor, fail(Code::internal, "talond ended while the sandbox was being made").error());
    co_return failed;
  }
  auto decoded = decode_identity(actor->row.identity_json);
  TALON_CO_TRY(identity, std::move(decoded));
  if (identity.boot_id != parts_.isolator->host().boot_id) {
    why.reason = "host_reboot";
    why.detail = "the host was started again";
  } else {
    std::function<Result<std::unique_ptr<isolate::Sandbox>>()> job =
        [isolator = parts_.isolator, identity] { return isolator->adopt(identity); };
    auto adopted = co_await parts_.offload->run<std::unique_ptr<isolate::Sandbox>>(std::move(job));
    if (adopted) {
      keep.push_back(actor->id());
      auto done = co_await adopt(actor, std::move(*adopted));
      co_return done;
    }
    why.detail = "it could not be adopted: " + adopted.error().message;
  }
  did(actor->id(), "stopped", why.reason + ": " + why.detail);
  halt_services(actor);
  std::function<Result<History>()> job = [data = parts_.data, store = parts_.store,
                                          sandbox = actor->row]() -> Result<History> {
    return read_history(*data, *store, sandbox);
  };
  auto history = co_await parts_.offload->run<History>(std::move(job));
  if (history) {
    report_.exits_collected += history->collected;
    for (store::ExecRow& row_left : history->live) {
      row_left.state = "exited";
      row_left.ended_ms = why.at_ms;
      row_left.certificate_json = encode(why);
      history->settled.push_back(row_left);
    }
    for (const store::ExecRow& exec_row : history->settled) {
      parts_.store->write_behind(
          [exec_row](store::Db& db) -> Result<> { return store::upsert_exec(db, exec_row); });
    }
  }
  fault::stop("reconcile.stopped");
  actor->row.state = to_string(State::stopped);
  actor->row.identity_json.clear();
  actor->row.certificate_json = encode(why);
  actor->row.ended_ms = why.at_ms;
  auto saved = co_await save(actor, "sandbox.stopped", actor->row.certificate_json);
  co_return saved;
}

Task<> Node::load_services(ActorPtr actor) {
  std::function<Result<std::vector<store::ServiceRow>>()> job =
      [store = parts_.store, id = actor->id()]() -> Result<std::vector<store::ServiceRow>> {
    std::vector<store::ServiceRow> rows;
    TALON_CHECK(store->read([&](store::Db& db) -> Result<> {
      TALON_TRY(found, store::list_services(db, id));
      rows = std::move(found);
      return {};
    }));
    return rows;
  };
  auto read = co_await parts_.offload->run<std::vector<store::ServiceRow>>(std::move(job));
  TALON_CO_TRY(rows, std::move(read));
  for (store::ServiceRow& row : rows) {
    auto decoded = decode_service_spec(row.spec_json);
    TALON_CO_TRY(spec, std::move(decoded));
    auto service = std::make_shared<Service>(parts_.ex);
    service->spec = std::move(spec);
    service->row = std::move(row);
    actor->services[service->row.name] = service;
  }
  co_return Result<>{};
}

Task<> Node::adopt(ActorPtr actor, std::unique_ptr<isolate::Sandbox> sandbox) {
  std::function<Result<History>()> job = [data = parts_.data, store = parts_.store,
                                          row = actor->row]() -> Result<History> {
    return read_history(*data, *store, row);
  };
  auto read = co_await parts_.offload->run<History>(std::move(job));
  History history;
  if (read) {
    history = std::move(*read);
  } else {
    log_error("reconcile", {{"sandbox", actor->id()}, {"error", read.error().message}});
  }
  for (const store::ExecRow& row : history.settled) {
    parts_.store->write_behind(
        [row](store::Db& db) -> Result<> { return store::upsert_exec(db, row); });
  }
  for (store::ExecRow& row : history.live) {
    auto exec = std::make_shared<Exec>(parts_.ex);
    exec->row = std::move(row);
    exec->started = true;
    const auto terminal = terminal_of(exec->row);
    exec->unrecorded = terminal && terminal->record == Recording::none;
    actor->add_exec(std::move(exec));
  }
  fault::stop("adopt.history");
  actor->journal_offset = history.journal_offset;
  report_.exits_collected += history.collected;
  did(actor->id(), "adopted", std::to_string(history.live.size()) + " processes");
  actor->attach(std::move(sandbox));
  fault::stop("adopt.attached");
  // What ended between reading the journal and attaching is read now; from here on init tells.
  auto rest = co_await read_journal(actor);
  if (!rest) {
    log_warn("journal", {{"sandbox", actor->id()}, {"error", rest.error().message}});
  }
  fault::stop("adopt.journal");
  const bool paused = actor->state() == State::paused;
  if (paused || actor->live()->paused()) {
    auto settled = co_await set_paused(actor, paused);
    if (!settled) {
      did(actor->id(), "error", (paused ? "pause it: " : "resume it: ") + settled.error().message);
    }
  }
  if (actor->state() == State::creating) {
    actor->row.state = to_string(State::running);
    auto saved = co_await save(actor, "sandbox.running", "{}");
    if (!saved) {
      co_return saved;
    }
  }
  fault::stop("adopt.services");
  for (const auto& [name, service] : actor->services) {
    const auto ended = history.ends.find(service->row.exec);
    adopt_service(actor, service,
                  ended == history.ends.end() ? std::nullopt : std::optional{ended->second});
  }
  co_return Result<>{};
}

// One after the other: a host that has just started has enough to do.
Task<> Node::start_after_reboot() {
  std::vector<ActorPtr> wanted;
  for (const auto& [id, actor] : actors_) {
    const bool serves = std::ranges::any_of(actor->services, [](const auto& entry) {
      return entry.second->spec.restart == Restart::always;
    });
    if (serves && actor->state() == State::stopped &&
        actor->row.certificate_json.find(R"("reason":"host_reboot")") != std::string::npos) {
      wanted.push_back(actor);
    }
  }
  for (const ActorPtr& actor : wanted) {
    auto started = co_await start_sandbox(actor->row.tenant, actor->id());
    log_info("start_after_reboot",
             {{"sandbox", actor->id()},
              {"error", started ? std::string{} : std::move(started.error().message)}});
  }
  co_return Result<>{};
}

// Directories that no row knows: a create that died before its row, or a lost store.
Task<> Node::sweep_directories() {
  std::set<std::string> sandboxes;
  std::set<std::string> spaces;
  std::set<std::string> known;
  for (const auto& [id, actor] : actors_) {
    known.insert(id);
    if (actor->state() != State::failed) {
      sandboxes.insert(id);
      spaces.insert(actor->row.workspace);
    }
  }
  struct Swept {
    std::size_t count = 0;
    std::size_t ahead = 0;  // a row comes before its directory, so these were made ahead of any
  };
  std::function<Result<Swept>()> job = [data = parts_.data, sandboxes, spaces,
                                        known]() -> Result<Swept> {
    Swept out;
    std::size_t& count = out.count;
    TALON_TRY(have, data->sandboxes());
    for (const std::string& name : have) {
      if (!sandboxes.contains(name)) {
        TALON_CHECK(data->trash_sandbox(name));
        ++count;
        out.ahead += known.contains(name) ? 0 : 1;
      }
    }
    TALON_TRY(trees, data->workspaces());
    for (const std::string& name : trees) {
      if (!spaces.contains(name)) {
        TALON_CHECK(data->trash_workspace(name));
        ++count;
      }
    }
    if (!data->reserve_present()) {
      auto made = data->make_reserve();
      if (!made) {
        log_warn("disk_reserve", {{"error", made.error().message}});
      }
    }
    return out;
  };
  auto done = co_await parts_.offload->run<Swept>(std::move(job));
  TALON_CO_TRY(swept, std::move(done));
  const std::size_t count = swept.count;
  parts_.metrics->add("talon_prewarm_reclaimed_total", "outcome=\"removed\"",
                      static_cast<double>(swept.ahead));
  report_.directories = count;
  if (count != 0) {
    did("", "orphan", std::to_string(count) + " directories without a row went to trash");
  }
  co_return Result<>{};
}

}  // namespace talon::server::node
