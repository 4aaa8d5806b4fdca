#include "server/node/node.h"

#include <algorithm>

#include "base/id.h"
#include "base/log.h"
#include "server/node/codec.h"

namespace talon::server::node {

namespace {

constexpr std::uint64_t kImageLogEvery = 20'000;  // files between two lines of progress

std::int64_t now_ms() { return system_clock().wall_ms(); }

std::unexpected<Error> no_sandbox(std::string_view id) {
  return fail(Code::not_found, "there is no sandbox " + std::string{id});
}

}  // namespace

struct Node::Made {
  std::unique_ptr<isolate::Sandbox> sandbox;
  std::uint32_t generation = 0;
};

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
  group_->spawn("reaper", reaper());
  group_->spawn("life_timer", life_timer());
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
      .exec_changed = [this](const ActorPtr&, const ExecPtr& exec) { write_exec(exec); },
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
  actor->row.updated_ms = now_ms();
  store::EventRow event_row{.seq = 0,
                            .tenant = actor->row.tenant,
                            .sandbox = actor->id(),
                            .type = std::move(event),
                            .data_json = std::move(data_json),
                            .at_ms = actor->row.updated_ms};
  std::function<Result<>()> job = [store = parts_.store, row = actor->row,
                                   event_row = std::move(event_row)]() -> Result<> {
    return store->write([&](store::Db& db) -> Result<> {
      TALON_CHECK(store::update_sandbox(db, row));
      return store::insert_event(db, event_row);
    });
  };
  auto written = co_await parts_.offload->run<void>(std::move(job));
  if (written) {
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
  // Bad input never makes a row: limits, image and user are looked at first.
  std::function<Result<>()> check = [isolator = parts_.isolator, images = parts_.images,
                                     wish = request.wish]() -> Result<> {
    TALON_CHECK(isolator->check_limits(wish.limits));
    auto image = images->get(wish.image);
    if (!image) {
      if (image.error().code == Code::not_found && wish.image == "host") {
        return {};  // made at first use
      }
      if (image.error().code == Code::not_found) {
        return bad_field("image", image.error().message);
      }
      return std::unexpected(std::move(image).error());
    }
    TALON_TRY(ids, lookup_user(image->root, wish.user));
    static_cast<void>(ids);
    return {};
  };
  auto checked = co_await parts_.offload->run<void>(std::move(check));
  if (!checked) {
    co_return std::unexpected(std::move(checked.error()));
  }

  const std::int64_t now = now_ms();
  store::SandboxRow row;
  row.id = request.id.empty() ? new_id(IdKind::sandbox) : request.id;
  row.tenant = request.tenant;
  row.name = request.name;
  row.state = to_string(State::creating);
  row.image = request.wish.image;
  row.spec_json = encode(request.wish);
  row.labels_json = encode(request.labels);
  row.workspace = new_id(IdKind::workspace);
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
  std::function<Result<>()> job = [store = parts_.store, row = actor->row,
                                   workspace = std::move(workspace), event = std::move(event),
                                   with_row = request.with_row]() -> Result<> {
    return store->write([&](store::Db& db) -> Result<> {
      TALON_CHECK(store::insert_workspace(db, workspace));
      TALON_CHECK(store::insert_sandbox(db, row));
      TALON_CHECK(store::insert_event(db, event));
      return with_row ? with_row(db) : Result<>{};
    });
  };
  actors_[row.id] = actor;  // counted from here on, so that the budget holds
  actor->operation = "create";
  auto written = co_await parts_.offload->run<void>(std::move(job));
  if (!written) {
    actors_.erase(row.id);
    note(written.error());
    co_return std::unexpected(std::move(written.error()));
  }
  group_->spawn("create", run_create(actor, std::move(request.wish), false));
  store::SandboxRow copy = actor->row;
  copy.operation = actor->operation;
  co_return copy;
}

// The whole of making one, on a pool thread: the image if it is not there yet, directories, the
// workspace, and the sandbox itself. What it made on disk is trashed by fail_create.
std::function<Result<Node::Made>()> Node::creation_job(const ActorPtr& actor,
                                                       const SandboxWish& wish) const {
  isolate::SandboxSpec spec = sandbox_spec(wish, actor->id(), config_.unconfined_seccomp);
  return [isolator = parts_.isolator, images = parts_.images, data = parts_.data,
          spec = std::move(spec), wish, workspace_id = actor->row.workspace,
          generation = actor->row.image_generation]() -> Result<Made> {
    auto image = generation != 0 ? images->get(wish.image, generation) : images->get(wish.image);
    if (!image && image.error().code == Code::not_found && wish.image == "host") {
      log_info("image_making", {{"image", "host"}});
      auto made = images->ensure_host(
          false, [told = std::uint64_t{0}](std::uint64_t files, std::string_view stage) mutable {
            if (files >= told + kImageLogEvery || stage == "done") {
              told = files;
              log_info("image_progress", {{"image", "host"}, {"files", files}, {"stage", stage}});
            }
          });
      if (!made) {
        return std::unexpected(std::move(made.error()).in("make the image host"));
      }
      image = images->get(wish.image);
    }
    TALON_TRY(opened, std::move(image));
    TALON_TRY(owner, lookup_user(opened.root, wish.user));
    TALON_TRY(root, data->make_sandbox(spec.id));
    TALON_TRY(workspace, data->make_workspace(workspace_id, 1, owner));
    isolate::SandboxDirs dirs;
    dirs.image = &opened.root;
    dirs.root = &root;
    dirs.workspace = &workspace;
    TALON_TRY(sandbox, isolator->create(spec, dirs));
    return Made{.sandbox = std::move(sandbox), .generation = opened.info.generation};
  };
}

Task<> Node::run_create(ActorPtr actor, SandboxWish wish, bool restart) {
  Operation operation(actor, restart ? "start" : "create");
  const std::int64_t began = system_clock().mono_ns();
  auto made = co_await parts_.offload->run<Made>(creation_job(actor, wish));
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
  std::uint64_t before = 0;
  for (const auto& step : made->sandbox->step_times()) {
    const std::uint64_t spent = step.ns > before ? step.ns - before : 0;
    parts_.metrics->observe("talon_step_seconds", "step=\"" + step.step + "\"",
                            static_cast<double>(spent) * 1e-9);
    before = std::max(before, step.ns);
  }
  actor->row.image_generation = made->generation;
  actor->row.identity_json = encode(made->sandbox->identity());
  actor->row.applied_json = encode(made->sandbox->limits());
  actor->row.certificate_json.clear();
  actor->row.ended_ms.reset();
  actor->row.state = to_string(State::running);
  actor->attach(std::move(made->sandbox));
  const std::string event = restart ? "sandbox.started" : "sandbox.running";
  auto saved = co_await save(actor, event, "{}");
  if (!saved) {
    // Without its row a later daemon could not adopt it: it must not go on.
    auto ended = co_await end_live(actor);
    static_cast<void>(ended);
    actor->row.state = to_string(State::creating);
    auto failed = co_await fail_create(actor, std::move(saved.error()));
    co_return failed;
  }
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
