#pragma once
// Terminals for tests: makes one, attaches to it, reads recordings.

#include "support/daemon.h"
#include "support/ws_client.h"

namespace talon::test {

inline constexpr const char* kPrompt = "ready> ";

inline std::string pty_path(const std::string& id, const std::string& px) {
  return "/v1/sandboxes/" + id + "/pty/" + px;
}

// REQUIREs 201; the id.
std::string make_pty(const Client& client, const std::string& id, const boost::json::object& body);
// A bash that says kPrompt, its writer attached.
Socket open_shell(const Client& client, const std::string& id, boost::json::object body = {});

struct CastEvent {
  double time = 0;
  char code = 0;
  std::string data;
};
// The events of an asciicast v2; REQUIREs that each line is one.
std::vector<CastEvent> cast_events(const std::string& cast);
std::string cast_output(const std::string& cast);

}  // namespace talon::test
