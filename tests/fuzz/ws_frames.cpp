// A client's bytes through the WebSocket reader, whole and in pieces: both must come to the same
// messages and the same fault, and no limit may be passed.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/ws_frames.h"

namespace {

using namespace talon::server::http;

void require(bool ok) {
  if (!ok) {
    std::abort();
  }
}

std::string run(std::string_view bytes, std::size_t piece) {
  WsReader reader;
  std::string in;
  std::string log;
  std::uint64_t binary = 0;
  while (!bytes.empty()) {
    in.append(bytes.substr(0, piece));
    bytes.remove_prefix(std::min(piece, bytes.size()));
    std::optional<WsEvent> event;
    do {
      auto used = reader.feed(in, event);
      if (!used) {
        return log + "!" + std::to_string(used.error().code);
      }
      require(*used <= in.size());
      in.erase(0, *used);
      if (!event) {
        continue;
      }
      if (event->op == WsOp::binary) {
        binary = event->first ? 0 : binary;
        binary += event->bytes.size();
        require(binary <= WsReader::kMessageBytes);
        log += event->bytes + (event->last ? "|" : "");
        continue;
      }
      require(event->bytes.size() <= (event->op == WsOp::text ? WsReader::kTextBytes : 125));
      log += std::to_string(static_cast<unsigned>(event->op)) + ":" + event->bytes + "|";
    } while (event);
  }
  return log;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string whole = run(bytes, bytes.size());
  require(run(bytes, 1 + data[0] % 16) == whole);
  return 0;
}
