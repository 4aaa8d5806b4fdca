#pragma once
// Response heads as bytes, and the problems (RFC 9457) that the HTTP layer itself answers.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/http.h"
#include "server/http/parser.h"

namespace talon::server::http {

// How the end of a body is marked.
enum class Framing { none, length, chunked, until_close };

struct HeadPlan {
  Framing framing = Framing::length;
  std::uint64_t length = 0;
  bool close = false;
  std::string_view request_id;
  const std::vector<std::string>* trailers = nullptr;
};

// "Not Found"; "" for a status without a registered phrase.
std::string_view reason_phrase(int status);
// May these go on the wire? (No CR, LF, NUL in names or values; a status of 200 to 599.)
bool is_sendable(const Response& response);
void append_head(std::string& out, const Response& response, const HeadPlan& plan);
// application/problem+json with type, title, status, code, detail, request_id and, if the fault
// names one, limit.
Response problem(const Fault& fault, std::string_view request_id);

}  // namespace talon::server::http
