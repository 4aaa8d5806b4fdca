#pragma once
// What the handlers of terminals share.

#include "server/api/api.h"
#include "server/node/codec.h"

namespace talon::server::api {

struct FoundPty {
  node::Node::Found found;
  node::Terminal terminal;
};
// not_found also for a process without a terminal.
Task<FoundPty> find_pty(Api& api, Call& call);

}  // namespace talon::server::api
