#pragma once
// What answers look like to people: aligned columns, no colours, nothing cut.

#include <string>
#include <vector>

#include "client/session.h"

namespace talon::client {

// Columns two spaces apart, each as wide as its widest cell; the first row is the heading.
std::string table(const std::vector<std::vector<std::string>>& rows);

// "3s" "5m" "2h" "9d" for the time from `rfc3339` to `now_ms` (Unix time, milliseconds); "-" when
// the text is no such time.
std::string age(std::string_view rfc3339, std::int64_t now_ms);

std::string sandbox_table(const json::array& sandboxes);
std::string process_table(const json::array& processes);
// One a line: "name      value", nested ones as "limits.memory".
std::string details(const json::value& object);

}  // namespace talon::client
