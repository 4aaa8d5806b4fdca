#pragma once
// WebSocket (RFC 6455) on a connection of this server. What hostile clients can do ends here too:
// frames are checked as they arrive, a text message has at most 16 KiB and a binary one 1 MiB and
// is passed on in pieces, a client that is not read from is not buffered for, and one that does
// not answer a ping is gone.
//
// What was sent counts as under way until the client has answered a ping that was sent behind it:
// that bounds what lies in buffers between us and a slow client, whatever the kernel or a proxy
// would hold, so an answer to a key press is never far behind the screen.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/http.h"
#include "server/http/ws_frames.h"

namespace talon::server::http {

struct WsMessage {
  bool text = false;  // whole, at most WsReader::kTextBytes, UTF-8
  bool first = true;  // binary: pieces as they come
  bool last = true;
  std::string bytes;
};

// One coroutine receives; several may send, one after the other. Valid until handle() returns;
// nobody may wait in it then: shut() ends all waits.
class WebSocket {
 public:
  virtual ~WebSocket() = default;
  // unavailable when it is over: the client closed it, left, or broke the protocol (and was told).
  virtual Task<WsMessage> receive() = 0;
  // Whole frames, made by append_ws_frame. Waits while `window` bytes are under way. Send nothing from
  // time to time while stalled: then the pings go out that find a client that has left.
  virtual Task<> send(std::string_view frames) = 0;
  // Says why it ends; then as shut(). Waits for frames being sent, not for the window.
  virtual Task<> close(std::uint16_t code, std::string_view reason) = 0;
  // The receiver waits for something else. Answers to pings may stand behind what it has not taken,
  // so until it goes on nobody waits for them.
  virtual void stalled(bool yes) = 0;
  // Every call of now and later ends with unavailable.
  virtual void shut() = 0;
  virtual bool over() const = 0;
};

// Why this request cannot be upgraded, if so: 426 (it asks for no WebSocket of version 13), 400 (it
// asks wrongly), 403 (a browser asks for a page of another origin, RFC 6455 §10.2).
std::optional<Response> refuse_upgrade(const Request& request);

}  // namespace talon::server::http
