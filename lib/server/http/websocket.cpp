#include "server/http/websocket.h"

#include <boost/asio/post.hpp>

#include <openssl/evp.h>

#include <algorithm>
#include <cstring>

#include "server/http/answer.h"
#include "server/http/grammar.h"
#include "server/http/socket.h"

namespace talon::server::http {

namespace {

constexpr std::size_t kFewBytes = 2 * 1024;  // one read, while a client only talks a little
constexpr std::size_t kManyBytes = 64 * 1024;
constexpr unsigned kYieldEvents = 64;

std::unexpected<Error> gone() { return fail(Code::unavailable, "the WebSocket is closed"); }

// RFC 6455 §4.2.2: base64 of the SHA-1 of the key and this text.
std::string accept_value(std::string_view key) {
  const std::string text = std::string(key) + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_Digest(text.data(), text.size(), digest, &size, EVP_sha1(), nullptr);
  unsigned char out[64];
  const int n = EVP_EncodeBlock(out, digest, static_cast<int>(size));
  return {reinterpret_cast<const char*>(out), static_cast<std::size_t>(n)};
}

// base64 of 16 bytes.
bool is_key(std::string_view key) {
  return key.size() == 24 && key.ends_with("==") &&
         std::all_of(key.begin(), key.begin() + 22, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '+' || c == '/';
         });
}

// Only a browser sends Origin, and it cannot be told not to. Its page must be of this server.
bool is_own_origin(const Request& request) {
  const std::string_view origin = request.header("origin");
  const auto at = origin.find("://");
  return request.count("origin") == 1 && at != std::string_view::npos &&
         equals_ignore_case(origin.substr(at + 3), request.header("host"));
}

bool any_lists(const Request& request, std::string_view name, std::string_view word) {
  return std::any_of(request.headers.begin(), request.headers.end(), [&](const auto& field) {
    return field.first == name && list_has(field.second, word);
  });
}

}  // namespace

std::optional<Response> refuse_upgrade(const Request& request) {
  const auto refuse = [&](int status, std::string_view code, std::string detail) {
    return problem(Fault{status, code, std::move(detail), 0}, request.id);
  };
  if (request.method != "GET" || !any_lists(request, "upgrade", "websocket") ||
      !any_lists(request, "connection", "upgrade") ||
      request.header("sec-websocket-version") != "13") {
    Response response =
        refuse(426, "upgrade_required", "this is a WebSocket (RFC 6455, version 13)");
    response.headers.emplace_back("Upgrade", "websocket");
    response.headers.emplace_back("Sec-WebSocket-Version", "13");
    return response;
  }
  if (request.count("sec-websocket-key") != 1 || !is_key(request.header("sec-websocket-key"))) {
    return refuse(400, "invalid_request", "Sec-WebSocket-Key must be the base64 of 16 bytes");
  }
  if (request.count("origin") > 0 && !is_own_origin(request)) {
    return refuse(403, "forbidden", "pages of another origin may not open a WebSocket here");
  }
  return std::nullopt;
}

Task<std::shared_ptr<WebSocket>> Responder::upgrade(const Request&, UpgradeOptions) {
  co_return fail(Code::internal, "response: this connection cannot be upgraded");
}

Task<std::shared_ptr<WebSocket>> Answer::upgrade(const Request& request, UpgradeOptions options) {
  if (state_ != State::fresh || http10_ || refuse_upgrade(request)) {
    co_return fail(Code::internal, "response: upgrade() of a request that cannot be upgraded");
  }
  out_ = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";
  out_ += "Sec-WebSocket-Accept: " + accept_value(request.header("sec-websocket-key")) + "\r\n";
  if (!options.protocol.empty() && any_lists(request, "sec-websocket-protocol", options.protocol)) {
    out_.append("Sec-WebSocket-Protocol: ").append(options.protocol).append("\r\n");
  }
  out_ += "X-Request-Id: " + id_ + "\r\n\r\n";
  state_ = State::streaming;
  auto written = co_await flush(out_);
  if (!written) {
    co_return std::unexpected(std::move(written.error()));
  }
  state_ = State::complete;
  close_ = true;
  co_return std::make_shared<Socket>(connection_, options.window);
}

Socket::Socket(Connection& connection, std::size_t window)
    : connection_(connection), window_(window), asked_(Connection::Clock::now()) {
  connection_.socket_ = this;
}

Socket::~Socket() {
  connection_.socket_ = nullptr;
  connection_.in_.clear();
}

void Socket::stalled(bool yes) {
  stalled_ = yes;
  asked_ = Connection::Clock::now();
  connection_.wake();
}

void Socket::shut() {
  over_ = true;
  connection_.wake();
}

void Socket::tick(Time now) {
  const ServerConfig& config = connection_.shared_.config;
  if (over_) {
    return;
  }
  if (answered_ != pinged_ && !stalled_) {
    if (now - asked_ >= config.pong_timeout) {
      connection_.abort();
    }
  } else if (now - asked_ >= config.ping_every && !ping_due_) {
    ping_due_ = true;
    connection_.wake();
  }
}

void Socket::append_ping(std::string& out) {
  ping_due_ = false;
  if (answered_ == pinged_ || stalled_) {
    asked_ = Connection::Clock::now();
  }
  char payload[8];
  pinged_ = sent_ + out.size() + 2 + sizeof payload;
  std::memcpy(payload, &pinged_, sizeof payload);
  append_ws_frame(out, WsOp::ping, {payload, sizeof payload});
}

void Socket::take_pong(std::string_view payload) {
  std::uint64_t value = 0;
  if (payload.size() != sizeof value) {
    return;
  }
  std::memcpy(&value, payload.data(), sizeof value);
  if (value > answered_ && value <= pinged_) {
    answered_ = value;
    asked_ = Connection::Clock::now();
    connection_.wake();
  }
}

Task<> Socket::lock(bool within_window) {
  while (!over() && (sending_ || (within_window && !stalled_ && sent_ - answered_ >= window_))) {
    co_await connection_.wake_.async_wait(kNoThrow);
  }
  if (over()) {
    co_return gone();
  }
  sending_ = true;
  co_return Result<>{};
}

void Socket::unlock() {
  sending_ = false;
  connection_.wake();
}

Task<> Socket::write(std::string_view frames) {
  auto written = co_await connection_.write(frames);
  sent_ += frames.size();
  if (!written) {
    over_ = true;
  }
  co_return written;
}

Task<> Socket::send(std::string_view frames) {
  auto locked = co_await lock(true);
  if (!locked) {
    co_return std::unexpected(std::move(locked.error()));
  }
  auto written = co_await write(frames);
  if (written && (sent_ - pinged_ >= window_ / 2 || ping_due_ || pong_due_)) {
    if (sent_ - pinged_ >= window_ / 2) {
      ping_due_ = true;
    }
    written = co_await write_control();
  }
  unlock();
  co_return written;
}

// What is due besides data; the lock is held.
Task<> Socket::write_control() {
  std::string out;
  if (pong_due_) {
    append_ws_frame(out, WsOp::pong, *pong_due_);
    pong_due_.reset();
  }
  if (ping_due_) {
    append_ping(out);
  }
  auto written = co_await write(out);
  co_return written;
}

Task<> Socket::close(std::uint16_t code, std::string_view reason) {
  if (close_sent_) {
    co_return Result<>{};
  }
  close_sent_ = true;
  auto locked = co_await lock(false);
  if (!locked) {
    co_return std::unexpected(std::move(locked.error()));
  }
  std::string out;
  append_ws_frame(out, WsOp::close, ws_close_payload(code, reason));
  auto written = co_await write(out);
  over_ = true;
  unlock();
  co_return written;
}

// False when the socket is over.
Task<bool> Socket::take(WsEvent& event) {
  if (event.op == WsOp::pong) {
    take_pong(event.bytes);
  } else if (event.op == WsOp::ping) {
    pong_due_ = std::move(event.bytes);
  } else if (event.op == WsOp::close) {
    constexpr std::uint16_t kNoCode = 1005;
    const std::uint16_t code = event.code == kNoCode ? ws_close::kNormal : event.code;
    auto closed = co_await close(code, "");
    (void)closed;
    shut();
    co_return false;
  }
  co_return true;
}

Task<WsMessage> Socket::receive() {
  std::string& in = connection_.in_;
  while (!over()) {
    if (++unyielded_ > kYieldEvents) {
      unyielded_ = 0;
      co_await asio::post(connection_.shared_.ex, asio::use_awaitable);
      continue;
    }
    std::optional<WsEvent> event;
    auto used = reader_.feed(std::string_view(in).substr(at_), event);
    if (!used) {
      auto closed = co_await close(used.error().code, used.error().detail);
      (void)closed;
      shut();
      co_return fail(Code::invalid_request, std::string(used.error().detail));
    }
    at_ += *used;
    if (event && (event->op == WsOp::text || event->op == WsOp::binary)) {
      connection_.read_want_ = event->bytes.size() > kFewBytes / 2 ? kManyBytes : kFewBytes;
      co_return WsMessage{event->op == WsOp::text, event->first, event->last,
                          std::move(event->bytes)};
    }
    if (event) {
      auto more = co_await take(*event);
      if (!more || !*more) {
        break;
      }
      continue;
    }
    in.erase(0, at_);
    at_ = 0;
    if ((pong_due_ || ping_due_) && !sending_) {
      sending_ = true;
      auto written = co_await write_control();
      (void)written;
      unlock();
      continue;
    }
    if (connection_.ended_) {
      shut();
      break;
    }
    connection_.start_read();
    unyielded_ = 0;
    co_await connection_.wake_.async_wait(kNoThrow);
  }
  co_return gone();
}

}  // namespace talon::server::http
