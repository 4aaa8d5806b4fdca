#pragma once
// The log of a process as NDJSON, event by event, from a cursor on; goes on where it was when
// talond was away meanwhile.

#include <cstdint>
#include <optional>
#include <string>

#include "client/session.h"

namespace talon::client {

struct LogOptions {
  std::string sandbox;
  std::string px = {};
  bool follow = false;
  std::string query = {};  // more parameters of every request, "&stream=stderr"
  std::string tail = {};   // lines, of the first request only; "" = all
};

struct LogEvent {
  enum class Kind { out, err, tty, lost, exit, other };
  Kind kind = Kind::other;
  std::string cursor;  // behind it
  std::string bytes;
  std::uint64_t lost = 0;
};

// One line of the answer. Errors: invalid_request when it is not one.
Result<LogEvent> parse_event(std::string_view line);

// Copies the output to stdout and stderr until its end. The exit code of the verb.
int copy_log(Session& session, LogOptions options);

}  // namespace talon::client
