#pragma once
// One constexpr table says what this server answers: verb, path, operation, who may, how large a
// body, which query parameters. tests/contract holds it against api/openapi.yaml both ways;
// `talond routes` prints it.

#include <boost/asio/awaitable.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/auth.h"

namespace talon::server::api {

class Api;
struct Call;

enum class Kind {
  read,    // no audit row unless denied
  change,  // audited
  create,  // audited, honours Idempotency-Key
  stream,  // audited, may answer piece by piece
  socket,  // audited, answers 101 and goes on as a WebSocket
};

// A status of 0 = the handler has answered by itself.
using Handler = Task<http::Response> (*)(Api& api, Call& call);

struct Route {
  std::string_view verb;
  std::string_view path;  // "/v1/sandboxes/{id}"
  std::string_view operation;
  Role role;
  Kind kind;
  std::size_t body_limit;
  std::string_view query;  // names of its query parameters, space-separated
  Handler handler;
};

std::span<const Route> routes();

// The route for a request path, and the values of its {…} parts, percent-decoded.
struct Match {
  const Route* route = nullptr;  // null = no such path, or not with this verb
  std::vector<std::string> params;
  std::vector<std::string_view> allowed;  // verbs of the path, when only the verb is wrong
};
Match match(std::string_view verb, std::string_view path);

}  // namespace talon::server::api
