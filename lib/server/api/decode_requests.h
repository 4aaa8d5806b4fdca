#pragma once
// Request bodies as values of the node. Every field of api.md is known here: the ones of later
// releases are answered with not_supported_yet, the rest of the world with invalid_request.

#include <string_view>

#include "base/error.h"
#include "server/api/auth.h"
#include "server/node/types.h"

namespace talon::server::api {

// `proc`: the node's default.
Result<node::CreateRequest> decode_create(std::string_view body, isolate::ProcMode proc);
Result<node::PatchRequest> decode_patch(std::string_view body);
// run takes max_output, spawn stdin: true and log, pty no stdin but a size and what is recorded.
enum class ExecKind { run, spawn, pty };
Result<node::ExecRequest> decode_exec(std::string_view body, ExecKind kind);

struct ResizeRequest {
  std::uint16_t cols = 0;
  std::uint16_t rows = 0;
};
Result<ResizeRequest> decode_resize(std::string_view body);

Result<node::ServiceSpec> decode_service(std::string_view body);
// Of a sandbox or a service.
Result<> check_name(const std::string& field, const std::string& name);

struct SignalRequest {
  int number = 0;
  int scope = 0;  // wire::Scope
};
Result<SignalRequest> decode_signal(std::string_view body);
// "TERM", "SIGTERM", "15" -> 15; nullopt for what is no signal.
std::optional<int> signal_number(std::string_view text);

struct KeyRequest {
  std::string name;
  Role role = Role::developer;
  std::optional<std::string> sandbox;
  std::optional<Millis> ttl;
};
Result<KeyRequest> decode_key(std::string_view body);

}  // namespace talon::server::api
