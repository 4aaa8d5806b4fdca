#include <catch2/catch.hpp>

#include <cstring>
#include <string>

#include "isolate/spawner_request.h"

using namespace talon;
using isolate::spawner::parse_request;
using wire::SpawnOp;

namespace {

template <class T>
Result<isolate::spawner::Request> parse(SpawnOp op, const T& body, std::size_t fds,
                                        std::size_t cut = 0) {
  const wire::SpawnRequest head{static_cast<std::uint32_t>(op), sizeof(T)};
  std::string bytes{reinterpret_cast<const char*>(&head), sizeof(head)};
  bytes.append(reinterpret_cast<const char*>(&body), sizeof(T));
  bytes.resize(bytes.size() - cut);
  return parse_request(std::as_bytes(std::span{bytes}), fds);
}

}  // namespace

TEST_CASE("spawner requests are taken only whole and with their descriptors") {
  const wire::UserNs ids{.base = 1'000'000'000, .count = 65536};
  CHECK(parse(SpawnOp::user_ns, ids, 0).value().user_ns.base == 1'000'000'000);
  CHECK_FALSE(parse(SpawnOp::user_ns, ids, 1).has_value());
  CHECK_FALSE(parse(SpawnOp::user_ns, ids, 0, 1).has_value());
  CHECK_FALSE(parse(SpawnOp::user_ns, wire::UserNs{.base = 0, .count = 65536}, 0).has_value());
  CHECK_FALSE(
      parse(SpawnOp::user_ns, wire::UserNs{.base = 1 << 20, .count = 65537}, 0).has_value());

  wire::Tree tree{};
  tree.storage = static_cast<std::uint32_t>(wire::TreeStorage::disk);
  CHECK(parse(SpawnOp::tree, tree, 3).has_value());
  CHECK_FALSE(parse(SpawnOp::tree, tree, 2).has_value());
  tree.has_workspace = 1;
  CHECK(parse(SpawnOp::tree, tree, 4).has_value());
  tree.storage = 3;
  CHECK_FALSE(parse(SpawnOp::tree, tree, 4).has_value());

  CHECK(parse(SpawnOp::clone, wire::Clone{.slot_mask = 0b101}, 4).has_value());
  CHECK_FALSE(parse(SpawnOp::clone, wire::Clone{.slot_mask = 0b101}, 3).has_value());
  CHECK_FALSE(parse(SpawnOp::clone, wire::Clone{.slot_mask = 1 << 12}, 3).has_value());
  CHECK_FALSE(parse(SpawnOp::reaped, ids, 0).has_value());
  CHECK_FALSE(parse_request({}, 0).has_value());
}
