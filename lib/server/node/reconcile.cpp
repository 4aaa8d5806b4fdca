// At start: rows against processes, processes against rows, directories against both. Adopt what
// is provably ours, settle the rest with a reason, end what nobody knows. What it did is logged.

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

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
      if (it != rows.end() && it->second.state == "running") {
        it->second.state = "exited";
        it->second.result_json = encode(record.info);
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

Task<> Node::reconcile() {
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
  std::vector<std::string> keep;
  for (store::SandboxRow& row : rows) {
    const std::string id = row.id;
    auto settled = co_await reconcile_row(std::move(row), keep);
    if (!settled) {
      // One sandbox that cannot be settled must not keep the others from being served.
      log_error("reconcile", {{"sandbox", id}, {"error", settled.error().message}});
    }
  }
  std::function<Result<std::vector<std::string>>()> sweep =
      [isolator = parts_.isolator, keep]() -> Result<std::vector<std::string>> {
    return isolator->sweep(keep);
  };
  auto swept = co_await parts_.offload->run<std::vector<std::string>>(std::move(sweep));
  TALON_CO_TRY(lines, std::move(swept));
  for (const std::string& line : lines) {
    log_info("reconcile_sweep", {{"did", line}});
  }
  auto directories = co_await sweep_directories();
  if (!directories) {
    co_return directories;
  }
  reserve_ = parts_.data->reserve_present();
  log_info("reconciled",
           {{"rows", rows.size()}, {"adopted", keep.size()}, {"swept", lines.size()}});
  co_return Result<>{};
}

Task<> Node::reconcile_row(store::SandboxRow row, std::vector<std::string>& keep) {
  const State state = parse_state(row.state).value_or(State::failed);
  if (state == State::deleting) {
    log_info("reconcile", {{"sandbox", row.id}, {"did", "finished its deletion"}});
    // Its processes, if any are left, are ended by the sweep: it is not in `keep`.
    Certificate why{.reason = "user", .detail = "", .by = "", .at_ms = now_ms()};
    auto done = co_await finish_delete(std::move(row), std::move(why));
    co_return done;
  }
  auto actor = std::make_shared<Actor>(parts_.ex, hooks(), std::move(row));
  actors_[actor->id()] = actor;
  if (actor->row.expires_ms) {
    const std::int64_t left_ms = std::max<std::int64_t>(*actor->row.expires_ms - now_ms(), 1);
    actor->deadline_ns = system_clock().mono_ns() + left_ms * 1'000'000;
  }
  if (state == State::stopped || state == State::failed) {
    co_return Result<>{};
  }
  Certificate why{.reason = "init_died", .detail = "", .by = "", .at_ms = now_ms()};
  if (actor->row.identity_json.empty()) {
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
  log_warn("reconcile", {{"sandbox", actor->id()},
                         {"did", "stopped"},
                         {"reason", why.reason},
                         {"detail", why.detail}});
  std::function<Result<History>()> job = [data = parts_.data, store = parts_.store,
                                          sandbox = actor->row]() -> Result<History> {
    return read_history(*data, *store, sandbox);
  };
  auto history = co_await parts_.offload->run<History>(std::move(job));
  if (history) {
    for (store::ExecRow& row_left : history->live) {
      row_left.state = "exited";
      row_left.ended_ms = why.at_ms;
      history->settled.push_back(row_left);
    }
    for (const store::ExecRow& exec_row : history->settled) {
      parts_.store->write_behind(
          [exec_row](store::Db& db) -> Result<> { return store::upsert_exec(db, exec_row); });
    }
  }
  actor->row.state = to_string(State::stopped);
  actor->row.identity_json.clear();
  actor->row.certificate_json = encode(why);
  actor->row.ended_ms = why.at_ms;
  auto saved = co_await save(actor, "sandbox.stopped", actor->row.certificate_json);
  co_return saved;
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
    actor->add_exec(std::move(exec));
  }
  actor->journal_offset = history.journal_offset;
  log_info("reconcile",
           {{"sandbox", actor->id()}, {"did", "adopted"}, {"execs", history.live.size()}});
  actor->attach(std::move(sandbox));
  // What ended between reading the journal and attaching is read now; from here on init tells.
  auto rest = co_await read_journal(actor);
  if (!rest) {
    log_warn("journal", {{"sandbox", actor->id()}, {"error", rest.error().message}});
  }
  if (actor->state() == State::creating) {
    actor->row.state = to_string(State::running);
    auto saved = co_await save(actor, "sandbox.running", "{}");
    co_return saved;
  }
  co_return Result<>{};
}

// Directories that no row knows: a create that died before its row, or a lost store.
Task<> Node::sweep_directories() {
  std::set<std::string> sandboxes;
  std::set<std::string> spaces;
  for (const auto& [id, actor] : actors_) {
    if (actor->state() != State::failed) {
      sandboxes.insert(id);
      spaces.insert(actor->row.workspace);
    }
  }
  std::function<Result<std::size_t>()> job = [data = parts_.data, sandboxes,
                                              spaces]() -> Result<std::size_t> {
    std::size_t count = 0;
    TALON_TRY(have, data->sandboxes());
    for (const std::string& name : have) {
      if (!sandboxes.contains(name)) {
        TALON_CHECK(data->trash_sandbox(name));
        ++count;
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
    return count;
  };
  auto done = co_await parts_.offload->run<std::size_t>(std::move(job));
  TALON_CO_TRY(count, std::move(done));
  if (count != 0) {
    log_info("reconcile", {{"did", "moved orphan directories to trash"}, {"count", count}});
  }
  co_return Result<>{};
}

}  // namespace talon::server::node
