#include "base/id.h"
#include "server/api/api.h"
#include "server/api/decode.h"
#include "server/api/decode_requests.h"
#include "server/api/errors.h"
#include "server/api/views.h"
#include "store/tables.h"

namespace talon::server::api {

namespace json = boost::json;

namespace {

http::Response sandbox_response(int status, const store::SandboxRow& row, const Api& api) {
  http::Response response = json_response(status, sandbox_view(row, api));
  response.headers.emplace_back("ETag", etag(row));
  return response;
}

// 410 with the certificate, for as long as the row is kept.
http::Response gone(const store::SandboxRow& row, const Api& api, std::string_view request_id) {
  Problem problem = make_problem("gone", "the sandbox " + row.id + " was deleted");
  problem.extra["id"] = row.id;
  problem.extra["certificate"] = stored_json(row.certificate_json);
  static_cast<void>(api);
  return render(problem, request_id);
}

node::Certificate by_user(const Call& call, std::string detail) {
  return {.reason = "user",
          .detail = std::move(detail),
          .by = call.who.actor,
          .at_ms = system_clock().wall_ms()};
}

// A body, if there is one, is an object without fields.
Result<> no_fields(const Call& call) {
  TALON_TRY(object, parse_body(call.request->body));
  return Fields(object).done();
}

}  // namespace

Task<http::Response> create_sandbox(Api& api, Call& call) {
  auto decoded = decode_create(call.request->body, api.config().default_proc);
  TALON_CO_TRY(request, std::move(decoded));
  bool wait = false;
  if (const auto wanted = call.parameter("wait")) {
    if (*wanted != "running") {
      co_return bad_field("wait", "wait can only be \"running\"");
    }
    wait = true;
  }
  if (!wait && call.parameter("wait_timeout")) {
    co_return bad_field("wait_timeout", "wait_timeout needs wait=running");
  }
  auto timeout = wait_timeout(call);
  TALON_CO_TRY(deadline, std::move(timeout));
  if (!api.ready()) {
    co_return fail(Code::unavailable, "talond is starting or shutting down; try again");
  }
  request.tenant = call.tenant();
  request.created_by = call.who.actor;
  if (call.idempotency) {
    store::IdempotencyRow claim = *call.idempotency;
    request.with_row = [claim](store::Db& db, const std::string& id) mutable -> Result<> {
      claim.target = id;
      return store::finish_idempotency(db, claim);
    };
  }
  auto created = co_await api.node().create(std::move(request));
  TALON_CO_TRY(row, std::move(created));
  const std::string id = row.id;
  call.target = id;
  if (call.idempotency) {
    call.idempotency->target = id;
  }
  if (!wait) {
    co_return sandbox_response(201, row, api);
  }
  auto settled = co_await api.node().settled(call.tenant(), id, deadline);
  if (!settled) {
    Problem problem = to_problem(settled.error());
    problem.extra["id"] = id;
    if (settled.error().code == Code::timeout) {
      auto now = co_await api.node().row(call.tenant(), id);
      if (now) {
        problem.extra["sandbox"] = sandbox_view(*now, api);
      }
    }
    co_return render(problem, call.request->id);
  }
  if (settled->state == to_string(node::State::failed)) {
    const json::value certificate = stored_json(settled->certificate_json);
    std::string detail = "the sandbox could not be made";
    if (const json::object* why = certificate.if_object()) {
      if (const json::value* text = why->if_contains("detail"); text != nullptr) {
        detail += ": " + std::string{text->is_string() ? text->as_string().c_str() : ""};
      }
    }
    Problem problem = make_problem("create_failed", detail);
    problem.extra["id"] = id;
    problem.extra["state"] = settled->state;
    problem.extra["certificate"] = certificate;
    co_return render(problem, call.request->id);
  }
  co_return sandbox_response(201, *settled, api);
}

Task<http::Response> list_sandboxes(Api& api, Call& call) {
  store::SandboxFilter filter;
  filter.tenant = call.tenant();
  auto limit = page_limit(call);
  TALON_CO_TRY(most, std::move(limit));
  filter.limit = most;
  filter.after = call.parameter("cursor").value_or("");
  for (const auto& [name, value] : call.query) {
    if (name == "state") {
      if (!node::parse_state(value)) {
        co_return bad_field("state",
                            "state must be creating, running, paused, stopped, deleting, "
                            "deleted or failed");
      }
      filter.states.push_back(value);
    } else if (name == "name") {
      filter.name = value;
    } else if (name == "label") {
      const auto equals = value.find('=');
      if (equals == std::string::npos || equals == 0) {
        co_return bad_field("label", "a label filter is written label=name=value");
      }
      filter.labels.emplace_back(value.substr(0, equals), value.substr(equals + 1));
    }
  }
  auto listed = co_await api.node().list(std::move(filter));
  TALON_CO_TRY(page, std::move(listed));
  json::array items;
  for (const store::SandboxRow& row : page.rows) {
    items.emplace_back(sandbox_view(row, api));
  }
  json::object body;
  body["items"] = std::move(items);
  body["next_cursor"] = page.next.empty() ? json::value(nullptr) : json::value(page.next);
  co_return json_response(200, body);
}

Task<http::Response> get_sandbox(Api& api, Call& call) {
  auto found = co_await api.node().row(call.tenant(), call.params[0]);
  TALON_CO_TRY(row, std::move(found));
  if (row.state == to_string(node::State::deleted)) {
    co_return gone(row, api, call.request->id);
  }
  co_return sandbox_response(200, row, api);
}

Task<http::Response> update_sandbox(Api& api, Call& call) {
  auto decoded = decode_patch(call.request->body);
  TALON_CO_TRY(request, std::move(decoded));
  const std::string_view wanted = call.request->header("if-match");
  if (!wanted.empty() && wanted != "*") {
    const bool quoted = wanted.size() > 2 && wanted.front() == '"' && wanted.back() == '"';
    auto version =
        query_whole("If-Match", quoted ? wanted.substr(1, wanted.size() - 2) : "-", 0, ~0ull);
    if (!version) {
      co_return bad_field("If-Match", "If-Match must be the ETag of the sandbox, with its quotes");
    }
    request.if_version = *version;
  }
  auto changed = co_await api.node().patch(call.tenant(), call.params[0], std::move(request));
  TALON_CO_TRY(row, std::move(changed));
  co_return sandbox_response(200, row, api);
}

Task<http::Response> delete_sandbox(Api& api, Call& call) {
  auto removed =
      co_await api.node().remove(call.tenant(), call.params[0], by_user(call, "deleted by a call"));
  if (!removed) {
    co_return std::unexpected(std::move(removed.error()));
  }
  http::Response response;
  response.status = 204;
  co_return response;
}

Task<http::Response> stop_sandbox(Api& api, Call& call) {
  auto empty = no_fields(call);
  if (!empty) {
    co_return std::unexpected(std::move(empty.error()));
  }
  auto stopped = co_await api.node().stop_sandbox(call.tenant(), call.params[0],
                                                  by_user(call, "stopped by a call"));
  TALON_CO_TRY(row, std::move(stopped));
  co_return sandbox_response(200, row, api);
}

Task<http::Response> start_sandbox(Api& api, Call& call) {
  auto empty = no_fields(call);
  if (!empty) {
    co_return std::unexpected(std::move(empty.error()));
  }
  auto started = co_await api.node().start_sandbox(call.tenant(), call.params[0]);
  TALON_CO_TRY(row, std::move(started));
  co_return sandbox_response(200, row, api);
}

Task<http::Response> pause_sandbox(Api& api, Call& call) {
  auto empty = no_fields(call);
  if (!empty) {
    co_return std::unexpected(std::move(empty.error()));
  }
  auto paused = co_await api.node().pause_sandbox(call.tenant(), call.params[0]);
  TALON_CO_TRY(row, std::move(paused));
  co_return sandbox_response(200, row, api);
}

Task<http::Response> resume_sandbox(Api& api, Call& call) {
  auto empty = no_fields(call);
  if (!empty) {
    co_return std::unexpected(std::move(empty.error()));
  }
  auto resumed = co_await api.node().resume_sandbox(call.tenant(), call.params[0]);
  TALON_CO_TRY(row, std::move(resumed));
  co_return sandbox_response(200, row, api);
}

Task<> resume_if_asked(Api& api, const Call& call) {
  const auto given = call.parameter("resume");
  if (!given) {
    co_return Result<>{};
  }
  auto parsed = query_flag("resume", *given);
  TALON_CO_TRY(wanted, std::move(parsed));
  if (!wanted) {
    co_return Result<>{};
  }
  auto resumed = co_await api.node().resume_if_paused(call.tenant(), call.params[0]);
  co_return resumed;
}

Task<http::Response> sandbox_stats(Api& api, Call& call) {
  auto got = co_await api.node().stats(call.tenant(), call.params[0]);
  TALON_CO_TRY(stats, std::move(got));
  json::object body;
  body["id"] = stats.row.id;
  body["state"] = stats.row.state;
  body["at"] = rfc3339(system_clock().wall_ms());
  body["cpu_usage_us"] = stats.cgroup.cpu_usage_us;
  const auto maybe = [](const std::optional<std::uint64_t>& value) {
    return value ? json::value(*value) : json::value(nullptr);
  };
  body["memory_bytes"] = maybe(stats.cgroup.memory_bytes);
  body["memory_peak_bytes"] = maybe(stats.cgroup.memory_peak_bytes);
  body["pids"] = maybe(stats.cgroup.pids);
  body["throttled_periods"] = maybe(stats.cgroup.throttled);
  body["throttled_us"] = maybe(stats.cgroup.throttled_us);
  body["oom_kills"] = stats.cgroup.oom_kills;
  body["processes"] = stats.cgroup.processes;
  body["live_execs"] = stats.live_execs;
  const auto space = [](const std::optional<isolate::DiskUse>& use) {
    return use ? json::value(
                     json::object{{"used_bytes", use->used_bytes}, {"size_bytes", use->size_bytes}})
               : json::value(nullptr);
  };
  body["disk"] = space(stats.spaces.root);
  body["workspace"] = space(stats.spaces.workspace);
  body["limits"] = stored_json(stats.row.applied_json);
  co_return json_response(200, body);
}

}  // namespace talon::server::api
