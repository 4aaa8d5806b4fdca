#pragma once
// HTTP/1.1 as the rest of the server sees it: plain values and one writer interface. Only
// http/*.cpp include Beast. What hostile clients can do ends here: sizes, counts, header and
// idle deadlines, smuggling (two Content-Lengths, CL with TE, obs-fold, bare LF, NUL) are
// answered with 400/408/413/431/501 problem+json or a close, and never reach a handler.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "server/async/task.h"

namespace talon::server::http {

struct Peer {
  bool unix_socket = false;
  std::uint32_t uid = 0;  // unix: SO_PEERCRED
  std::int32_t pid = 0;
  std::string address;  // "127.0.0.1:4711" or "unix:uid=0"
  bool tls = false;
};

struct Request {
  std::string method;                                        // "GET"
  std::string target;                                        // as sent
  std::string path;                                          // before '?', still percent-encoded
  std::string query;                                         // after '?', "" if none
  std::vector<std::pair<std::string, std::string>> headers;  // names lower-cased, order kept
  std::string body;
  Peer peer;
  std::string id;  // rq…; echoed as X-Request-Id
  // First value of a header (lower-case name), "" if absent.
  std::string_view header(std::string_view name) const;
  std::size_t count(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string content_type = "application/json";
  std::string body;
};

class WebSocket;
struct UpgradeOptions {
  std::size_t window = std::size_t{1} << 20;  // bytes under way to the client, see websocket.h
  std::string_view protocol;                  // taken when the client offers it
};

// The answer to one request. Exactly one of send(), start()…finish() or upgrade() is used; the
// server adds
// X-Request-Id, Date, X-Content-Type-Options, Content-Length or chunked coding, and handles HEAD.
// Errors: unavailable when the client is gone, internal when misused (two answers, a header that
// is not one). A handler that returns without an answer gets 500; one that returns in the middle
// of a stream ends the connection, so that the client sees a cut.
class Responder {
 public:
  virtual ~Responder() = default;
  virtual Task<> send(Response response) = 0;
  // Streaming with chunked coding; `trailers` lists names announced in the Trailer header. To an
  // HTTP/1.0 client the body ends with the connection and there are no trailers. With a
  // `content-length` header the body is sent plainly and must have exactly that size.
  virtual Task<> start(Response head, std::vector<std::string> trailers = {}) = 0;
  virtual Task<> write(std::string_view bytes) = 0;  // waits for the peer: back-pressure
  virtual Task<> finish(std::vector<std::pair<std::string, std::string>> trailers = {}) = 0;
  // Answers 101 to a request that refuse_upgrade() lets pass; the connection ends with handle().
  virtual Task<std::shared_ptr<WebSocket>> upgrade(const Request& request, UpgradeOptions options);
  virtual bool started() const = 0;
  // True once the client has hung up (seen by a write error or by the read side), or the
  // server gives up waiting for this request at its stop. A client that only closed its sending
  // side counts as gone too, but what is sent still reaches it: a handler that ignores gone()
  // answers it.
  virtual bool gone() const = 0;
  // Calls `wake` once, on the I/O thread, when gone() becomes true (later, if it is already): to
  // end a handler's wait, e.g. by a Notifier. Valid until handle() returns. At most one.
  virtual void on_gone(std::function<void()> wake) { (void)wake; }
};

// Handles one request. `limit`: how large a body this request may have, asked before the body
// is read (413 otherwise).
class Service {
 public:
  virtual ~Service() = default;
  virtual std::size_t body_limit(const Request& head) = 0;
  virtual Task<> handle(Request request, Responder& responder) = 0;
};

struct ListenAddress {
  bool unix_socket = false;
  std::string host;  // literal IPv4 or IPv6 (without brackets) or a path
  std::uint16_t port = 0;
};
// "127.0.0.1:7300", "[::1]:0", "unix:/run/talon/x.sock"; names are refused (no resolver).
Result<ListenAddress> parse_listen(std::string_view text);
bool is_loopback(const ListenAddress& address);

struct ServerConfig {
  std::vector<ListenAddress> listen;
  std::string tls_cert_file;  // PEM; both or none
  std::string tls_key_file;
  std::size_t max_connections = limits::kConnections;
  unsigned unix_mode = 0600;
  // Request bodies held at one time by all connections; above it 503.
  std::size_t max_buffered = std::size_t{256} << 20;
  Millis header_timeout{limits::kHeaderTimeoutS * 1000};  // from accept or a request's first byte
  Millis idle_timeout{limits::kIdleTimeoutS * 1000};      // between requests
  Millis body_timeout{30'000};                            // for each 16 KiB of a request body
  Millis write_timeout{60'000};                           // without the client taking a byte
  Millis ping_every{20'000};                              // WebSocket: when nothing was asked yet
  Millis pong_timeout{40'000};                            // for the answer to it
};

class Server {
 public:
  // Binds everything or fails naming the address. TLS applies to TCP listeners only.
  static Result<std::unique_ptr<Server>> open(Executor ex, ServerConfig config, Service& service);
  ~Server();
  // "http://127.0.0.1:41234" per listener, with the port that was chosen.
  std::vector<std::string> addresses() const;
  void start();
  // Stops accepting, closes idle connections, lets running requests finish until `gentle`, then
  // closes all and cancels their handlers. Must have ended before the Server goes, if start()
  // was called.
  Task<> stop(Millis gentle);
  struct Counters {
    std::uint64_t open = 0;      // connections now
    std::uint64_t accepted = 0;  // connections ever
    std::uint64_t refused = 0;   // connections turned away or closed to make room
    std::uint64_t requests = 0;  // requests handed to the service
  };
  Counters counters() const;
  // Reads the certificate and key again; new connections use them. On an error the old ones stay.
  Result<> reload_tls();

 private:
  struct Impl;
  explicit Server(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

// percent-decodes one path segment or query value; nullopt when malformed or it contains NUL.
std::optional<std::string> percent_decode(std::string_view text, bool plus_is_space);
// Query parameters in order, decoded; nullopt when malformed.
std::optional<std::vector<std::pair<std::string, std::string>>> parse_query(std::string_view q);

}  // namespace talon::server::http
