// One coroutine a service: start, wait for its end, decide, wait, again. The row with the id of an
// exec is on disk before that exec is started, so a later daemon never starts a second one.

#include "server/node/services.h"

#include <algorithm>
#include <boost/json.hpp>

#include "base/fault.h"
#include "base/id.h"
#include "base/log.h"
#include "server/node/codec.h"
#include "server/node/node.h"

namespace talon::server::node {

namespace json = boost::json;

namespace {

// Who ran this long has not failed to start: the next delay is the first one again.
constexpr std::uint64_t kSettledNs = 10'000'000'000;
constexpr Millis kServiceGrace{10'000};
constexpr Millis kRetry{1000};  // after a start that came to nothing because of an operation

std::int64_t now_ms() { return system_clock().wall_ms(); }

std::unexpected<Error> no_service(std::string_view name) {
  return fail(Code::not_found, "there is no service " + std::string{name} + " in this sandbox");
}

bool may_start(const Actor& actor) {
  return actor.state() == State::running && actor.live() != nullptr && !actor.held();
}

std::string ended_json(std::string_view px, const wire::ExitInfo& info, std::int64_t at_ms) {
  json::object last = result_object(info);
  last["process"] = px;
  last["ended_at"] = rfc3339(at_ms);
  return json::serialize(last);
}

}  // namespace

Task<ServicePtr> Node::find_service(std::string tenant, std::string id, std::string name) {
  auto found = co_await alive(tenant, id);
  TALON_CO_TRY(actor, std::move(found));
  const auto it = actor->services.find(name);
  if (it == actor->services.end()) {
    co_return no_service(name);
  }
  co_return it->second;
}

Task<std::vector<ServicePtr>> Node::services(std::string tenant, std::string id) {
  auto found = co_await alive(tenant, id);
  TALON_CO_TRY(actor, std::move(found));
  std::vector<ServicePtr> all;
  for (const auto& [name, service] : actor->services) {
    all.push_back(service);
  }
  co_return all;
}

Task<Node::PutService> Node::put_service(std::string tenant, std::string id, std::string name,
                                         ServiceSpec spec) {
  auto found = co_await alive(tenant, id);
  TALON_CO_TRY(actor, std::move(found));
  auto begun = co_await begin_operation(actor, "service");
  TALON_CO_TRY(operation, std::move(begun));
  if (!allowed(actor->state(), State::deleting) || actor->state() == State::failed) {
    co_return wrong_state(actor->state(), "alive");
  }
  PutService put;
  const auto it = actor->services.find(name);
  put.made = it == actor->services.end();
  if (put.made && actor->services.size() >= kServices) {
    co_return over_limit(Code::too_many, "services",
                         "32 services are in this sandbox already; delete one first");
  }
  put.service = put.made ? std::make_shared<Service>(parts_.ex) : it->second;
  const std::string text = encode(spec);
  if (!put.made && put.service->row.spec_json == text) {
    co_return put;
  }
  store::ServiceRow row = put.service->row;
  row.sandbox = actor->id();
  row.name = name;
  row.tenant = actor->row.tenant;
  row.spec_json = text;
  row.updated_ms = now_ms();
  if (put.made) {
    row.state = "stopped";
    row.created_ms = row.updated_ms;
  }
  row.restarts = 0;
  std::function<Result<>()> job = [store = parts_.store, row]() -> Result<> {
    return store->write([&](store::Db& db) -> Result<> { return store::upsert_service(db, row); });
  };
  auto written = co_await parts_.offload->run<void>(std::move(job));
  if (!written) {
    note(written.error());
    co_return std::unexpected(std::move(written.error()));
  }
  fault::stop("service.written");
  const ExecPtr old = actor->find_exec(put.service->row.exec);
  put.service->row = std::move(row);
  put.service->spec = std::move(spec);
  actor->services[name] = put.service;
  if (actor->live() != nullptr) {
    supervise(actor, put.service, old);
  }
  co_return put;
}

Task<> Node::remove_service(std::string tenant, std::string id, std::string name) {
  auto found = co_await alive(tenant, id);
  TALON_CO_TRY(actor, std::move(found));
  const auto it = actor->services.find(name);
  if (it == actor->services.end()) {
    co_return no_service(name);
  }
  const ServicePtr service = it->second;
  const std::uint64_t turn = ++service->turn;  // nobody starts it again from here on
  service->changed.notify_all();
  auto ended = co_await end_service_exec(actor, actor->find_exec(service->row.exec));
  if (!ended) {  // its row stays: the next DELETE goes on
    if (service->turn == turn) {
      service->row.state = "stopped";
    }
    co_return ended;
  }
  fault::stop("service.removed");
  auto begun = co_await begin_operation(actor, "service");  // no PUT between this look and the row
  TALON_CO_TRY(operation, std::move(begun));
  if (service->turn != turn) {
    co_return busy("service");  // it was PUT anew meanwhile, and runs
  }
  std::function<Result<>()> job = [store = parts_.store, id, name]() -> Result<> {
    return store->write(
        [&](store::Db& db) -> Result<> { return store::delete_service(db, id, name); });
  };
  auto written = co_await parts_.offload->run<void>(std::move(job));
  if (written) {
    actor->services.erase(name);
  }
  co_return written;
}

Task<> Node::end_service_exec(ActorPtr actor, ExecPtr exec) {
  if (exec == nullptr || exec->ended || actor->live() == nullptr) {
    co_return Result<>{};
  }
  auto ended = co_await end_exec(actor->row.tenant, actor->id(), exec->row.id, kServiceGrace, "");
  co_return ended;
}

// Every start of the sandbox starts its services, whatever became of them before.
void Node::start_services(const ActorPtr& actor) {
  for (const auto& [name, service] : actor->services) {
    supervise(actor, service, nullptr);
  }
}

// Their processes are about to be ended, or are gone already, with the sandbox.
void Node::halt_services(const ActorPtr& actor) {
  for (const auto& [name, service] : actor->services) {
    ++service->turn;
    service->row.state = "stopped";
    service->next_ms.reset();
    service->changed.notify_all();
  }
}

void Node::supervise(const ActorPtr& actor, const ServicePtr& service, ExecPtr old) {
  const std::uint64_t turn = ++service->turn;
  service->changed.notify_all();
  service->next_ms.reset();
  group_->spawn("service", replace_service(actor, service, turn, std::move(old)));
}

Task<> Node::replace_service(ActorPtr actor, ServicePtr service, std::uint64_t turn, ExecPtr old) {
  auto ended = co_await end_service_exec(actor, std::move(old));
  if (!ended) {
    log_warn("service", {{"sandbox", actor->id()},
                         {"service", service->row.name},
                         {"error", ended.error().message}});
  }
  auto kept = co_await keep_running(actor, service, turn, nullptr);
  co_return kept;
}

// What an earlier daemon left: its process still runs, or ended meanwhile, or never began.
void Node::adopt_service(const ActorPtr& actor, const ServicePtr& service,
                         const std::optional<wire::ExitInfo>& ended) {
  ExecPtr exec = actor->find_exec(service->row.exec);
  if (exec == nullptr && ended) {
    exec = std::make_shared<Exec>(parts_.ex);
    exec->row.id = service->row.exec;
    exec->info = *ended;
    exec->exited = true;
  }
  if (service->row.state == "stopped" && (exec == nullptr || exec->exited)) {
    return;
  }
  const std::uint64_t turn = ++service->turn;
  group_->spawn("service", keep_running(actor, service, turn, std::move(exec)));
}

// From a process of it, or without one, until somebody else takes a turn or it stays down.
Task<> Node::keep_running(ActorPtr actor, ServicePtr service, std::uint64_t turn, ExecPtr exec) {
  unsigned ends = 0;
  while (service->turn == turn) {
    bool failed = true;
    if (exec == nullptr) {
      auto started = co_await start_service(actor, service, turn);
      if (service->turn != turn) {
        co_return Result<>{};
      }
      if (started) {
        exec = std::move(*started);
      } else if (started.error().code == Code::wrong_state || started.error().code == Code::busy) {
        auto pause = co_await service->changed.wait(service->changed.version(), kRetry);
        if (!pause && pause.error().code != Code::timeout) {
          co_return Result<>{};
        }
        continue;
      } else if (stopping_) {
        co_return Result<>{};
      } else {
        json::object last;
        last["error"] = started.error().message;
        last["ended_at"] = rfc3339(now_ms());
        service->row.last_json = json::serialize(last);
      }
    }
    if (exec != nullptr) {
      auto waited = co_await wait_exit(actor, exec);
      if (!waited || service->turn != turn) {
        co_return Result<>{};  // the daemon stops, or the sandbox did
      }
      failed = exec->info.code != 0;
      if (exec->info.duration_ns >= kSettledNs) {
        ends = 0;
      }
      service->row.last_json = ended_json(exec->row.id, exec->info, now_ms());
      exec.reset();
    }
    fault::stop("service.ended");
    if (!wants_restart(service->spec.restart, failed)) {
      service->row.state = "stopped";
      write_service(service, "service.stopped");
      co_return Result<>{};
    }
    const Millis delay = backoff_delay(service->spec, ends++);
    service->row.state = "backoff";
    ++service->row.restarts;
    service->next_ms = now_ms() + delay.count();
    parts_.metrics->add("talon_service_restarts_total", {});
    write_service(service, "service.backoff");
    const std::uint64_t seen = service->changed.version();
    auto woken = co_await service->changed.wait(seen, delay);
    if (!woken && woken.error().code != Code::timeout) {
      co_return Result<>{};
    }
  }
  co_return Result<>{};
}

// The row, then the act. Waits while the sandbox is paused or held by an operation.
Task<ExecPtr> Node::start_service(ActorPtr actor, ServicePtr service, std::uint64_t turn) {
  while (!may_start(*actor) && service->turn == turn) {
    const std::uint64_t seen = actor->changed.version();
    auto woken = co_await actor->changed.wait(seen, Millis{60'000});
    if (!woken && woken.error().code != Code::timeout) {
      co_return std::unexpected(std::move(woken.error()));
    }
  }
  ExecRequest request = service->spec.exec;
  request.id = new_id(IdKind::exec);
  request.service = service->row.name;
  store::ServiceRow row = service->row;
  row.exec = request.id;
  row.state = "running";
  row.updated_ms = now_ms();
  std::function<Result<>()> job = [store = parts_.store, row]() -> Result<> {
    return store->write([&](store::Db& db) -> Result<> { return store::upsert_service(db, row); });
  };
  if (service->turn != turn) {
    co_return fail(Code::busy, "another turn");
  }
  auto written = co_await parts_.offload->run<void>(std::move(job));
  if (!written) {
    note(written.error());
    co_return std::unexpected(std::move(written.error()));
  }
  if (service->turn != turn) {
    co_return fail(Code::busy, "another turn");
  }
  fault::stop("service.before_start");
  service->row = std::move(row);
  service->next_ms.reset();
  auto started = co_await launch(actor, std::move(request));
  co_return started;
}

void Node::write_service(const ServicePtr& service, std::string event) {
  service->row.updated_ms = now_ms();
  json::object data;
  data["service"] = service->row.name;
  data["restarts"] = service->row.restarts;
  store::EventRow event_row{.seq = 0,
                            .tenant = service->row.tenant,
                            .sandbox = service->row.sandbox,
                            .type = std::move(event),
                            .data_json = json::serialize(data),
                            .at_ms = service->row.updated_ms};
  parts_.store->write_behind(
      [row = service->row, event_row = std::move(event_row)](store::Db& db) -> Result<> {
        TALON_CHECK(store::upsert_service(db, row));
        return store::insert_event(db, event_row);
      });
}

std::string_view to_string(Restart restart) {
  switch (restart) {
    case Restart::no: return "no";
    case Restart::on_failure: return "on-failure";
    case Restart::always: return "always";
  }
  return "no";
}

bool wants_restart(Restart restart, bool failed) {
  return restart == Restart::always || (restart == Restart::on_failure && failed);
}

Millis backoff_delay(const ServiceSpec& spec, unsigned ends_in_a_row) {
  Millis delay = spec.backoff;
  for (unsigned i = 0; i < ends_in_a_row && delay < spec.backoff_max; ++i) {
    delay *= 2;
  }
  return std::min(delay, std::max(spec.backoff, spec.backoff_max));
}

std::string encode(const ServiceSpec& spec) {
  json::object object;
  const ExecRequest& exec = spec.exec;
  if (exec.argv.empty()) {
    object["command"] = exec.command;
  } else {
    object["argv"] = json::array(exec.argv.begin(), exec.argv.end());
  }
  json::array env;  // an array: the order of names is the caller's
  for (const auto& [name, value] : exec.env) {
    env.push_back(json::array{name, value});
  }
  object["env"] = std::move(env);
  object["cwd"] = exec.cwd;
  object["user"] = exec.user;
  object["log_cap"] = exec.log_cap;
  object["restart"] = to_string(spec.restart);
  object["backoff_ms"] = spec.backoff.count();
  object["backoff_max_ms"] = spec.backoff_max.count();
  return json::serialize(object);
}

Result<ServiceSpec> decode_service_spec(std::string_view text) {
  const auto damaged = [] {
    return fail(Code::internal, "spec_json of a service in the store is damaged");
  };
  boost::system::error_code ec;
  const json::value parsed = json::parse(text, ec);
  if (ec || !parsed.is_object()) {
    return damaged();
  }
  const json::object& object = parsed.get_object();
  const auto string_of = [&](std::string_view key) {
    const json::value* value = object.if_contains(key);
    return value != nullptr && value->is_string() ? std::string{value->get_string()}
                                                  : std::string{};
  };
  const auto number_of = [&](std::string_view key) {
    const json::value* value = object.if_contains(key);
    return value != nullptr && value->is_int64() ? value->get_int64() : 0;
  };
  ServiceSpec spec;
  spec.exec.command = string_of("command");
  if (const json::value* argv = object.if_contains("argv"); argv != nullptr && argv->is_array()) {
    for (const json::value& word : argv->get_array()) {
      if (!word.is_string()) {
        return damaged();
      }
      spec.exec.argv.emplace_back(word.get_string());
    }
  }
  if (const json::value* env = object.if_contains("env"); env != nullptr && env->is_array()) {
    for (const json::value& entry : env->get_array()) {
      const json::array* pair = entry.if_array();
      if (pair == nullptr || pair->size() != 2 || !pair->at(0).is_string() ||
          !pair->at(1).is_string()) {
        return damaged();
      }
      spec.exec.env.emplace_back(pair->at(0).get_string(), pair->at(1).get_string());
    }
  }
  spec.exec.cwd = string_of("cwd");
  spec.exec.user = string_of("user");
  spec.exec.log_cap = static_cast<std::uint64_t>(number_of("log_cap"));
  const std::string restart = string_of("restart");
  for (const Restart one : {Restart::no, Restart::on_failure, Restart::always}) {
    if (restart == to_string(one)) {
      spec.restart = one;
    }
  }
  spec.backoff = Millis{number_of("backoff_ms")};
  spec.backoff_max = Millis{number_of("backoff_max_ms")};
  return spec;
}

}  // namespace talon::server::node
