#pragma once
// The HTTP service: authenticates, finds the route, checks role and parameters, runs the
// handler, writes the audit row, answers. Handlers decode, call the node, encode; nothing more.

#include <boost/json/fwd.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/metrics.h"
#include "isolate/host.h"
#include "server/api/auth.h"
#include "server/api/routes.h"
#include "server/http/http.h"
#include "server/node/node.h"

namespace talon::server::api {

struct ApiParts {
  Offload* offload = nullptr;
  store::Store* store = nullptr;
  node::Node* node = nullptr;
  Metrics* metrics = nullptr;
  std::string default_tenant;
};

struct ApiConfig {
  isolate::ProcMode default_proc = isolate::ProcMode::full;
  bool unconfined_seccomp = false;
  isolate::SurveyScope survey;  // what GET /v1/host looks at
};

// One request on its way through.
struct Call {
  const http::Request* request = nullptr;
  http::Responder* out = nullptr;
  const Route* route = nullptr;
  std::vector<std::string> params;
  std::vector<std::pair<std::string, std::string>> query;
  Principal who;
  std::string target;  // what the audit row names
  bool audited = false;
  std::optional<store::IdempotencyRow> idempotency;  // claimed by this request
  std::string stored_body;  // what a replay answers, when it is not the answer itself

  // First value, nullopt if absent.
  std::optional<std::string> parameter(std::string_view name) const;
  const std::string& tenant() const { return who.tenant; }
};

class Api : public http::Service {
 public:
  Api(ApiParts parts, ApiConfig config);

  std::size_t body_limit(const http::Request& head) override;
  Task<> handle(http::Request request, http::Responder& responder) override;

  node::Node& node() { return *parts_.node; }
  store::Store& store() { return *parts_.store; }
  Offload& offload() { return *parts_.offload; }
  Metrics& metrics() { return *parts_.metrics; }
  Auth& auth() { return auth_; }
  const ApiConfig& config() const { return config_; }

  // /readyz and the refusal of new work while shutting down.
  void set_ready(bool ready) { ready_ = ready; }
  bool ready() const { return ready_; }
  std::function<http::Server::Counters()> http_counters;

  // Audits (if its kind asks for it) and starts a streamed answer.
  Task<> start_stream(Call& call, std::string content_type,
                      std::vector<std::pair<std::string, std::string>> headers = {},
                      std::vector<std::string> trailers = {});
  // Audits and upgrades.
  Task<std::shared_ptr<http::WebSocket>> start_socket(Call& call, http::UpgradeOptions options);
  std::string render_metrics();

 private:
  Task<http::Response> serve(Call& call);
  Task<http::Response> with_idempotency(Call& call);
  Task<std::optional<http::Response>> claim(Call& call);
  Task<http::Response> recover(Call& call, store::IdempotencyRow row);
  Task<> audit(Call& call, int status);
  Result<> authorize(const Call& call) const;
  Result<> check_query(const Call& call) const;

  ApiParts parts_;
  ApiConfig config_;
  Auth auth_;
  std::int64_t started_ms_;
  bool ready_ = false;
};

// Small helpers of the handlers.
http::Response json_response(int status, const boost::json::object& body);
Result<Millis> wait_timeout(const Call& call);
// ?limit= (1..1000, default 100).
Result<int> page_limit(const Call& call);
// ?resume=1: a paused sandbox goes on before the call is done (decision 36).
Task<> resume_if_asked(Api& api, const Call& call);

// Handlers, one file per resource.
Task<http::Response> create_sandbox(Api& api, Call& call);
Task<http::Response> list_sandboxes(Api& api, Call& call);
Task<http::Response> get_sandbox(Api& api, Call& call);
Task<http::Response> update_sandbox(Api& api, Call& call);
Task<http::Response> delete_sandbox(Api& api, Call& call);
Task<http::Response> stop_sandbox(Api& api, Call& call);
Task<http::Response> start_sandbox(Api& api, Call& call);
Task<http::Response> pause_sandbox(Api& api, Call& call);
Task<http::Response> resume_sandbox(Api& api, Call& call);
Task<http::Response> sandbox_events(Api& api, Call& call);
Task<http::Response> sandbox_stats(Api& api, Call& call);
Task<http::Response> run_command(Api& api, Call& call);
Task<http::Response> create_process(Api& api, Call& call);
Task<http::Response> list_processes(Api& api, Call& call);
Task<http::Response> get_process(Api& api, Call& call);
Task<http::Response> delete_process(Api& api, Call& call);
Task<http::Response> signal_process(Api& api, Call& call);
Task<http::Response> write_stdin(Api& api, Call& call);
Task<http::Response> process_logs(Api& api, Call& call);
Task<http::Response> attach_process(Api& api, Call& call);
Task<http::Response> create_pty(Api& api, Call& call);
Task<http::Response> attach_pty(Api& api, Call& call);
Task<http::Response> resize_pty(Api& api, Call& call);
Task<http::Response> pty_recording(Api& api, Call& call);
Task<http::Response> list_services(Api& api, Call& call);
Task<http::Response> get_service(Api& api, Call& call);
Task<http::Response> put_service(Api& api, Call& call);
Task<http::Response> delete_service(Api& api, Call& call);
Task<http::Response> list_api_keys(Api& api, Call& call);
Task<http::Response> create_api_key(Api& api, Call& call);
Task<http::Response> revoke_api_key(Api& api, Call& call);
Task<http::Response> list_prewarm(Api& api, Call& call);
Task<http::Response> put_prewarm(Api& api, Call& call);
Task<http::Response> delete_prewarm(Api& api, Call& call);
Task<http::Response> get_host(Api& api, Call& call);
Task<http::Response> get_reconcile(Api& api, Call& call);
Task<http::Response> get_metrics(Api& api, Call& call);
Task<http::Response> get_health(Api& api, Call& call);
Task<http::Response> get_ready(Api& api, Call& call);
Task<http::Response> get_openapi_yaml(Api& api, Call& call);
Task<http::Response> get_openapi_json(Api& api, Call& call);

}  // namespace talon::server::api
