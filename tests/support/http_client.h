#pragma once
// A blocking HTTP/1.1 client for tests, written without the server's own parser so that a fault
// in one cannot hide in the other. It never asserts: a failure is Reply::status 0 with `error`,
// so it may be used from threads.

#include <boost/json.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace talon::test {

using Headers = std::vector<std::pair<std::string, std::string>>;
using Seconds = std::chrono::duration<double>;

struct Reply {
  int status = 0;  // 0: no answer, see `error`
  std::string error;
  Headers headers;  // names lower-cased
  std::string body;
  Headers trailers;
  double seconds = 0;  // from the first byte sent to the last byte read

  std::string header(std::string_view name) const;
  // The body as JSON; null when it is none.
  boost::json::value json() const;
  // A member of the body's object, "a.b" for nested ones; null when missing.
  boost::json::value at(std::string_view path) const;
  std::string text(std::string_view path) const;  // "" when missing or no string
};

// Where to connect: 127.0.0.1:port or a unix socket.
struct Endpoint {
  std::uint16_t port = 0;
  std::string unix_path;
};

// One connection. Bytes in, bytes out; for malformed requests, half-open ones and streams.
class Connection {
 public:
  explicit Connection(const Endpoint& to);
  ~Connection();
  Connection(Connection&& other) noexcept;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  bool send(std::string_view bytes);
  // A whole answer; `head_only` for HEAD.
  Reply read_reply(Seconds deadline, bool head_only = false);
  // The head of an answer; then body pieces as they come (chunk coding removed): nullopt at the
  // end of the body, with `failed()` true when it ended wrongly or the deadline passed.
  Reply read_head(Seconds deadline);
  std::optional<std::string> read_piece(Seconds deadline);
  bool failed() const { return failed_; }
  // Bytes as they come, after the head; nullopt when there are none within the deadline.
  std::optional<std::string> read_some(Seconds deadline);
  // True when the peer closes within the deadline.
  bool closed_by_peer(Seconds deadline);
  void close();

 private:
  bool fill(double until);  // reads more into buffer_
  std::optional<std::string> read_line(double until);
  void read_trailers(double until);

  int fd_ = -1;
  std::string buffer_;
  bool failed_ = false;
  bool body_done_ = false;
  bool chunked_ = false;
  std::optional<std::uint64_t> left_;  // of a body with a length
  Headers trailers_;
};

class Client {
 public:
  Client(Endpoint to, std::string key) : to_(std::move(to)), key_(std::move(key)) {}

  // Each call is its own connection, unless keep() is on.
  Reply request(std::string_view method, std::string_view target, std::string_view body = {},
                const Headers& headers = {}, Seconds deadline = Seconds(120)) const;
  Reply get(std::string_view target) const { return request("GET", target); }
  Reply put(std::string_view target, const boost::json::value& body) const;
  Reply del(std::string_view target) const { return request("DELETE", target); }
  Reply post(std::string_view target, const boost::json::value& body,
             const Headers& headers = {}) const;

  // Sends the request and returns the connection after its head was read into `head`.
  Connection stream(std::string_view target, Reply& head, const Headers& headers = {}) const;

  const Endpoint& endpoint() const { return to_; }
  const std::string& key() const { return key_; }
  // The request as bytes, for tests that send it in pieces.
  std::string raw(std::string_view method, std::string_view target, std::string_view body,
                  const Headers& headers) const;

 private:
  Endpoint to_;
  std::string key_;
};

}  // namespace talon::test
