#include "server/api/api.h"

#include <algorithm>
#include <array>

#include "base/log.h"
#include "base/units.h"
#include "server/api/decode.h"
#include "server/api/errors.h"
#include "server/api/text.h"

namespace talon::server::api {

namespace {

// Names under which people put credentials into a query, where they end in logs and histories.
constexpr std::array<std::string_view, 8> kCredentialNames{
    "api_key", "apikey", "api-key", "key", "token", "access_token", "authorization", "auth"};

double seconds_since(std::int64_t mono_ns) {
  return static_cast<double>(system_clock().mono_ns() - mono_ns) * 1e-9;
}

bool is_mutating(const Route& route) { return route.kind != Kind::read; }

}  // namespace

std::optional<std::string> Call::parameter(std::string_view name) const {
  for (const auto& [key, value] : query) {
    if (key == name) {
      return value;
    }
  }
  return std::nullopt;
}

Api::Api(ApiParts parts, ApiConfig config)
    : parts_(std::move(parts)),
      config_(config),
      auth_(parts_.store, parts_.offload, parts_.default_tenant),
      started_ms_(system_clock().wall_ms()) {
  Metrics& m = *parts_.metrics;
  m.describe("talon_http_requests_total", "counter", "Requests by operation and status.");
  m.describe("talon_http_request_seconds", "histogram", "Time to the end of the answer.");
  m.describe("talon_creates_total", "counter", "Sandboxes made, by outcome.");
  m.describe("talon_create_seconds", "histogram", "Time to make a sandbox, without its rows.");
  m.describe("talon_step_seconds", "histogram", "Time of each set-up step inside the sandbox.");
  m.describe("talon_execs_started_total", "counter", "Processes started.");
  m.describe("talon_execs_ended_total", "counter", "Processes ended.");
  m.describe("talon_sandboxes", "gauge", "Sandboxes by state.");
  m.describe("talon_sandboxes_max", "gauge", "The most sandboxes that may be alive.");
  m.describe("talon_spawner_starts_total", "counter", "How often the spawner was started.");
  m.describe("talon_http_connections", "gauge", "Open connections.");
  m.describe("talon_store_commits_total", "counter", "Commits of the store.");
  m.describe("talon_store_behind_errors_total", "counter", "Rows written behind that failed.");
  m.describe("talon_pool_size", "gauge", "Sandboxes made ahead that wait, by pool.");
  m.describe("talon_pool_hits_total", "counter", "Creates that took one from the pool.");
  m.describe("talon_pool_misses_total", "counter", "Creates that looked there in vain.");
  m.describe("talon_pool_refills_total", "counter", "Sandboxes made ahead.");
  m.describe("talon_pool_refill_seconds_total", "counter", "Time spent on that.");
  m.describe("talon_prewarm_reclaimed_total", "counter",
             "What an earlier run had made ahead, by what the start did with it.");
  m.describe("talon_disk_reserve", "gauge", "1 while the disk reserve is there.");
}

std::size_t Api::body_limit(const http::Request& head) {
  const Match found = match(head.method, head.path);
  // An unknown path is answered with 404, not with 413 for its body.
  return found.route != nullptr ? found.route->body_limit : 64 * 1024;
}

Task<> Api::handle(http::Request request, http::Responder& responder) {
  const std::int64_t began = system_clock().mono_ns();
  Call call;
  call.request = &request;
  call.out = &responder;
  auto served = co_await serve(call);
  http::Response response;
  bool denied = false;
  if (served) {
    response = std::move(*served);
    denied = response.status == 401 || response.status == 403;
  } else {
    const Error& error = served.error();
    if (error.code == Code::internal || error.code == Code::io) {
      log_error("request_failed", {{"request", request.id},
                                   {"error", error.message},
                                   {"file", error.where.file_name()},
                                   {"line", error.where.line()}});
    }
    response = render(to_problem(error), request.id);
    denied = error.code == Code::unauthenticated || error.code == Code::forbidden;
  }
  const int status = response.status == 0 ? 200 : response.status;
  if (!call.audited && call.route != nullptr && (denied || is_mutating(*call.route))) {
    auto audited = co_await audit(call, status);
    if (!audited) {
      parts_.node->note(audited.error());
      log_error("audit", {{"request", request.id}, {"error", audited.error().message}});
    }
  }
  const bool streamed = responder.started();
  Result<> sent;
  if (!streamed && response.status != 0) {
    sent = co_await responder.send(std::move(response));
  }
  const std::string operation{call.route != nullptr ? call.route->operation : "none"};
  parts_.metrics->add("talon_http_requests_total",
                      "operation=\"" + operation + "\",code=\"" + std::to_string(status) + "\"");
  parts_.metrics->observe("talon_http_request_seconds", "operation=\"" + operation + "\"",
                          seconds_since(began));
  if (!served && streamed) {
    co_return std::unexpected(served.error());  // ends the connection: the client sees a cut
  }
  co_return sent;
}

Task<http::Response> Api::serve(Call& call) {
  const http::Request& request = *call.request;
  Match found = match(request.method, request.path);
  if (found.route == nullptr) {
    Problem problem = make_problem("not_found",
                                   "there is nothing at this path; /openapi.yaml "
                                   "lists what there is");
    if (!found.allowed.empty()) {
      problem = make_problem("method_not_allowed", "this path does not take " + request.method);
    }
    http::Response response = render(problem, request.id);
    std::string allow;
    for (const std::string_view verb : found.allowed) {
      allow += allow.empty() ? "" : ", ";
      allow += verb;
    }
    if (!allow.empty()) {
      response.headers.emplace_back("Allow", allow);
    }
    co_return response;
  }
  call.route = found.route;
  call.params = std::move(found.params);
  call.target = call.params.empty() ? "" : call.params.front();
  if (call.route->role != Role::open) {
    auto who = co_await auth_.identify(request);
    TALON_CO_TRY(principal, std::move(who));
    call.who = std::move(principal);
  }
  auto allowed = authorize(call);
  if (!allowed) {
    co_return std::unexpected(std::move(allowed.error()));
  }
  auto query = http::parse_query(request.query);
  if (!query) {
    co_return bad_field("", "the query is not valid percent-encoded UTF-8 text");
  }
  call.query = std::move(*query);
  auto checked = check_query(call);
  if (!checked) {
    co_return std::unexpected(std::move(checked.error()));
  }
  const bool idempotent = request.count("idempotency-key") > 0;
  if (idempotent && call.route->kind == Kind::create) {
    auto response = co_await with_idempotency(call);
    co_return response;
  }
  if (idempotent && call.route->kind == Kind::stream) {
    auto error = fail(Code::not_supported_yet,
                      "run does not take an Idempotency-Key; POST …/processes does");
    error.error().field = "Idempotency-Key";
    co_return error;
  }
  auto response = co_await call.route->handler(*this, call);
  co_return response;
}

Result<> Api::authorize(const Call& call) const {
  const Route& route = *call.route;
  if (call.who.role < route.role) {
    return fail(Code::forbidden, "this needs the role " + std::string{to_string(route.role)} +
                                     "; the key has " + std::string{to_string(call.who.role)});
  }
  if (call.who.sandbox && route.role != Role::open) {
    const bool has_id = route.path.find("{id}") != std::string_view::npos;
    if (!has_id) {
      return fail(Code::forbidden, "the key is bound to one sandbox and opens nothing else");
    }
    if (call.params.front() != *call.who.sandbox) {
      return fail(Code::not_found, "there is no sandbox " + call.params.front());
    }
  }
  return {};
}

Result<> Api::check_query(const Call& call) const {
  for (const auto& [name, value] : call.query) {
    const std::string padded = " " + std::string{call.route->query} + " ";
    const bool known = !name.empty() && name.find(' ') == std::string::npos &&
                       padded.find(" " + name + " ") != std::string::npos;
    if (known) {
      const auto same = std::count_if(call.query.begin(), call.query.end(),
                                      [&](const auto& other) { return other.first == name; });
      if (same > 1 && name != "label" && name != "state") {
        return bad_field(name, "the query parameter " + name + " is given twice");
      }
      continue;
    }
    if (std::find(kCredentialNames.begin(), kCredentialNames.end(), name) !=
        kCredentialNames.end()) {
      return bad_field(name,
                       "credentials are not taken from a query, where they end in logs; "
                       "send Authorization: Bearer KEY");
    }
    return bad_field(
        name, "there is no query parameter \"" + name + "\" here" +
                  (call.route->query.empty() ? std::string{}
                                             : "; there are: " + std::string{call.route->query}));
  }
  return {};
}

Task<> Api::audit(Call& call, int status) {
  call.audited = true;
  const bool denied = status == 401 || status == 403;
  store::AuditRow row;
  row.tenant = call.who.tenant;
  row.actor = call.who.actor;
  row.action = call.route->operation;
  row.target = call.target;
  row.outcome = denied ? "denied" : (status >= 400 ? "failed" : "allowed");
  row.status = status;
  row.request_id = call.request->id;
  row.remote = call.request->peer.address;
  row.at_ms = system_clock().wall_ms();
  auto work = [row](store::Db& db) -> Result<> { return store::insert_audit(db, row); };
  if (denied) {
    // Whoever floods us with bad keys must not make us wait for the disk.
    parts_.store->write_behind(std::move(work));
    co_return Result<>{};
  }
  std::function<Result<>()> job = [store = parts_.store, work]() -> Result<> {
    return store->write(work);
  };
  auto written = co_await parts_.offload->run<void>(std::move(job));
  co_return written;
}

Task<> Api::start_stream(Call& call, std::string content_type,
                         std::vector<std::pair<std::string, std::string>> headers,
                         std::vector<std::string> trailers) {
  if (is_mutating(*call.route) && !call.audited) {
    auto audited = co_await audit(call, 200);
    if (!audited) {
      co_return audited;
    }
  }
  http::Response head;
  head.status = 200;
  head.content_type = std::move(content_type);
  head.headers = std::move(headers);
  head.headers.emplace_back("Cache-Control", "no-store");
  auto started = co_await call.out->start(std::move(head), std::move(trailers));
  co_return started;
}

Task<std::shared_ptr<http::WebSocket>> Api::start_socket(Call& call, http::UpgradeOptions options) {
  auto audited = co_await audit(call, 101);
  if (!audited) {
    co_return std::unexpected(std::move(audited.error()));
  }
  auto socket = co_await call.out->upgrade(*call.request, options);
  co_return socket;
}

std::string Api::render_metrics() {
  Metrics& m = *parts_.metrics;
  const auto counts = parts_.node->count_by_state();
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::string state{node::to_string(static_cast<node::State>(i))};
    m.set("talon_sandboxes", "state=\"" + state + "\"", static_cast<double>(counts[i]));
  }
  const auto launcher = parts_.node->isolator().counters();
  m.set("talon_sandboxes_max", {}, static_cast<double>(parts_.node->config().max_sandboxes));
  m.set("talon_spawner_starts_total", {}, static_cast<double>(launcher.spawner_starts));
  m.set("talon_store_commits_total", {}, static_cast<double>(parts_.store->commits()));
  m.set("talon_store_behind_errors_total", {}, static_cast<double>(parts_.store->behind_errors()));
  for (const auto& pool : parts_.node->pool_counts()) {
    const std::string label = "pool=\"" + std::string{pool.pool} + "\"";
    m.set("talon_pool_size", label, static_cast<double>(pool.ready));
    m.set("talon_pool_hits_total", label, static_cast<double>(pool.hits));
    m.set("talon_pool_misses_total", label, static_cast<double>(pool.misses));
    m.set("talon_pool_refills_total", label, static_cast<double>(pool.made));
    m.set("talon_pool_refill_seconds_total", label, pool.making_seconds);
  }
  m.set("talon_disk_reserve", {}, parts_.node->reserve_present() ? 1 : 0);
  if (http_counters) {
    const auto http = http_counters();
    m.set("talon_http_connections", {}, static_cast<double>(http.open));
    m.set("talon_http_accepted_total", {}, static_cast<double>(http.accepted));
    m.set("talon_http_refused_total", {}, static_cast<double>(http.refused));
  }
  return m.render();
}

http::Response json_response(int status, const boost::json::object& body) {
  http::Response response;
  response.status = status;
  response.body = json_text(body);
  response.body += '\n';
  return response;
}

Result<Millis> wait_timeout(const Call& call) {
  const auto given = call.parameter("wait_timeout");
  if (!given) {
    return Millis{limits::kWaitDefaultS * 1000};
  }
  auto parsed = parse_duration(*given);
  if (!parsed) {
    return bad_field("wait_timeout", "wait_timeout: " + parsed.error().message);
  }
  if (*parsed > Millis{limits::kWaitMaxS * 1000}) {
    return bad_field("wait_timeout",
                     "wait_timeout is at most " + std::to_string(limits::kWaitMaxS) + " seconds");
  }
  return *parsed;
}

Result<int> page_limit(const Call& call) {
  const auto given = call.parameter("limit");
  if (!given) {
    return 100;
  }
  TALON_TRY(limit, query_whole("limit", *given, 1, 1000));
  return static_cast<int>(limit);
}

}  // namespace talon::server::api
