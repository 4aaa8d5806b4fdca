#pragma once
// A blocking WebSocket client for tests, written without the server's own frames. It answers
// pings unless told not to, and collects what an attached process sends. It never asserts.

#include <boost/json.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "support/http_client.h"

namespace talon::test {

struct WsFrame {
  int op = 0;  // 1 text, 2 binary, 8 close, 9 ping, 10 pong
  std::string payload;
};

// A client's frame as bytes, for tests that send what is none.
std::string ws_frame(int op, std::string_view payload, bool fin = true, bool masked = true);

class Socket {
 public:
  // GETs `target` with the headers of an upgrade; `head()` says what came of it.
  Socket(const Client& client, std::string_view target, const Headers& headers = {});
  Socket(Socket&&) noexcept = default;

  const Reply& head() const { return head_; }
  bool open() const { return head_.status == 101; }
  Connection& connection() { return connection_; }
  void answer_pings(bool yes) { answers_ = yes; }

  bool send_raw(std::string_view bytes) { return connection_.send(bytes); }
  bool control(const boost::json::object& message);  // a text message
  bool input(std::string_view bytes);                // a binary one, with its tag

  // The next frame; nullopt when none comes within the deadline or the server has closed.
  std::optional<WsFrame> next(Seconds deadline);

  // Reads until `done` holds (asked after each frame) or the deadline passes.
  bool until(Seconds deadline, const std::function<bool()>& done);
  bool until_output(Seconds deadline, std::string_view text);
  bool until_end(Seconds deadline);  // the close frame

  std::string output;                       // stdout and terminal
  std::string errors;                       // stderr
  std::string cursor;                       // of what was received so far
  std::vector<boost::json::object> events;  // text frames
  std::size_t count(std::string_view event) const;
  // The last event of this name; empty when there is none.
  boost::json::object last(std::string_view event) const;
  int close_code = 0;  // 0: no close frame yet
  std::size_t pings = 0;

 private:
  void take(const WsFrame& frame);

  Connection connection_;
  Reply head_;
  std::string in_;
  bool answers_ = true;
};

// A string member, "" when there is none.
std::string text_of(const boost::json::object& object, std::string_view name);

}  // namespace talon::test
