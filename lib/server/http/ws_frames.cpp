#include "server/http/ws_frames.h"

#include <algorithm>

namespace talon::server::http {

namespace {

constexpr std::size_t kControlBytes = 125;
constexpr std::uint16_t kNoCode = 1005;

bool is_control(WsOp op) { return static_cast<unsigned>(op) >= 8; }

std::unexpected<WsFault> bad(std::string_view detail) {
  return std::unexpected(WsFault{ws_close::kProtocol, detail});
}

std::uint64_t big_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (const char c : bytes) {
    value = value << 8 | static_cast<unsigned char>(c);
  }
  return value;
}

void append_big_endian(std::string& out, std::uint64_t value, int bytes) {
  for (int shift = (bytes - 1) * 8; shift >= 0; shift -= 8) {
    out += static_cast<char>(value >> shift & 0xff);
  }
}

// RFC 6455 §7.4.2, and the registered ones: what may stand in a frame.
bool is_close_code(std::uint64_t code) {
  return (code >= 1000 && code <= 1014 && code != 1004 && code != 1005 && code != 1006) ||
         (code >= 3000 && code <= 4999);
}

}  // namespace

void append_ws_frame(std::string& out, WsOp op, std::string_view head, std::string_view bytes) {
  const std::uint64_t size = head.size() + bytes.size();
  out += static_cast<char>(0x80 | static_cast<unsigned>(op));
  if (size < 126) {
    out += static_cast<char>(size);
  } else if (size <= 0xffff) {
    out += static_cast<char>(126);
    append_big_endian(out, size, 2);
  } else {
    out += static_cast<char>(127);
    append_big_endian(out, size, 8);
  }
  out.append(head).append(bytes);
}

std::string ws_close_payload(std::uint16_t code, std::string_view reason) {
  std::string payload;
  append_big_endian(payload, code, 2);
  reason = reason.substr(0, kControlBytes - 2);
  const std::size_t whole = whole_characters(reason);
  payload += reason.substr(0, whole == std::string_view::npos ? 0 : whole);
  return payload;
}

std::optional<WsFault> WsReader::check_data(WsOp op) {
  if (op == WsOp::continuation) {
    if (!message_) {
      return WsFault{ws_close::kProtocol, "a continuation of nothing"};
    }
  } else if (op != WsOp::text && op != WsOp::binary) {
    return WsFault{ws_close::kProtocol, "an unknown opcode"};
  } else if (message_) {
    return WsFault{ws_close::kProtocol, "a new message inside another"};
  } else {
    message_ = op;
    message_bytes_ = 0;
    message_begun_ = false;
    utf8_ = {};
  }
  const std::uint64_t most = *message_ == WsOp::text ? kTextBytes : kMessageBytes;
  if (left_ > most - message_bytes_) {
    return WsFault{ws_close::kTooBig, *message_ == WsOp::text
                                          ? "a text message may have 16 KiB"
                                          : "a binary message may have 1 MiB; send several"};
  }
  message_bytes_ += left_;
  return std::nullopt;
}

std::expected<std::size_t, WsFault> WsReader::read_head(std::string_view in) {
  if (in.size() < 2) {
    return 0;
  }
  const auto b0 = static_cast<unsigned char>(in[0]);
  const auto b1 = static_cast<unsigned char>(in[1]);
  if ((b0 & 0x70) != 0) {
    return bad("a reserved bit is set; no extension was agreed");
  }
  if ((b1 & 0x80) == 0) {
    return bad("a client must mask its frames");
  }
  op_ = static_cast<WsOp>(b0 & 0x0f);
  fin_ = (b0 & 0x80) != 0;
  const unsigned small = b1 & 0x7f;
  if (is_control(op_)) {
    if (op_ != WsOp::close && op_ != WsOp::ping && op_ != WsOp::pong) {
      return bad("an unknown opcode");
    }
    if (!fin_ || small > kControlBytes) {
      return bad("a control frame in pieces or of more than 125 bytes");
    }
  }
  const std::size_t extra = small == 126 ? 2 : small == 127 ? 8 : 0;
  const std::size_t size = 2 + extra + sizeof mask_;
  if (in.size() < size) {
    return 0;
  }
  left_ = extra == 0 ? small : big_endian(in.substr(2, extra));
  if ((extra == 2 && left_ < 126) || (extra == 8 && (left_ <= 0xffff || left_ >> 63 != 0))) {
    return bad("a length that is not in its shortest form");
  }
  if (!is_control(op_)) {
    if (auto fault = check_data(op_)) {
      return std::unexpected(*fault);
    }
  }
  std::copy_n(in.data() + 2 + extra, sizeof mask_, mask_);
  mask_at_ = 0;
  in_frame_ = true;
  control_.clear();
  return size;
}

std::optional<WsFault> WsReader::close_event(std::optional<WsEvent>& event) {
  WsEvent out;
  out.op = WsOp::close;
  out.code = kNoCode;
  if (control_.size() == 1) {
    return WsFault{ws_close::kProtocol, "a close frame with half a code"};
  }
  if (!control_.empty()) {
    const std::uint64_t code = big_endian(std::string_view(control_).substr(0, 2));
    if (!is_close_code(code)) {
      return WsFault{ws_close::kProtocol, "a close code that may not be sent"};
    }
    out.code = static_cast<std::uint16_t>(code);
    out.bytes = control_.substr(2);
    Utf8Check check;
    if (!check.feed(out.bytes) || !check.complete()) {
      return WsFault{ws_close::kNotUtf8, "the reason of the close is not UTF-8"};
    }
  }
  event = std::move(out);
  return std::nullopt;
}

std::optional<WsFault> WsReader::end_of_frame(std::optional<WsEvent>& event) {
  in_frame_ = false;
  if (op_ == WsOp::close) {
    return close_event(event);
  }
  if (is_control(op_)) {
    event = WsEvent{.op = op_, .first = true, .last = true, .code = 0, .bytes = control_};
    return std::nullopt;
  }
  if (!fin_) {
    return std::nullopt;
  }
  if (*message_ == WsOp::text) {
    if (!utf8_.complete()) {
      return WsFault{ws_close::kNotUtf8, "a text message that is not UTF-8"};
    }
    event = WsEvent{
        .op = WsOp::text, .first = true, .last = true, .code = 0, .bytes = std::move(held_)};
    held_ = {};
  }
  message_.reset();
  return std::nullopt;
}

std::expected<std::size_t, WsFault> WsReader::feed(std::string_view in,
                                                   std::optional<WsEvent>& event) {
  event.reset();
  std::size_t used = 0;
  while (!event) {
    if (!in_frame_) {
      auto head = read_head(in.substr(used));
      if (!head) {
        return std::unexpected(head.error());
      }
      if (*head == 0) {
        break;
      }
      used += *head;
    }
    const std::size_t size =
        static_cast<std::size_t>(std::min<std::uint64_t>(left_, in.size() - used));
    std::string piece(in.substr(used, size));
    for (char& c : piece) {
      c = static_cast<char>(static_cast<unsigned char>(c) ^ mask_[mask_at_++ & 3]);
    }
    used += size;
    left_ -= size;
    if (is_control(op_)) {
      control_ += piece;
    } else if (*message_ == WsOp::text) {
      if (!utf8_.feed(piece)) {
        return std::unexpected(WsFault{ws_close::kNotUtf8, "a text message that is not UTF-8"});
      }
      held_ += piece;
    } else {
      const bool last = left_ == 0 && fin_;
      if (!piece.empty() || last) {
        event = WsEvent{.op = WsOp::binary,
                        .first = !message_begun_,
                        .last = last,
                        .code = 0,
                        .bytes = std::move(piece)};
        message_begun_ = true;
      }
    }
    if (left_ != 0) {
      break;
    }
    if (auto fault = end_of_frame(event)) {
      return std::unexpected(*fault);
    }
  }
  return used;
}

}  // namespace talon::server::http
