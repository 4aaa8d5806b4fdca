#pragma once
// One client connection: requests one after the other, each read whole (head, then body within
// its limit), handed to the Service, and answered. While a handler runs a read stays under way:
// it notices a client that leaves, and keeps bytes that belong to the next request.
//
// Waiting is on one timer per connection that is only ever cancelled ("wake"): whoever changes
// something wakes, whoever waits looks again. Deadlines are plain time points that the server's
// sweep compares with the clock, so a request costs no timer.

#include <chrono>
#include <list>
#include <memory>
#include <string>

#include "server/http/http.h"
#include "server/http/parser.h"
#include "server/http/response.h"
#include "server/http/stream.h"

namespace talon::server::http {

// What the connections of one server share. Outlives them.
struct Shared {
  Executor ex;
  ServerConfig config;
  Service& service;
  Server::Counters counters;
  std::size_t buffered = 0;  // bytes of request bodies in memory
  bool stopping = false;
};

// The part of Shared::buffered that one request's body takes.
struct Held {
  explicit Held(Shared& s) : shared(s) {}
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() { shared.buffered -= bytes; }
  void add(std::size_t n) {
    bytes += n;
    shared.buffered += n;
  }
  Shared& shared;
  std::size_t bytes = 0;
};

class Socket;

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Phase { handshake, idle, head, body, handling, closing };

  Connection(Shared& shared, std::unique_ptr<AnyStream> stream, Peer peer);
  ~Connection();

  // Serves until either side ends it. Never throws, and fails only for reasons worth a log line.
  static Task<> serve(std::shared_ptr<Connection> self);

  // Ends it now: what is under way fails, the handler sees gone().
  void abort();
  // The server stops: ends it if no request is under way, else after that one.
  void finish_soon();
  // Applies the deadlines.
  void tick(Clock::time_point now);
  // May it be closed to make room? (Nothing of a request is under way but perhaps its head.)
  bool can_evict() const;
  bool served() const { return served_; }
  Phase phase() const { return phase_; }
  std::list<std::shared_ptr<Connection>>::iterator place;  // the server's list

 private:
  friend class Answer;
  friend class Socket;
  enum class Got { bytes, end, late, aborted };

  asio::awaitable<bool> handshake();
  asio::awaitable<bool> one_request();
  asio::awaitable<std::optional<Head>> read_head();
  asio::awaitable<bool> read_body(Head& head, Held& held);
  asio::awaitable<bool> handle(Head& head);
  asio::awaitable<void> refuse(Fault fault, bool head_only = false);
  asio::awaitable<void> refuse_with(int status, std::string_view code, std::string_view detail,
                                    bool head_only);
  asio::awaitable<void> linger();
  asio::awaitable<Got> fill();
  Task<> write(std::string_view bytes);

  void start_read();
  void on_read(const boost::system::error_code& ec, std::size_t n);
  void mark_gone();
  void wake();
  void set_deadline(Millis from_now);
  void clear_deadline();

  Shared& shared_;
  std::unique_ptr<AnyStream> stream_;
  Peer peer_;
  asio::steady_timer wake_;
  Phase phase_ = Phase::handshake;

  HeadParser parser_;
  std::string in_;  // received, not yet consumed
  std::unique_ptr<char[]> read_buffer_;
  std::size_t read_size_ = 0;
  std::size_t read_want_;
  bool read_pending_ = false;
  bool write_pending_ = false;
  bool ended_ = false;  // the client sends no more
  bool aborted_ = false;
  bool expired_ = false;  // the deadline passed
  bool gone_ = false;
  bool served_ = false;       // at least one request was complete
  Socket* socket_ = nullptr;  // once upgraded; lives within handle()
  bool refused_ = false;      // answered without reading all of a request
  std::function<void()> on_gone_;
  Clock::time_point deadline_ = Clock::time_point::max();
  Clock::time_point write_deadline_ = Clock::time_point::max();
  std::size_t unyielded_ = 0;  // bytes written since the last real wait
};

}  // namespace talon::server::http
