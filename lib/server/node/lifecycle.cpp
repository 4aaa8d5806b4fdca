#include "server/node/lifecycle.h"

#include <utility>

namespace talon::server::node {

namespace {

std::unexpected<Error> about(Code code, std::string subject, std::string message) {
  auto error = fail(code, std::move(message));
  error.error().field = std::move(subject);
  return error;
}

}  // namespace

std::unexpected<Error> wrong_state(State state, std::string_view wanted) {
  std::string message = "the sandbox is ";
  message += to_string(state);
  message += "; this needs it to be ";
  message += wanted;
  if (state == State::paused && wanted == "running") {
    message += ": resume it first, or repeat the call with ?resume=1";
  }
  return about(Code::wrong_state, std::string{to_string(state)}, std::move(message));
}

std::unexpected<Error> busy(std::string_view operation) {
  std::string message = "another operation holds the sandbox: ";
  message += operation;
  message += "; try again when it has ended";
  return about(Code::busy, std::string{operation}, std::move(message));
}

std::unexpected<Error> over_limit(Code code, std::string limit, std::string message) {
  return about(code, std::move(limit), std::move(message));
}

}  // namespace talon::server::node
