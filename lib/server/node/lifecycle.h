#pragma once
// The states of a sandbox and the one table that says which change is allowed (architecture §5).
// Everything else is wrong_state with the state.

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace talon::server::node {

enum class State { creating, running, paused, stopped, deleting, deleted, failed };
inline constexpr std::size_t kStates = 7;

constexpr std::string_view to_string(State state) {
  constexpr std::array<std::string_view, kStates> names{"creating", "running", "paused", "stopped",
                                                        "deleting", "deleted", "failed"};
  return names[static_cast<std::size_t>(state)];
}

constexpr std::optional<State> parse_state(std::string_view text) {
  for (std::size_t i = 0; i < kStates; ++i) {
    if (to_string(static_cast<State>(i)) == text) {
      return static_cast<State>(i);
    }
  }
  return std::nullopt;
}

namespace detail {
// Row = from, bit = to.
constexpr unsigned to(State s) { return 1u << static_cast<unsigned>(s); }
inline constexpr std::array<unsigned, kStates> kAllowed{
    /* creating */ to(State::running) | to(State::failed) | to(State::stopped) |
        to(State::deleting),
    /* running  */ to(State::paused) | to(State::stopped) | to(State::deleting),
    /* paused   */ to(State::running) | to(State::stopped) | to(State::deleting),
    /* stopped  */ to(State::running) | to(State::deleting),
    /* deleting */ to(State::deleted),
    /* deleted  */ 0,
    /* failed   */ to(State::deleting),
};
}  // namespace detail

constexpr bool allowed(State from, State to) {
  return (detail::kAllowed[static_cast<std::size_t>(from)] & detail::to(to)) != 0;
}

// The errors whose subject is not a JSON field: Error::field carries the state, the operation
// or the limit, and the API names it so in the problem (api/errors.cpp).
std::unexpected<Error> wrong_state(State state, std::string_view wanted);
std::unexpected<Error> busy(std::string_view operation);
std::unexpected<Error> over_limit(Code code, std::string limit, std::string message);

}  // namespace talon::server::node
