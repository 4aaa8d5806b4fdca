#pragma once
// A request to the spawner, checked: known operation, exact sizes, the right number of
// descriptors. Pure, so that it can be fuzzed.

#include <cstddef>
#include <span>

#include "base/error.h"
#include "isolate/wire/spawner_format.h"

namespace talon::isolate::spawner {

struct Request {
  wire::SpawnOp op{};
  wire::UserNs user_ns{};
  wire::Tree tree{};
  wire::Clone clone{};
};

// `bytes`: the whole message; `fds`: how many descriptors came with it.
Result<Request> parse_request(std::span<const std::byte> bytes, std::size_t fds);

}  // namespace talon::isolate::spawner
