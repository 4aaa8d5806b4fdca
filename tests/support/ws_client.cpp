#include "support/ws_client.h"

#include <chrono>

namespace talon::test {

namespace {

std::uint64_t number(std::string_view bytes) {
  std::uint64_t value = 0;
  for (const char c : bytes) {
    value = value * 256 + static_cast<unsigned char>(c);
  }
  return value;
}

std::string bytes_of(std::uint64_t value, int count) {
  std::string out;
  while (count-- > 0) {
    out += static_cast<char>(value >> (8 * count) & 0xff);
  }
  return out;
}

}  // namespace

std::string ws_frame(int op, std::string_view payload, bool fin, bool masked) {
  std::string out;
  out += static_cast<char>((fin ? 0x80 : 0) | op);
  const char mask_bit = masked ? '\x80' : '\0';
  if (payload.size() < 126) {
    out += static_cast<char>(mask_bit | static_cast<int>(payload.size()));
  } else if (payload.size() < 65536) {
    out += static_cast<char>(mask_bit | 126);
    out += bytes_of(payload.size(), 2);
  } else {
    out += static_cast<char>(mask_bit | 127);
    out += bytes_of(payload.size(), 8);
  }
  if (!masked) {
    return out.append(payload);
  }
  const std::string_view mask = "\x11\xa2\x33\xc4";
  out += mask;
  for (std::size_t i = 0; i < payload.size(); ++i) {
    out += static_cast<char>(payload[i] ^ mask[i % 4]);
  }
  return out;
}

Socket::Socket(const Client& client, std::string_view target, const Headers& headers)
    : connection_(client.endpoint()) {
  Headers all{{"Connection", "Upgrade"},
              {"Upgrade", "websocket"},
              {"Sec-WebSocket-Version", "13"},
              {"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}};
  all.insert(all.end(), headers.begin(), headers.end());
  if (connection_.open() && connection_.send(client.raw("GET", target, {}, all))) {
    head_ = connection_.read_head(Seconds(30));
  }
}

bool Socket::control(const boost::json::object& message) {
  return send_raw(ws_frame(1, boost::json::serialize(message)));
}

bool Socket::input(std::string_view bytes) {
  return send_raw(ws_frame(2, std::string(1, '\0').append(bytes)));
}

std::optional<WsFrame> Socket::next(Seconds deadline) {
  const auto until = std::chrono::steady_clock::now() + deadline;
  while (true) {
    if (in_.size() >= 2) {
      const auto small = static_cast<unsigned char>(in_[1]) & 0x7f;
      const std::size_t extra = small == 126 ? 2 : small == 127 ? 8 : 0;
      const std::uint64_t size =
          extra == 0 ? small : (in_.size() < 2 + extra ? ~0ull >> 1 : number(in_.substr(2, extra)));
      if (in_.size() >= 2 + extra && in_.size() - 2 - extra >= size) {
        WsFrame frame{in_[0] & 0x0f, in_.substr(2 + extra, size)};
        in_.erase(0, 2 + extra + size);
        take(frame);
        return frame;
      }
    }
    const Seconds left = until - std::chrono::steady_clock::now();
    auto more = left.count() > 0 ? connection_.read_some(left) : std::nullopt;
    if (!more) {
      return std::nullopt;
    }
    in_ += *more;
  }
}

void Socket::take(const WsFrame& frame) {
  if (frame.op == 9) {
    ++pings;
    if (answers_) {
      send_raw(ws_frame(10, frame.payload));
    }
  } else if (frame.op == 8) {
    close_code = static_cast<int>(number(frame.payload.substr(0, 2)));
  } else if (frame.op == 1) {
    boost::system::error_code ec;
    const auto value = boost::json::parse(frame.payload, ec);
    if (!ec && value.is_object()) {
      events.push_back(value.get_object());
      if (const auto* at = value.get_object().if_contains("cursor"); at && at->is_string()) {
        cursor = std::string(at->get_string());
      }
    }
  } else if (frame.op == 2 && frame.payload.size() >= 13) {
    (frame.payload[0] == 2 ? errors : output) += frame.payload.substr(13);
    cursor = std::to_string(number(frame.payload.substr(1, 8))) + "." +
             std::to_string(number(frame.payload.substr(9, 4)));
  }
}

bool Socket::until(Seconds deadline, const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + deadline;
  while (!done()) {
    const Seconds left = end - std::chrono::steady_clock::now();
    if (left.count() <= 0 || !next(left)) {
      return done();
    }
  }
  return true;
}

bool Socket::until_output(Seconds deadline, std::string_view text) {
  return until(deadline, [&] { return output.find(text) != std::string::npos; });
}

bool Socket::until_end(Seconds deadline) {
  return until(deadline, [&] { return close_code != 0; });
}

std::string text_of(const boost::json::object& object, std::string_view name) {
  const auto* value = object.if_contains(name);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

std::size_t Socket::count(std::string_view event) const {
  std::size_t n = 0;
  for (const auto& object : events) {
    n += text_of(object, "event") == event;
  }
  return n;
}

boost::json::object Socket::last(std::string_view event) const {
  for (auto it = events.rbegin(); it != events.rend(); ++it) {
    if (text_of(*it, "event") == event) {
      return *it;
    }
  }
  return {};
}

}  // namespace talon::test
