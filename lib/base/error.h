#pragma once
// Errors as values. Every function that can fail returns Result<T>; nothing in talon throws.
// An Error says what was being done (message, built outside-in by each layer), which closed
// class it belongs to (Code: the only thing callers branch on) and, where the kernel said no,
// its errno. A broken invariant is TALON_ASSERT and aborts in every build.

#include <cstdint>
#include <expected>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

namespace talon {

// Closed list. server/api/errors.cpp is the only place that maps a Code to an HTTP status.
enum class Code : std::uint8_t {
  internal,           // a fault of ours or of the host that the caller cannot mend
  invalid_request,    // the input is wrong; Error::field names where
  not_found,          // no such thing, or not the caller's
  gone,               // it existed and was deleted
  conflict,           // already exists, or an idempotency key was reused with other input
  wrong_state,        // not allowed in the object's present state
  busy,               // another operation holds the object
  too_large,          // a named limit on size was passed
  too_many,           // a named limit on count was passed
  unauthenticated,    // no or bad credential
  forbidden,          // good credential, not enough role
  unenforceable,      // the host cannot enforce what was asked for
  not_supported_yet,  // a field or route of a later release
  unavailable,        // try again later (shutting down, descriptor budget, peer gone)
  timeout,            // a deadline passed
  disk_full,          // ENOSPC, EDQUOT, or the reserve is in use
  io,                 // the kernel refused; see Error::sys
};

std::string_view to_string(Code code);

struct Error {
  Code code = Code::internal;
  int sys = 0;          // errno, 0 if none
  std::string message;  // "create sandbox sb1…: mount overlay: Invalid argument"
  std::string field;    // for invalid_request: JSON pointer-ish name, e.g. "resources.memory"
  std::source_location where = std::source_location::current();

  // Returns *this with "what: " put in front of the message.
  Error in(std::string_view what) &&;
};

template <class T = void>
using Result = std::expected<T, Error>;

// fail(Code::not_found, "no image {name}") style helper; the message is final text.
[[nodiscard]] std::unexpected<Error> fail(
    Code code, std::string message, std::source_location where = std::source_location::current());

// From an errno value; ENOSPC/EDQUOT become disk_full, ENOENT stays io unless the caller maps it.
[[nodiscard]] std::unexpected<Error> fail_sys(
    int sys, std::string_view what, std::source_location where = std::source_location::current());

// invalid_request that names its field.
[[nodiscard]] std::unexpected<Error> bad_field(
    std::string field, std::string message,
    std::source_location where = std::source_location::current());

[[noreturn]] void assert_failed(const char* expr, const char* file, int line);

}  // namespace talon

#define TALON_CAT2(a, b) a##b
#define TALON_CAT(a, b) TALON_CAT2(a, b)
// TALON_TRY(name, expr): declares `name` as the value of a Result, or returns its error.
#define TALON_TRY(name, ...)                                              \
  auto TALON_CAT(try_, __LINE__) = (__VA_ARGS__);                         \
  if (!TALON_CAT(try_, __LINE__)) {                                       \
    return std::unexpected(std::move(TALON_CAT(try_, __LINE__)).error()); \
  }                                                                       \
  auto name = std::move(TALON_CAT(try_, __LINE__)).value()
// TALON_CHECK(expr): the same for a Result<void>.
#define TALON_CHECK(...)                               \
  do {                                                 \
    if (auto try_ = (__VA_ARGS__); !try_) {            \
      return std::unexpected(std::move(try_).error()); \
    }                                                  \
  } while (false)
// The same two inside coroutines (`expr` contains no co_await: await into a name first).
#define TALON_CO_TRY(name, ...)                                              \
  auto TALON_CAT(try_, __LINE__) = (__VA_ARGS__);                            \
  if (!TALON_CAT(try_, __LINE__)) {                                          \
    co_return std::unexpected(std::move(TALON_CAT(try_, __LINE__)).error()); \
  }                                                                          \
  auto name = std::move(TALON_CAT(try_, __LINE__)).value()
#define TALON_ASSERT(expr) ((expr) ? void() : ::talon::assert_failed(#expr, __FILE__, __LINE__))
