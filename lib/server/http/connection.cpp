#include "server/http/connection.h"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <utility>

#include "base/id.h"
#include "base/log.h"
#include "server/http/answer.h"
#include "server/http/socket.h"

namespace talon::server::http {

namespace {

constexpr std::size_t kSmallRead = 2 * 1024;  // what a silent connection costs
constexpr std::size_t kLargeRead = 64 * 1024;
// Bytes of later requests kept while one is handled; above it the client waits (and is then
// only noticed to be gone when it is written to).
constexpr std::size_t kPipelined = 64 * 1024;
constexpr std::size_t kBodyStep = 16 * 1024;
// A client that is always ready must not keep the thread from the others.
constexpr std::size_t kYieldBytes = 256 * 1024;
constexpr Millis kLinger{2'000};
constexpr Millis kLingerRefused{10'000};
constexpr std::size_t kLingerBytes = std::size_t{64} << 20;

}  // namespace

Connection::Connection(Shared& shared, std::unique_ptr<AnyStream> stream, Peer peer)
    : shared_(shared),
      stream_(std::move(stream)),
      peer_(std::move(peer)),
      wake_(shared.ex),
      read_want_(kSmallRead) {
  wake_.expires_at(Clock::time_point::max());
  set_deadline(shared_.config.header_timeout);
}

Connection::~Connection() = default;

Task<> Connection::serve(std::shared_ptr<Connection> self) {
  auto ready = co_await self->handshake();
  bool more = ready;
  while (more) {
    more = co_await self->one_request();
  }
  co_await self->linger();
  self->abort();
  // Callbacks hold the connection; the server's state must outlive them.
  while (self->read_pending_ || self->write_pending_) {
    co_await self->wake_.async_wait(kNoThrow);
  }
  co_return Result<>{};
}

void Connection::abort() {
  if (!aborted_) {
    aborted_ = true;
    stream_->close();
    mark_gone();
    wake();
  }
}

void Connection::finish_soon() {
  if (phase_ == Phase::handshake || (phase_ == Phase::idle && in_.empty())) {
    abort();
  }
}

bool Connection::can_evict() const {
  return !aborted_ && (phase_ == Phase::handshake || phase_ == Phase::idle ||
                       phase_ == Phase::head || phase_ == Phase::closing);
}

void Connection::tick(Clock::time_point now) {
  if (aborted_) {
    return;
  }
  if (now >= write_deadline_) {
    abort();
  } else if (now >= deadline_) {
    expired_ = true;
    deadline_ = Clock::time_point::max();
    wake();
  } else if (socket_ != nullptr) {
    socket_->tick(now);
  }
}

void Connection::wake() { wake_.cancel(); }

void Connection::set_deadline(Millis from_now) {
  deadline_ = Clock::now() + from_now;
  expired_ = false;
}

void Connection::clear_deadline() {
  deadline_ = Clock::time_point::max();
  expired_ = false;
}

void Connection::mark_gone() {
  gone_ = true;
  if (!on_gone_) {
    return;
  }
  // Later, so that it never runs inside what its handler is doing; and not after that handler.
  asio::post(shared_.ex, [self = shared_from_this()] {
    if (auto call = std::exchange(self->on_gone_, nullptr)) {
      call();
    }
  });
}

void Connection::start_read() {
  if (read_pending_ || ended_ || aborted_) {
    return;
  }
  if (read_size_ != read_want_) {
    read_buffer_ = std::make_unique_for_overwrite<char[]>(read_want_);
    read_size_ = read_want_;
  }
  read_pending_ = true;
  stream_->read_some(read_buffer_.get(), read_size_,
                     [self = shared_from_this()](const boost::system::error_code& ec,
                                                 std::size_t n) { self->on_read(ec, n); });
}

void Connection::on_read(const boost::system::error_code& ec, std::size_t n) {
  read_pending_ = false;
  if (ec) {
    ended_ = true;
    if (phase_ == Phase::handling) {
      mark_gone();
    }
  } else {
    in_.append(read_buffer_.get(), n);
    if (phase_ == Phase::handling && in_.size() < kPipelined) {
      start_read();
    }
  }
  wake();
}

asio::awaitable<Connection::Got> Connection::fill() {
  const std::size_t before = in_.size();
  for (;;) {
    if (aborted_) {
      co_return Got::aborted;
    }
    if (in_.size() > before) {
      co_return Got::bytes;
    }
    if (ended_) {
      co_return Got::end;
    }
    if (expired_) {
      co_return Got::late;
    }
    start_read();
    co_await wake_.async_wait(kNoThrow);
  }
}

Task<> Connection::write(std::string_view bytes) {
  while (!bytes.empty()) {
    if (aborted_) {
      co_return fail(Code::unavailable, "write: the connection was closed");
    }
    boost::system::error_code ec;
    std::size_t n = stream_->try_write(bytes.data(), bytes.size(), ec);
    if (n > 0) {
      unyielded_ += n;
      if (unyielded_ > kYieldBytes) {
        unyielded_ = 0;
        co_await asio::post(shared_.ex, asio::use_awaitable);
      }
    } else if (!ec) {
      unyielded_ = 0;
      write_deadline_ = Clock::now() + shared_.config.write_timeout;
      write_pending_ = true;
      stream_->write_some(bytes.data(), bytes.size(),
                          [self = shared_from_this(), &n, &ec](
                              const boost::system::error_code& result, std::size_t written) {
                            ec = result;
                            n = written;
                            self->write_pending_ = false;
                            self->wake();
                          });
      while (write_pending_) {  // `bytes` must stay: no way out before the callback
        co_await wake_.async_wait(kNoThrow);
      }
      write_deadline_ = Clock::time_point::max();
    }
    if (ec) {
      mark_gone();
      co_return fail(Code::unavailable, "write: " + ec.message());
    }
    bytes.remove_prefix(n);
  }
  co_return Result<>{};
}

asio::awaitable<bool> Connection::handshake() {
  if (!peer_.tls) {
    co_return true;
  }
  bool ok = false;
  write_pending_ = true;
  stream_->handshake(
      [self = shared_from_this(), &ok](const boost::system::error_code& ec, std::size_t) {
        ok = !ec;
        self->write_pending_ = false;
        self->wake();
      });
  while (write_pending_) {
    if (expired_) {
      abort();
    }
    co_await wake_.async_wait(kNoThrow);
  }
  if (!ok) {
    abort();  // no alert to wait for: the peer does not speak TLS with us
  }
  co_return ok && !aborted_;
}

asio::awaitable<std::optional<Head>> Connection::read_head() {
  phase_ = Phase::idle;
  read_want_ = kSmallRead;
  if (in_.empty() && in_.capacity() > kSmallRead) {
    in_ = std::string{};
  }
  if (served_) {
    set_deadline(in_.empty() ? shared_.config.idle_timeout : shared_.config.header_timeout);
  }
  for (;;) {
    auto size = parser_.scan(in_);
    if (!size) {
      co_await refuse(std::move(size).error());
      co_return std::nullopt;
    }
    if (*size) {
      auto head = parser_.take(std::string_view(in_).substr(0, **size));
      in_.erase(0, **size);
      if (!head) {
        co_await refuse(std::move(head).error());
        co_return std::nullopt;
      }
      co_return std::move(*head);
    }
    if (parser_.started() && phase_ == Phase::idle) {
      phase_ = Phase::head;
      if (served_) {
        set_deadline(shared_.config.header_timeout);
      }
    }
    if (shared_.stopping && phase_ == Phase::idle) {
      co_return std::nullopt;
    }
    const Got got = co_await fill();
    if (got == Got::bytes) {
      continue;
    }
    if (got == Got::late && phase_ == Phase::head) {
      co_await refuse_with(408, "timeout", "the request head did not arrive in time", false);
    } else if (got == Got::end && phase_ == Phase::head) {
      co_await refuse_with(400, "invalid_request", "the request ended in its head", false);
    }
    co_return std::nullopt;
  }
}

asio::awaitable<bool> Connection::read_body(Head& head, Held& held) {
  phase_ = Phase::body;
  std::size_t limit = 0;
  try {
    limit = shared_.service.body_limit(head.request);
  } catch (const std::exception& e) {
    log_error("http_service_threw", {{"error", e.what()}});
  } catch (...) {
    log_error("http_service_threw", {{"error", "unknown exception"}});
  }
  const bool head_only = head.request.method == "HEAD";
  BodyReader reader(head, limit);
  std::string& body = head.request.body;
  std::size_t step = 0;  // bytes since the deadline was set
  bool asked = false;
  set_deadline(shared_.config.body_timeout);
  for (;;) {
    const std::size_t had = body.size();
    auto used = reader.feed(in_, body);
    if (!used) {
      co_await refuse(std::move(used).error(), head_only);
      co_return false;
    }
    in_.erase(0, *used);
    held.add(body.size() - had);
    if (shared_.buffered > shared_.config.max_buffered) {
      co_await refuse_with(503, "unavailable", "too many request bodies at once; try again",
                           head_only);
      co_return false;
    }
    if (reader.done()) {
      co_return true;
    }
    step += *used;
    if (step >= kBodyStep) {
      step = 0;
      set_deadline(shared_.config.body_timeout);
    }
    if (head.expect_continue && !asked && *used == 0) {
      asked = true;
      auto written = co_await write("HTTP/1.1 100 Continue\r\n\r\n");
      if (!written) {
        co_return false;
      }
    }
    read_want_ = kLargeRead;
    const Got got = co_await fill();
    if (got == Got::late) {
      co_await refuse_with(408, "timeout", "the request body did not arrive in time", head_only);
      co_return false;
    }
    if (got == Got::end) {
      co_await refuse_with(400, "invalid_request", "the request ended in its body", head_only);
      co_return false;
    }
    if (got == Got::aborted) {
      co_return false;
    }
  }
}

asio::awaitable<bool> Connection::handle(Head& head) {
  phase_ = Phase::handling;
  clear_deadline();
  gone_ = ended_;
  ++shared_.counters.requests;
  Answer answer(*this, head);
  read_want_ = kSmallRead;
  if (in_.size() < kPipelined) {
    start_read();
  }
  const std::string id = head.request.id;
  std::string failure;
  try {
    auto result = co_await shared_.service.handle(std::move(head.request), answer);
    if (!result) {
      failure = result.error().message;
    }
  } catch (const std::exception& e) {
    failure = e.what();
  } catch (...) {
    failure = "unknown exception";
  }
  on_gone_ = nullptr;
  if (!failure.empty() && !gone_) {
    log_error("http_handler_failed", {{"request", id}, {"error", failure}});
  }
  if (!answer.started()) {
    const Fault fault{500, "internal", "the request could not be handled; see the log for " + id,
                      0};
    auto sent = co_await answer.send(problem(fault, id));
    if (!sent) {
      co_return false;
    }
  }
  if (!answer.complete()) {
    abort();  // a cut stream must look cut
    co_return false;
  }
  co_return !answer.closes();
}

asio::awaitable<bool> Connection::one_request() {
  auto head = co_await read_head();
  if (!head) {
    co_return false;
  }
  served_ = true;
  head->request.peer = peer_;
  head->request.id = new_id(IdKind::request);
  Held held{shared_};
  bool keep = co_await read_body(*head, held);
  if (keep) {
    keep = co_await handle(*head);
  }
  co_return keep && !aborted_;
}

asio::awaitable<void> Connection::refuse(Fault fault, bool head_only) {
  phase_ = Phase::closing;
  refused_ = true;
  clear_deadline();
  const std::string id = new_id(IdKind::request);
  const Response response = problem(fault, id);
  HeadPlan plan;
  plan.length = response.body.size();
  plan.close = true;
  plan.request_id = id;
  std::string out;
  append_head(out, response, plan);
  if (!head_only) {
    out.append(response.body);
  }
  auto written = co_await write(out);
  (void)written;  // the connection ends either way
}

asio::awaitable<void> Connection::refuse_with(int status, std::string_view code,
                                              std::string_view detail, bool head_only) {
  Fault fault;
  fault.status = status;
  fault.code = code;
  fault.detail = detail;
  co_await refuse(std::move(fault), head_only);
}

// Closing a socket with unread bytes resets it, and the reset can overtake the answer
// (RFC 9112 §9.6): so stop sending, then read and drop until the client closes too.
asio::awaitable<void> Connection::linger() {
  phase_ = Phase::closing;
  if (aborted_) {
    co_return;
  }
  bool sent = false;
  stream_->end_writing(
      [self = shared_from_this(), &sent](const boost::system::error_code&, std::size_t) {
        sent = true;
        self->write_pending_ = false;
        self->wake();
      });
  write_pending_ = true;
  set_deadline(refused_ ? kLingerRefused : kLinger);
  read_want_ = kLargeRead;
  std::size_t dropped = 0;
  for (;;) {
    dropped += in_.size();
    in_.clear();
    const Got got = co_await fill();
    if (got != Got::bytes || dropped > kLingerBytes) {
      break;
    }
  }
  while (!sent && !expired_ && !aborted_) {
    co_await wake_.async_wait(kNoThrow);
  }
  abort();
  while (!sent) {
    co_await wake_.async_wait(kNoThrow);
  }
}

}  // namespace talon::server::http
