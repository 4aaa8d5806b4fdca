#include "server/node/lifecycle.h"

#include <catch2/catch.hpp>
#include <set>
#include <utility>

using namespace talon;
using namespace talon::server::node;

TEST_CASE("the state table allows what architecture section 5 says and nothing else") {
  using S = State;
  const std::set<std::pair<S, S>> good{
      {S::creating, S::running},  {S::creating, S::failed}, {S::creating, S::stopped},
      {S::creating, S::deleting}, {S::running, S::paused},  {S::running, S::stopped},
      {S::running, S::deleting},  {S::paused, S::running},  {S::paused, S::stopped},
      {S::paused, S::deleting},   {S::stopped, S::running}, {S::stopped, S::deleting},
      {S::deleting, S::deleted},  {S::failed, S::deleting}};
  for (std::size_t from = 0; from < kStates; ++from) {
    for (std::size_t to = 0; to < kStates; ++to) {
      const auto a = static_cast<State>(from);
      const auto b = static_cast<State>(to);
      INFO(to_string(a) << " -> " << to_string(b));
      CHECK(allowed(a, b) == good.contains({a, b}));
    }
    CHECK(parse_state(to_string(static_cast<State>(from))) == static_cast<State>(from));
  }
  CHECK_FALSE(parse_state("resting"));
}

TEST_CASE("the errors of the life cycle carry their subject") {
  const Error state = wrong_state(State::stopped, "running").error();
  CHECK(state.code == Code::wrong_state);
  CHECK(state.field == "stopped");
  const Error held = busy("delete").error();
  CHECK(held.code == Code::busy);
  CHECK(held.field == "delete");
}
