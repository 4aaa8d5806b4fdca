#include "server/api/routes.h"

#include <array>

#include "base/limits.h"
#include "server/api/api.h"

namespace talon::server::api {

namespace {

constexpr std::size_t kSmall = 64 * 1024;
constexpr std::size_t kLarge = limits::kBodyBytes;
constexpr std::size_t kNone = 0;

// clang-format off
constexpr auto kRoutes = std::to_array<Route>({
    {"POST", "/v1/sandboxes", "createSandbox", Role::developer, Kind::create, kLarge, "wait wait_timeout", create_sandbox},
    {"GET", "/v1/sandboxes", "listSandboxes", Role::viewer, Kind::read, kNone, "limit cursor state label name", list_sandboxes},
    {"GET", "/v1/sandboxes/{id}", "getSandbox", Role::viewer, Kind::read, kNone, "", get_sandbox},
    {"PATCH", "/v1/sandboxes/{id}", "updateSandbox", Role::developer, Kind::change, kSmall, "", update_sandbox},
    {"DELETE", "/v1/sandboxes/{id}", "deleteSandbox", Role::developer, Kind::change, kNone, "", delete_sandbox},
    {"POST", "/v1/sandboxes/{id}/stop", "stopSandbox", Role::developer, Kind::change, kSmall, "", stop_sandbox},
    {"POST", "/v1/sandboxes/{id}/start", "startSandbox", Role::developer, Kind::change, kSmall, "", start_sandbox},
    {"POST", "/v1/sandboxes/{id}/pause", "pauseSandbox", Role::developer, Kind::change, kSmall, "", pause_sandbox},
    {"POST", "/v1/sandboxes/{id}/resume", "resumeSandbox", Role::developer, Kind::change, kSmall, "", resume_sandbox},
    {"GET", "/v1/sandboxes/{id}/events", "listSandboxEvents", Role::viewer, Kind::read, kNone, "follow from limit", sandbox_events},
    {"GET", "/v1/sandboxes/{id}/stats", "getSandboxStats", Role::viewer, Kind::read, kNone, "", sandbox_stats},
    {"POST", "/v1/sandboxes/{id}/run", "runCommand", Role::developer, Kind::stream, kLarge, "resume", run_command},
    {"POST", "/v1/sandboxes/{id}/processes", "createProcess", Role::developer, Kind::create, kLarge, "resume", create_process},
    {"GET", "/v1/sandboxes/{id}/processes", "listProcesses", Role::viewer, Kind::read, kNone, "limit cursor", list_processes},
    {"GET", "/v1/sandboxes/{id}/processes/{px}", "getProcess", Role::viewer, Kind::read, kNone, "", get_process},
    {"DELETE", "/v1/sandboxes/{id}/processes/{px}", "deleteProcess", Role::developer, Kind::change, kNone, "grace", delete_process},
    {"POST", "/v1/sandboxes/{id}/processes/{px}/signal", "signalProcess", Role::developer, Kind::change, kSmall, "resume", signal_process},
    {"POST", "/v1/sandboxes/{id}/processes/{px}/stdin", "writeProcessStdin", Role::developer, Kind::change, kLarge, "offset close resume", write_stdin},
    {"GET", "/v1/sandboxes/{id}/processes/{px}/logs", "getProcessLogs", Role::viewer, Kind::read, kNone, "from stream follow tail since until", process_logs},
    {"GET", "/v1/sandboxes/{id}/services", "listServices", Role::viewer, Kind::read, kNone, "", list_services},
    {"GET", "/v1/sandboxes/{id}/services/{name}", "getService", Role::viewer, Kind::read, kNone, "", get_service},
    {"PUT", "/v1/sandboxes/{id}/services/{name}", "putService", Role::developer, Kind::change, kLarge, "", put_service},
    {"DELETE", "/v1/sandboxes/{id}/services/{name}", "deleteService", Role::developer, Kind::change, kNone, "", delete_service},
    {"GET", "/v1/sandboxes/{id}/processes/{px}/attach", "attachProcess", Role::viewer, Kind::socket, kNone, "from follow", attach_process},
    {"POST", "/v1/sandboxes/{id}/pty", "createPty", Role::developer, Kind::create, kLarge, "resume", create_pty},
    {"GET", "/v1/sandboxes/{id}/pty/{px}", "attachPty", Role::viewer, Kind::socket, kNone, "from write steal", attach_pty},
    {"POST", "/v1/sandboxes/{id}/pty/{px}/resize", "resizePty", Role::developer, Kind::change, kSmall, "", resize_pty},
    {"GET", "/v1/sandboxes/{id}/pty/{px}/recording", "getPtyRecording", Role::viewer, Kind::read, kNone, "", pty_recording},
    {"GET", "/v1/api-keys", "listApiKeys", Role::owner, Kind::read, kNone, "limit cursor", list_api_keys},
    {"POST", "/v1/api-keys", "createApiKey", Role::owner, Kind::create, kSmall, "", create_api_key},
    {"DELETE", "/v1/api-keys/{kid}", "revokeApiKey", Role::owner, Kind::change, kNone, "", revoke_api_key},
    {"GET", "/v1/prewarm", "listPrewarm", Role::node_admin, Kind::read, kNone, "", list_prewarm},
    {"PUT", "/v1/prewarm/{image}", "putPrewarm", Role::node_admin, Kind::change, kSmall, "", put_prewarm},
    {"DELETE", "/v1/prewarm/{image}", "deletePrewarm", Role::node_admin, Kind::change, kNone, "", delete_prewarm},
    {"GET", "/v1/host", "getHost", Role::node_admin, Kind::read, kNone, "", get_host},
    {"GET", "/v1/reconcile", "getReconcile", Role::node_admin, Kind::read, kNone, "", get_reconcile},
    {"GET", "/metrics", "getMetrics", Role::node_admin, Kind::read, kNone, "", get_metrics},
    {"GET", "/healthz", "getHealth", Role::open, Kind::read, kNone, "", get_health},
    {"GET", "/readyz", "getReady", Role::open, Kind::read, kNone, "", get_ready},
    {"GET", "/openapi.yaml", "getOpenapiYaml", Role::open, Kind::read, kNone, "", get_openapi_yaml},
    {"GET", "/openapi.json", "getOpenapiJson", Role::open, Kind::read, kNone, "", get_openapi_json},
});
// clang-format on

// Next segment of `path` after a '/'; false at the end.
bool next_segment(std::string_view& path, std::string_view& segment) {
  if (path.empty() || path.front() != '/') {
    return false;
  }
  path.remove_prefix(1);
  const auto end = path.find('/');
  segment = path.substr(0, end);
  path.remove_prefix(end == std::string_view::npos ? path.size() : end);
  return true;
}

bool matches(std::string_view pattern, std::string_view path, std::vector<std::string>& params) {
  std::string_view want;
  std::string_view got;
  while (true) {
    const bool more = next_segment(pattern, want);
    if (more != next_segment(path, got)) {
      return false;
    }
    if (!more) {
      return pattern.empty() && path.empty();
    }
    auto decoded = http::percent_decode(got, false);
    if (!decoded || decoded->empty()) {
      return false;
    }
    if (want.starts_with('{')) {
      params.push_back(std::move(*decoded));
    } else if (*decoded != want) {
      return false;
    }
  }
}

}  // namespace

std::span<const Route> routes() { return kRoutes; }

Match match(std::string_view verb, std::string_view path) {
  Match found;
  for (const Route& route : kRoutes) {
    std::vector<std::string> params;
    if (!matches(route.path, path, params)) {
      continue;
    }
    found.allowed.push_back(route.verb);
    if (route.verb == verb || (verb == "HEAD" && route.verb == "GET")) {
      found.route = &route;
      found.params = std::move(params);
    }
  }
  return found;
}

}  // namespace talon::server::api
