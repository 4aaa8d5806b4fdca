// What the spawner reads from talond, and what talond reads from init: both sides' checks.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "isolate/sandbox_impl.h"
#include "isolate/spawner_request.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace talon;
  if (size == 0) {
    return 0;
  }
  const auto bytes = std::as_bytes(std::span{data, size}).subspan(1);
  const std::size_t fds = data[0] % 16;
  if (const auto request = isolate::spawner::parse_request(bytes, fds)) {
    if (request->op == wire::SpawnOp::user_ns && request->user_ns.base < 65536) {
      std::abort();  // would map the host's ids
    }
    if (request->op == wire::SpawnOp::clone && fds < 2) {
      std::abort();
    }
  }
  if (const auto event = isolate::decode_event(bytes)) {
    if (const auto* exited = std::get_if<isolate::event::Exited>(&*event)) {
      if (exited->px.empty() || exited->px.size() >= wire::kIdSize) {
        std::abort();
      }
    }
  }
  return 0;
}
