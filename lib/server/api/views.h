#pragma once
// Rows as the API shows them.

#include <boost/json.hpp>

#include "server/api/api.h"
#include "store/tables.h"

namespace talon::server::api {

boost::json::object sandbox_view(const store::SandboxRow& row, const Api& api);
boost::json::object process_view(const store::ExecRow& row);
boost::json::object event_view(const store::EventRow& row);
boost::json::object service_view(const node::Service& service);
boost::json::object reconcile_view(const node::ReconcileReport& report);
boost::json::object key_view(const store::ApiKeyRow& row);

// A JSON text from the store as a value; null when it is "" or damaged.
boost::json::value stored_json(std::string_view text);
std::string etag(const store::SandboxRow& row);

}  // namespace talon::server::api
