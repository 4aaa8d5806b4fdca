#include "server/node/node.h"

#include <fcntl.h>

#include <algorithm>

#include "base/fault.h"
#include "base/id.h"
#include "base/log.h"
#include "server/node/codec.h"

namespace talon::server::node {

namespace {

std::int64_t now_ms() { return system_clock().wall_ms(); }

std::unexpected<Error> no_sandbox(std::string_view id) {
  return fail(Code::not_found, "there is no sandbox " + std::string{id});
}

}  // namespace

Node::Node(NodeParts parts, NodeConfig config)
    : parts_(std::move(parts)), config_(config), trash_(parts_.ex) {
  group_ = std::make_unique<TaskGroup>(parts_.ex, [](std::string_view name, const Error& error) {
    log_error("node_task", {{"task", name}, {"error", error.message}});
  });
}

Node::~Node() = default;

Task<> Node::start() {
  auto done = co_await reconcile();
  if (!done) {
    co_return done;
  }
  auto pools = co_await start_pool();
  if (!pools) {
    co_return pools;
  }
  group_->spawn("reaper", reaper());
  if (config_.start_after_reboot) {
    group_->spawn("start_after_reboot", start_after_reboot());
  }
  group_->spawn("life_timer", life_timer());
  group_->spawn("retention", retention());
  co_return Result<>{};
}

void Node::end_streams() {
  for (const auto& [id, actor] : actors_) {
    actor->drain();
  }
}

Task<> Node::stop(bool end_sandboxes) {
  stopping_ = true;
  std::vector<ActorPtr> all;
  for (const auto& [id, actor] : actors_) {
    all.push_back(actor);
  }
  if (end_sandboxes) {
    for (const ActorPtr& actor : all) {
      Certificate why{.reason = "user",
                      .detail = "talond was stopped with --stop-sandboxes",
                      .by = "",
                      .at_ms = now_ms()};
      if (actor->state() == State::running || actor->state() == State::paused) {
        auto ended = co_await stop_sandbox(actor->row.tenant, actor->id(), std::move(why));
        if (!ended) {
          log_warn("stop_sandbox", {{"sandbox", actor->id()}, {"error", ended.error().message}});
        }
      }
    }
  }
  auto stopped = co_await group_->stop(Millis{3000});
  auto emptied = co_await stop_pool();
  if (!emptied) {
    log_warn("stop_pool", {{"error", emptied.error().message}});
  }
  for (const ActorPtr& actor : all) {
    auto sandbox = co_await actor->release();
    if (sandbox && *sandbox != nullptr) {
      sandbox->reset();  // closes descriptors; the sandbox itself goes on
    }
  }
  actors_.clear();
  co_return stopped;
}

Actor::Hooks Node::hooks() {
  return {
      .exec_changed = [this](const ActorPtr& actor,
                             const ExecPtr& exec) { write_exec(actor, exec); },
      .died =
          [this](const ActorPtr& actor, std::string reason) {
            if (!stopping_) {
              group_->spawn("settle_dead", settle_dead(actor, std::move(reason)));
            }
          },
      .resync =
          [this](const ActorPtr& actor) { group_->spawn("read_journal", read_journal(actor)); },
  };
}

void Node::note(const Error& error) {
  if (error.code == Code::disk_full && reserve_) {
    parts_.data->give_up_reserve();
    reserve_ = false;
    log_warn("disk_full", {{"reserve", "given up"}, {"error", error.message}});
    trash_.notify_all();
  }
}

// The row as it is now in memory, and one event, in one commit.
Task<> Node::save(ActorPtr actor, std::string event, std::string data_json) {
  auto saved = co_await save_next(actor, actor->row, std::move(event), std::move(data_json));
  co_return saved;
}

// What the row is to be: nobody sees it before it is on disk.
Task<> Node::save_next(ActorPtr actor, store::SandboxRow next, std::string event,
                       std::string data_json) {
  next.updated_ms = now_ms();
  store::EventRow event_row{.seq = 0,
                            .tenant = next.tenant,
                            .sandbox = next.id,
                            .type = std::move(event),
                            .data_json = std::move(data_json),
                            .at_ms = next.updated_ms};
  std::function<Result<>()> job = [store = parts_.store, next,
                                   event_row = std::move(event_row)]() -> Result<> {
    return store->write([&](store::Db& db) -> Result<> {
      TALON_CHECK(store::update_sandbox(db, next));
      return store::insert_event(db, event_row);
    });
  };
  auto written = co_await parts_.offload->run<void>(std::move(job));
  if (written) {
    actor->row = std::move(next);
    ++actor->row.version;
  } else {
    note(written.error());
  }
  actor->changed.notify_all();
  co_return written;
}

ActorPtr Node::actor(std::string_view tenant, std::string_view id) const {
  const auto it = actors_.find(std::string{id});
  if (it == actors_.end() || (!tenant.empty() && it->second->row.tenant != tenant)) {
    return nullptr;
  }
  return it->second;
}

Task<store::SandboxRow> Node::row(std::string tenant, std::string id) {
  if (const ActorPtr found = actor(tenant, id)) {
    store::SandboxRow copy = found->row;
    copy.operation = found->operation;
    co_return copy;
  }
  if (!is_id(IdKind::sandbox, id)) {
    co_return no_sandbox(id);
  }
  std::function<Result<store::SandboxRow>()> job = [store = parts_.store, tenant,
                                                    id]() -> Result<store::SandboxRow> {
    store::SandboxRow row;
    TALON_CHECK(store->read([&](store::Db& db) -> Result<> {
      TALON_TRY(found, store::get_sandbox(db, tenant, id));
      row = std::move(found);
      return {};
    }));
    return row;
  };
  auto found = co_await parts_.offload->run<store::SandboxRow>(std::move(job));
  if (!found && found.error().code == Code::not_found) {
    co_return no_sandbox(id);
  }
  co_return found;
}

Task<ActorPtr> Node::alive(std::string tenant, std::string id) {
  if (ActorPtr found = actor(tenant, id)) {
    co_return found;
  }
  auto old = co_await row(tenant, id);
  TALON_CO_TRY(ended, std::move(old));
  co_return fail(Code::gone,
                 "the sandbox " + ended.id + " was deleted; GET it for its certificate");
}

Task<ActorPtr> Node::running(std::string tenant, std::string id) {
  auto found = co_await alive(tenant, id);
  TALON_CO_TRY(actor, std::move(found));
  if (actor->state() != State::running || actor->live() == nullptr) {
    co_return wrong_state(actor->state(), "running");
  }
  co_return actor;
}

Task<store::SandboxPage> Node::list(store::SandboxFilter filter) {
  std::function<Result<store::SandboxPage>()> job =
      [store = parts_.store, filter = std::move(filter)]() -> Result<store::SandboxPage> {
    store::SandboxPage page;
    TALON_CHECK(store->read([&](store::Db& db) -> Result<> {
      TALON_TRY(found, store::list_sandboxes(db, filter));
      page = std::move(found);
      return {};
    }));
    return page;
  };
  auto page = co_await parts_.offload->run<store::SandboxPage>(std::move(job));
  if (page) {
    for (store::SandboxRow& row : page->rows) {
      if (const ActorPtr found = actor(row.tenant, row.id)) {
        row = found->row;
        row.operation = found->operation;
      }
    }
  }
  co_return page;
}

Task<store::SandboxRow> Node::create(CreateRequest request) {
  if (stopping_) {
    co_return fail(Code::unavailable, "talond is shutting down");
  }
  if (!reserve_) {
    co_return over_limit(Code::disk_full, "reserve",
                         "the disk is full; free space under the data directory, then try again");
  }
  if (actors_.size() >= config_.max_sandboxes) {
    co_return over_limit(Code::unavailable, "descriptors",
                         "no descriptors are left for another sandbox (RLIMIT_NOFILE allows " +
                             std::to_string(config_.max_sandboxes) +
                             "); delete one, or start talond with a higher limit");
  }
  auto looked = co_await choose(request.wish);
  TALON_CO_TRY(chosen, std::move(looked));

  const std::int64_t now = now_ms();
  store::SandboxRow row;
  row.id = chosen.ahead ? chosen.ahead->place.id : new_id(IdKind::sandbox);
  row.tenant = request.tenant;
  row.name = request.name;
  row.state = to_string(State::creating);
  row.image = request.wish.image;
  row.spec_json = encode(request.wish);
  row.labels_json = encode(request.labels);
  row.workspace = chosen.ahead ? chosen.ahead->place.workspace : new_id(IdKind::workspace);
  row.created_by = request.created_by;
  row.created_ms = row.updated_ms = now;
  auto actor = std::make_shared<Actor>(parts_.ex, hooks(), row);
  if (request.wish.timeout) {
    actor->row.expires_ms = now + request.wish.timeout->count();
    actor->deadline_ns = system_clock().mono_ns() + request.wish.timeout->count() * 1'000'000;
  }
  store::WorkspaceRow workspace{.id = row.workspace,
                                .tenant = row.tenant,
                                .name = "",
                                .is_private = true,
                                .generation = 1,
                                .created_ms = now,
                                .deleted_ms = std::nullopt};
  store::EventRow event{.seq = 0,
                        .tenant = row.tenant,
                        .sandbox = row.id,
                        .type = "sandbox.created",
                        .data_json = "{}",
                        .at_ms = now};
  std::optional<store::ServiceRow> command;
  if (request.command) {
    const ServicePtr service = std::make_shared<Service>(parts_.ex);
    service->spec = std::move(*request.command);
    service->row = {.sandbox = row.id,
                    .name = std::string{kCommandService},
                    .tenant = row.tenant,
                    .spec_json = encode(service->spec),
                    .state = "stopped",
                    .exec = "",
                    .restarts = 0,
                    .last_json = "",
                    .created_ms = now,
                    .updated_ms = now};
    command = service->row;
    actor->services[service->row.name] = service;
  }
  std::function<Result<>()> job = [store = parts_.store, row = actor->row,
                                   workspace = std::move(workspace), event = std::move(event),
                                   command = std::move(command),
                                   with_row = request.with_row]() -> Result<> {
    return store->write([&](store::Db& db) -> Result<> {
      TALON_CHECK(store::insert_workspace(db, workspace));
      TALON_CHECK(store::insert_sandbox(db, row));
      if (command) {
        TALON_CHECK(store::upsert_service(db, *command));
      }
      TALON_CHECK(store::insert_event(db, event));
      return with_row ? with_row(db, row.id) : Result<>{};
    });
  };
  fault::stop("create.before_row");
  actors_[row.id] = actor;  // counted from here on, so that the budget holds
  actor->operation = "create";
  auto written = co_await parts_.offload->run<void>(std::move(job));
  if (!written) {
    actors_.erase(row.id);
    note(written.error());
    if (chosen.ahead) {
      group_->spawn("give_up", give_up(std::move(chosen.ahead)));
    }
    co_return std::unexpected(std::move(written.error()));
  }
  fault::stop("create.after_row");
  group_->spawn("create", run_create(actor, std::move(request.wish), std::move(chosen), false));
  store::SandboxRow copy = actor->row;
  copy.operation = actor->operation;
  co_return copy;
}

Task<> Node::run_create(ActorPtr actor, SandboxWish wish, Chosen chosen, bool restart) {
  Operation operation(actor, restart ? "start" : "create");
  const std::int64_t began = system_clock().mono_ns();
  auto made = co_await parts_.offload->run<Made>(creation_job(actor, wish, std::move(chosen)));
  if (!made) {
    parts_.metrics->add("talon_creates_total", "outcome=\"failed\"");
    note(made.error());
    if (restart) {
      co_return std::unexpected(std::move(made.error()));
    }
    auto failed = co_await fail_create(actor, std::move(made.error()));
    co_return failed;
  }
  parts_.metrics->add("talon_creates_total", "outcome=\"ok\"");
  parts_.metrics->observe("talon_create_seconds", {},
                          static_cast<double>(system_clock().mono_ns() - began) * 1e-9);
  std::uint64_t last_ns = 0;
  for (const auto& step : made->sandbox->step_times()) {
    const std::uint64_t spent = step.ns > last_ns ? step.ns - last_ns : 0;
    parts_.metrics->observe("talon_step_seconds", "step=\"" + step.step + "\"",
                            static_cast<double>(spent) * 1e-9);
    last_ns = std::max(last_ns, step.ns);
  }
  fault::stop("create.made");
  store::SandboxRow next = actor->row;
  next.image_generation = made->generation;
  next.identity_json = encode(made->sandbox->identity());
  next.applied_json = encode(made->sandbox->limits(), made->sandbox->disk());
  next.certificate_json.clear();
  next.ended_ms.reset();
  next.state = to_string(State::running);
  actor->attach(std::move(made->sandbox));
  const std::string event = restart ? "sandbox.started" : "sandbox.running";
  auto saved = co_await save_next(actor, std::move(next), event, "{}");
  if (!saved) {
    // Without its row a later daemon could not adopt it: it must not go on.
    const Certificate why{
        .reason = "error", .detail = saved.error().message, .by = "", .at_ms = now_ms()};
    auto ended = co_await end_live(actor, why);
    static_cast<void>(ended);
    if (restart) {
      co_return std::unexpected(std::move(saved.error()));  // stopped, as it was
    }
    auto failed = co_await fail_create(actor, std::move(saved.error()));
    co_return failed;
  }
  fault::stop("create.running");
  start_services(actor);
  co_return Result<>{};
}

Task<> Node::fail_create(ActorPtr actor, Error error) {
  log_warn("create_failed", {{"sandbox", actor->id()}, {"error", error.message}});
  Certificate why{.reason = "error", .detail = error.message, .by = "", .at_ms = now_ms()};
  actor->row.state = to_string(State::failed);
  actor->row.certificate_json = encode(why);
  actor->row.ended_ms = why.at_ms;
  std::function<Result<>()> job = [data = parts_.data, id = actor->id(),
                                   ws = actor->row.workspace]() -> Result<> {
    TALON_CHECK(data->trash_sandbox(id));
    return data->trash_workspace(ws);
  };
  auto trashed = co_await parts_.offload->run<void>(std::move(job));
  trash_.notify_all();
  fault::stop("create.fail_trashed");
  auto saved = co_await save(actor, "sandbox.failed", actor->row.certificate_json);
  if (!trashed) {
    co_return trashed;
  }
  co_return saved;
}

Task<store::SandboxRow> Node::settled(std::string tenant, std::string id, Millis deadline) {
  const std::int64_t end = system_clock().mono_ns() + deadline.count() * 1'000'000;
  while (true) {
    const ActorPtr found = actor(tenant, id);
    if (found == nullptr || (found->state() != State::creating && found->operation != "create")) {
      auto now = co_await row(tenant, id);
      co_return now;
    }
    const std::int64_t left = (end - system_clock().mono_ns()) / 1'000'000;
    if (left <= 0) {
      auto error = fail(Code::timeout, "the sandbox is not running yet; GET it again");
      error.error().field = found->row.state;
      co_return error;
    }
    const std::uint64_t seen = found->changed.version();
    auto woken = co_await found->changed.wait(seen, Millis{left});
    if (!woken && woken.error().code != Code::timeout) {
      co_return std::unexpected(std::move(woken.error()));
    }
  }
}

std::vector<std::size_t> Node::count_by_state() const {
  std::vector<std::size_t> counts(kStates, 0);
  for (const auto& [id, actor] : actors_) {
    ++counts[static_cast<std::size_t>(actor->state())];
  }
  return counts;
}

Task<SandboxStats> Node::stats(std::string tenant, std::string id) {
  auto found = co_await alive(std::move(tenant), std::move(id));
  TALON_CO_TRY(actor, std::move(found));
  SandboxStats stats;
  stats.row = actor->row;
  stats.live_execs = actor->live_execs();
  if (actor->live() != nullptr) {
    auto cgroup = actor->live()->stats();
    TALON_CO_TRY(numbers, std::move(cgroup));
    stats.cgroup = numbers;
    auto opened = open_at(actor->live()->files_fd(), ".", O_PATH | O_DIRECTORY);
    const bool root = has_size(stats.row.applied_json, "disk");
    const bool workspace = has_size(stats.row.applied_json, "workspace");
    if ((root || workspace) && opened) {
      // A file system may wait for its disk.
      std::function<Result<Spaces>()> job = [files = std::make_shared<UniqueFd>(std::move(*opened)),
                                             root, workspace]() -> Result<Spaces> {
        Spaces spaces;
        if (root) {
          TALON_TRY(use, isolate::disk_use(files->get(), ""));
          spaces.root = use;
        }
        if (workspace) {
          TALON_TRY(use, isolate::disk_use(files->get(), "workspace"));
          spaces.workspace = use;
        }
        return spaces;
      };
      auto asked = co_await parts_.offload->run<Spaces>(std::move(job));
      TALON_CO_TRY(spaces, std::move(asked));
      stats.spaces = spaces;
    }
  }
  co_return stats;
}

Task<std::vector<store::EventRow>> Node::events(std::string tenant, std::string id,
                                                std::int64_t after, int limit) {
  std::function<Result<std::vector<store::EventRow>>()> job =
      [store = parts_.store, tenant = std::move(tenant), id = std::move(id), after,
       limit]() -> Result<std::vector<store::EventRow>> {
    std::vector<store::EventRow> rows;
    TALON_CHECK(store->read([&](store::Db& db) -> Result<> {
      TALON_TRY(found, store::list_events(db, tenant, id, after, limit));
      rows = std::move(found);
      return {};
    }));
    return rows;
  };
  auto rows = co_await parts_.offload->run<std::vector<store::EventRow>>(std::move(job));
  co_return rows;
}

}  // namespace talon::server::node
