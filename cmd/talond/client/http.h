#pragma once
// One connection to talond: HTTP/1.1 requests one after the other, an answer whole or piece by
// piece, or a WebSocket. Hides Beast, OpenSSL and the three ways to connect.

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/address.h"
#include "server/async/task.h"

namespace talon::client {

using server::Executor;
using server::Millis;
using server::Task;

struct Request {
  std::string method = "GET";
  std::string target = {};  // "/v1/sandboxes?limit=10"
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};  // JSON, unless a header says otherwise
  Millis limit{60'000};   // from sending to the head of the answer, then for each piece read whole
};

struct Reply {
  int status = 0;
  std::string body;
};

struct Message {
  bool binary = false;
  std::string bytes = {};
  bool closed = false;  // the peer has ended it; nothing follows
};

// Errors of all calls: unavailable when the connection cannot be made or is lost, timeout; after
// one nothing more can be done with the connection.
class Connection {
 public:
  // Resolves, connects and, for https, checks the certificate against the host's store of
  // authorities (or SSL_CERT_FILE, SSL_CERT_DIR).
  static Task<std::unique_ptr<Connection>> open(Executor executor, const Address& address);
  virtual ~Connection() = default;

  virtual Task<Reply> request(Request request) = 0;
  // Only the head of the answer, if it is a good one; a refusal is read whole. Then more() gives
  // the next bytes of the body, "" at its end, however long they take to come.
  virtual Task<Reply> start(Request request) = 0;
  virtual Task<std::string> more() = 0;
  // 101, or the refusal. Afterwards one reader at a time.
  virtual Task<Reply> upgrade(Request request) = 0;
  virtual Task<Message> receive() = 0;
  // Sent in the order of the calls; an error shows at receive(). unsent(): bytes still here.
  virtual void send(bool binary, std::string bytes) = 0;
  virtual std::size_t unsent() const = 0;
  // Ends whatever waits, now and later, with unavailable.
  virtual void cut() = 0;
};

}  // namespace talon::client
