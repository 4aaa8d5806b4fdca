#include "isolate/host.h"

#include <boost/json.hpp>

#include "server/api/api.h"
#include "server/api/openapi.h"
#include "server/api/text.h"

namespace talon::server::api {

namespace json = boost::json;

namespace {

http::Response text(int status, std::string type, std::string body) {
  http::Response response;
  response.status = status;
  response.content_type = std::move(type);
  response.body = std::move(body);
  return response;
}

http::Response document(const Call& call, std::string type, std::string_view body) {
  const std::string tag = "\"" + sha256_hex(body).substr(0, 16) + "\"";
  http::Response response;
  if (call.request->header("if-none-match") == tag) {
    response = text(304, std::move(type), "");
  } else {
    response = text(200, std::move(type), std::string{body});
  }
  response.headers.emplace_back("ETag", tag);
  response.headers.emplace_back("Cache-Control", "no-cache");
  return response;
}

}  // namespace

Task<http::Response> get_host(Api& api, Call& call) {
  static_cast<void>(call);
  std::function<Result<std::vector<isolate::Finding>>()> job =
      [scope = api.config().survey]() -> Result<std::vector<isolate::Finding>> {
    TALON_TRY(survey, isolate::survey_host(scope));
    return isolate::diagnose(survey);
  };
  auto found = co_await api.offload().run<std::vector<isolate::Finding>>(std::move(job));
  TALON_CO_TRY(findings, std::move(found));
  const isolate::HostFacts& host = api.node().isolator().host();
  json::object body;
  body["version"] = TALON_VERSION;
  body["kernel"] = host.kernel;
  body["machine"] = host.machine;
  body["boot_id"] = host.boot_id;
  json::array tiers;
  tiers.emplace_back(api.node().isolator().tier());
  body["tiers"] = std::move(tiers);
  body["seccomp"] = api.config().unconfined_seccomp ? "unconfined" : "filtered";
  json::object cgroup;
  const std::string path = api.node().isolator().cgroup_path();
  cgroup["path"] = path.empty() ? json::value(nullptr) : json::value(path);
  cgroup["controllers"] = json::array(host.controllers.begin(), host.controllers.end());
  body["cgroup"] = std::move(cgroup);
  body["max_sandboxes"] = api.node().config().max_sandboxes;
  json::array rows;
  for (const isolate::Finding& finding : findings) {
    json::object row;
    row["name"] = finding.name;
    row["status"] = isolate::to_string(finding.status);
    row["value"] = finding.value;
    row["effect"] = finding.effect;
    row["fix"] = finding.fix;
    rows.emplace_back(std::move(row));
  }
  body["findings"] = std::move(rows);
  co_return json_response(200, body);
}

Task<http::Response> get_metrics(Api& api, Call& call) {
  static_cast<void>(call);
  co_return text(200, "text/plain; version=0.0.4; charset=utf-8", api.render_metrics());
}

Task<http::Response> get_health(Api& api, Call& call) {
  static_cast<void>(api);
  static_cast<void>(call);
  co_return text(200, "text/plain; charset=utf-8", "ok\n");
}

Task<http::Response> get_ready(Api& api, Call& call) {
  static_cast<void>(call);
  if (!api.ready()) {
    co_return fail(Code::unavailable, "talond is starting or shutting down");
  }
  if (!api.node().reserve_present()) {
    co_return fail(Code::unavailable,
                   "the disk is full: creates are refused until space under the "
                   "data directory is free");
  }
  co_return text(200, "text/plain; charset=utf-8", "ready\n");
}

Task<http::Response> get_openapi_yaml(Api& api, Call& call) {
  static_cast<void>(api);
  co_return document(call, "application/yaml", openapi_yaml());
}

Task<http::Response> get_openapi_json(Api& api, Call& call) {
  static_cast<void>(api);
  co_return document(call, "application/json", openapi_json());
}

}  // namespace talon::server::api
