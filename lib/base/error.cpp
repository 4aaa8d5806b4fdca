#include "base/error.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace talon {

std::string_view to_string(Code code) {
  switch (code) {
    case Code::internal: return "internal";
    case Code::invalid_request: return "invalid_request";
    case Code::not_found: return "not_found";
    case Code::gone: return "gone";
    case Code::conflict: return "conflict";
    case Code::wrong_state: return "wrong_state";
    case Code::busy: return "busy";
    case Code::too_large: return "too_large";
    case Code::too_many: return "too_many";
    case Code::unauthenticated: return "unauthenticated";
    case Code::forbidden: return "forbidden";
    case Code::unenforceable: return "unenforceable";
    case Code::not_supported_yet: return "not_supported_yet";
    case Code::unavailable: return "unavailable";
    case Code::timeout: return "timeout";
    case Code::disk_full: return "disk_full";
    case Code::io: return "io";
  }
  return "internal";
}

Error Error::in(std::string_view what) && {
  message.insert(0, ": ");
  message.insert(0, what);
  return std::move(*this);
}

std::unexpected<Error> fail(Code code, std::string message, std::source_location where) {
  return std::unexpected(
      Error{.code = code, .sys = 0, .message = std::move(message), .field = {}, .where = where});
}

std::unexpected<Error> fail_sys(int sys, std::string_view what, std::source_location where) {
  const Code code = (sys == ENOSPC || sys == EDQUOT) ? Code::disk_full : Code::io;
  std::string message{what};
  message += ": ";
  message += strerrordesc_np(sys) != nullptr ? strerrordesc_np(sys) : "unknown error";
  return std::unexpected(
      Error{.code = code, .sys = sys, .message = std::move(message), .field = {}, .where = where});
}

std::unexpected<Error> bad_field(std::string field, std::string message,
                                 std::source_location where) {
  return std::unexpected(Error{.code = Code::invalid_request,
                               .sys = 0,
                               .message = std::move(message),
                               .field = std::move(field),
                               .where = where});
}

void assert_failed(const char* expr, const char* file, int line) {
  std::fprintf(stderr, "talond: broken invariant: %s (%s:%d)\n", expr, file, line);
  std::abort();
}

}  // namespace talon
