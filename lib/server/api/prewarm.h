#pragma once
// /v1/prewarm: its body and its answer.

#include <boost/json.hpp>
#include <string_view>

#include "base/error.h"
#include "server/node/node.h"

namespace talon::server::api {

// Without the image, which is in the path.
Result<node::PrewarmWish> decode_prewarm(std::string_view body);
boost::json::object prewarm_view(const node::Prewarmed& warm);

}  // namespace talon::server::api
