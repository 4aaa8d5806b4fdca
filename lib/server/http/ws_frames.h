#pragma once
// WebSocket frames (RFC 6455 §5): the reader of a client's and the writer of ours. Pure: bytes in,
// bytes out. Nothing that a client announces is believed: lengths are checked before their bytes
// are waited for, and no more is held than one text message or one control frame.

#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>

#include "base/utf8.h"

namespace talon::server::http {

enum class WsOp : std::uint8_t {
  continuation = 0,
  text = 1,
  binary = 2,
  close = 8,
  ping = 9,
  pong = 10,
};

// Close codes (RFC 6455 §7.4.1).
namespace ws_close {
inline constexpr std::uint16_t kNormal = 1000;
inline constexpr std::uint16_t kGoingAway = 1001;
inline constexpr std::uint16_t kProtocol = 1002;
inline constexpr std::uint16_t kUnsupported = 1003;
inline constexpr std::uint16_t kNotUtf8 = 1007;
inline constexpr std::uint16_t kPolicy = 1008;
inline constexpr std::uint16_t kTooBig = 1009;
inline constexpr std::uint16_t kInternal = 1011;
}  // namespace ws_close

struct WsFault {
  std::uint16_t code = ws_close::kProtocol;
  std::string_view detail;
};

// Appends one whole, unmasked frame.
void append_ws_frame(std::string& out, WsOp op, std::string_view head, std::string_view bytes = {});
// Its payload; `reason` is cut to what fits.
std::string ws_close_payload(std::uint16_t code, std::string_view reason);

// What a client sends. A text message comes whole and is UTF-8; a binary one comes in pieces as
// its bytes arrive, `first` and `last` say where it begins and ends.
struct WsEvent {
  WsOp op = WsOp::binary;
  bool first = true;
  bool last = true;
  std::uint16_t code = 0;  // close: 1005 when the client gave none
  std::string bytes;       // close: the reason
};

class WsReader {
 public:
  static constexpr std::uint64_t kTextBytes = 16 * 1024;  // a control message
  static constexpr std::uint64_t kMessageBytes = 1 << 20;

  // Takes what `in` begins with; sets `event` when something is complete, at most one. Returns how
  // many bytes were used; 0 without an event: more are needed. A fault is final.
  std::expected<std::size_t, WsFault> feed(std::string_view in, std::optional<WsEvent>& event);

 private:
  std::expected<std::size_t, WsFault> read_head(std::string_view in);
  std::optional<WsFault> check_data(WsOp op);
  std::optional<WsFault> end_of_frame(std::optional<WsEvent>& event);
  std::optional<WsFault> close_event(std::optional<WsEvent>& event);

  bool in_frame_ = false;
  WsOp op_ = WsOp::binary;  // of the frame
  bool fin_ = true;
  std::uint64_t left_ = 0;  // payload bytes of the frame still to come
  unsigned char mask_[4] = {};
  unsigned mask_at_ = 0;

  std::optional<WsOp> message_;  // the data message under way: text or binary
  std::uint64_t message_bytes_ = 0;
  bool message_begun_ = false;  // a piece of it was given out
  std::string held_;            // of a text message
  std::string control_;         // of a control frame
  Utf8Check utf8_;
};

}  // namespace talon::server::http
