#include "server/api/api.h"
#include "server/api/decode_requests.h"
#include "server/api/views.h"

namespace talon::server::api {

namespace json = boost::json;

Task<http::Response> list_services(Api& api, Call& call) {
  auto listed = co_await api.node().services(call.tenant(), call.params[0]);
  TALON_CO_TRY(services, std::move(listed));
  json::array items;
  for (const node::ServicePtr& service : services) {
    items.emplace_back(service_view(*service));
  }
  json::object body;
  body["items"] = std::move(items);
  body["next_cursor"] = nullptr;
  co_return json_response(200, body);
}

Task<http::Response> get_service(Api& api, Call& call) {
  auto found = co_await api.node().find_service(call.tenant(), call.params[0], call.params[1]);
  TALON_CO_TRY(service, std::move(found));
  co_return json_response(200, service_view(*service));
}

Task<http::Response> put_service(Api& api, Call& call) {
  auto named = check_name("name", call.params[1]);
  if (!named) {
    co_return std::unexpected(std::move(named.error()));
  }
  auto decoded = decode_service(call.request->body);
  TALON_CO_TRY(spec, std::move(decoded));
  auto done = co_await api.node().put_service(call.tenant(), call.params[0], call.params[1],
                                              std::move(spec));
  TALON_CO_TRY(put, std::move(done));
  const int status = put.made ? 201 : 200;
  co_return json_response(status, service_view(*put.service));
}

Task<http::Response> delete_service(Api& api, Call& call) {
  auto removed = co_await api.node().remove_service(call.tenant(), call.params[0], call.params[1]);
  if (!removed) {
    co_return std::unexpected(std::move(removed.error()));
  }
  http::Response response;
  response.status = 204;
  co_return response;
}

}  // namespace talon::server::api
