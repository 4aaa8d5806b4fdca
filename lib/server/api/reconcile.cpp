#include <boost/json.hpp>

#include "server/api/api.h"
#include "server/api/views.h"

namespace talon::server::api {

Task<http::Response> get_reconcile(Api& api, Call& call) {
  static_cast<void>(call);
  co_return json_response(200, reconcile_view(api.node().reconcile_report()));
}

}  // namespace talon::server::api
