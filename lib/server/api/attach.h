#pragma once
// A process on a WebSocket: its output from a cursor, its input, signals, its size. Everything
// that is shown comes from the log, so a client that was cut off goes on with its cursor, and one
// that reads slowly holds nothing but its place. What the frames mean: api/openapi.yaml,
// attachProcess.

#include <optional>

#include "server/api/api.h"
#include "server/node/log_stream.h"

namespace talon::server::api {

inline constexpr std::string_view kSocketProtocol = "talon.v1";

struct AttachOptions {
  std::string from = "0";  // a cursor, 0 or end
  node::Follow follow = node::Follow::until_exit;
  bool may_act = false;                  // input, signals: the role allows it
  bool tty = false;                      // then input and resize are the writer's alone
  std::shared_ptr<node::Writer> writer;  // of this client
  std::size_t window = std::size_t{1} << 20;
};

// Upgrades the request and serves it to its end. `found` has a log.
Task<http::Response> attach(Api& api, Call& call, node::Node::Found found, AttachOptions options);

// Where a terminal's output can be shown from after a loss: behind the first line break, which
// stands in no escape sequence and no character, if one comes soon.
std::size_t torn_prefix(std::string_view bytes);

}  // namespace talon::server::api
