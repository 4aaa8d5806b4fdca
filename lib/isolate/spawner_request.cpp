#include "isolate/spawner_request.h"

#include <bit>
#include <cstring>

namespace talon::isolate::spawner {

namespace {

constexpr unsigned kSlots = static_cast<unsigned>(wire::Slot::count);

template <class T>
bool take(std::span<const std::byte> body, T& out) {
  if (body.size() != sizeof(T)) {
    return false;
  }
  std::memcpy(&out, body.data(), sizeof(T));
  return true;
}

bool good_tree(const wire::Tree& tree, std::size_t fds) {
  if (tree.storage > static_cast<std::uint32_t>(wire::TreeStorage::readonly)) {
    return false;
  }
  const bool disk = tree.storage == static_cast<std::uint32_t>(wire::TreeStorage::disk);
  return fds == 2u + (disk ? 1 : 0) + (tree.has_workspace != 0 ? 1 : 0);
}

bool good_clone(const wire::Clone& clone, std::size_t fds) {
  return clone.slot_mask >> kSlots == 0 &&
         fds == 2u + static_cast<unsigned>(std::popcount(clone.slot_mask));
}

}  // namespace

Result<Request> parse_request(std::span<const std::byte> bytes, std::size_t fds) {
  const auto malformed = [] { return fail(Code::invalid_request, "malformed request"); };
  wire::SpawnRequest head{};
  if (bytes.size() < sizeof(head)) {
    return malformed();
  }
  std::memcpy(&head, bytes.data(), sizeof(head));
  const auto body = bytes.subspan(sizeof(head));
  if (head.size != body.size()) {
    return malformed();
  }
  Request out;
  out.op = static_cast<wire::SpawnOp>(head.op);
  bool good = false;
  switch (out.op) {
    case wire::SpawnOp::user_ns:
      // A map that reaches the host's own ids would be root outside.
      good = take(body, out.user_ns) && fds == 0 && out.user_ns.base >= 65536 &&
             out.user_ns.count >= 1 && out.user_ns.count <= 65536;
      break;
    case wire::SpawnOp::net_ns: good = body.empty() && fds == 0; break;
    case wire::SpawnOp::cgroup_ns: good = body.empty() && fds == 1; break;
    case wire::SpawnOp::tree: good = take(body, out.tree) && good_tree(out.tree, fds); break;
    case wire::SpawnOp::clone: good = take(body, out.clone) && good_clone(out.clone, fds); break;
    case wire::SpawnOp::reaped: break;
  }
  if (!good) {
    return malformed();
  }
  return out;
}

}  // namespace talon::isolate::spawner
