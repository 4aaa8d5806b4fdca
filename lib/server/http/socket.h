#pragma once
// The WebSocket of one upgraded connection.

#include "server/http/connection.h"
#include "server/http/websocket.h"

namespace talon::server::http {

class Socket final : public WebSocket {
 public:
  // `connection` outlives it: it lives within handle().
  Socket(Connection& connection, std::size_t window);
  ~Socket() override;

  Task<WsMessage> receive() override;
  Task<> send(std::string_view frames) override;
  Task<> close(std::uint16_t code, std::string_view reason) override;
  void stalled(bool yes) override;
  void shut() override;
  bool over() const override { return over_ || connection_.aborted_; }

  // The server's sweep: asks a silent client for a sign of life, ends a dead one.
  void tick(Connection::Clock::time_point now);

 private:
  using Time = Connection::Clock::time_point;
  Task<bool> take(WsEvent& event);
  Task<> write(std::string_view frames);
  Task<> write_control();
  Task<> lock(bool within_window);
  void unlock();
  void append_ping(std::string& out);
  void take_pong(std::string_view payload);

  Connection& connection_;
  const std::size_t window_;
  WsReader reader_;
  std::size_t at_ = 0;      // bytes of the connection's input that are done with
  unsigned unyielded_ = 0;  // events since the last real wait
  bool over_ = false;
  bool stalled_ = false;
  bool close_sent_ = false;
  bool sending_ = false;
  bool ping_due_ = false;
  std::optional<std::string> pong_due_;  // the latest ping's payload (RFC 6455 §5.5.3)
  std::uint64_t sent_ = 0;               // bytes of frames, ever
  std::uint64_t pinged_ = 0;             // sent_ behind the last ping
  std::uint64_t answered_ = 0;           // the last pong's
  Time asked_;                           // of the last ping, or answer while others are due
};

}  // namespace talon::server::http
