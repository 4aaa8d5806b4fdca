#include "client/http.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <sys/un.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/websocket.hpp>
#include <boost/beast/websocket/ssl.hpp>
#include <deque>
#include <optional>
#include <type_traits>

namespace talon::client {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
namespace websocket = beast::websocket;
using boost::system::error_code;
using server::kNoThrow;

namespace {

using Plain = beast::basic_stream<asio::generic::stream_protocol>;
using Tls = asio::ssl::stream<Plain>;

constexpr std::chrono::seconds kConnectLimit{10};
// Without a byte from the peer, which answers our pings, for so long: it is gone.
constexpr std::chrono::seconds kSilence{20};
constexpr std::size_t kBodyMax = std::size_t{256} << 20;
constexpr std::size_t kMessageMax = std::size_t{16} << 20;

std::unexpected<Error> lost(const error_code& ec, std::string_view what) {
  const bool late = ec == beast::error::timeout;
  return fail(late ? Code::timeout : Code::unavailable,
              std::string{what} + ": " + (late ? "no answer in time" : ec.message()));
}

template <class Stream>
class ConnectionOf final : public Connection {
 public:
  ConnectionOf(Stream stream, const Address& address)
      : stream_(std::move(stream)), address_(address) {}

  Task<Reply> request(Request request) override {
    const Millis limit = request.limit;
    auto started = co_await start(std::move(request));
    TALON_CO_TRY(reply, std::move(started));
    while (!parser_->is_done()) {
      beast::get_lowest_layer(stream_).expires_after(limit);
      auto read = co_await piece();
      TALON_CO_TRY(bytes, std::move(read));
      reply.body += bytes;
      if (reply.body.size() > kBodyMax) {
        co_return fail(Code::too_large, "the answer is too long");
      }
    }
    co_return std::move(reply);
  }

  Task<Reply> start(Request request) override {
    auto message = make(request);
    beast::get_lowest_layer(stream_).expires_after(request.limit);
    auto [sent, n] = co_await http::async_write(stream_, message, kNoThrow);
    if (sent) {
      co_return lost(sent, "send the request");
    }
    parser_.emplace();
    parser_->body_limit(boost::none);
    auto [ec, m] = co_await http::async_read_header(stream_, buffer_, *parser_, kNoThrow);
    if (ec) {
      co_return lost(ec, "wait for the answer");
    }
    Reply reply{.status = static_cast<int>(parser_->get().result_int()), .body = take_body()};
    beast::get_lowest_layer(stream_).expires_never();
    while (reply.status >= 400 && !parser_->is_done()) {
      beast::get_lowest_layer(stream_).expires_after(request.limit);
      auto read = co_await piece();
      TALON_CO_TRY(bytes, std::move(read));
      reply.body += bytes;
    }
    co_return std::move(reply);
  }

  Task<std::string> more() override {
    beast::get_lowest_layer(stream_).expires_never();
    std::string bytes = take_body();
    while (bytes.empty() && !parser_->is_done()) {
      auto read = co_await piece();
      TALON_CO_TRY(next, std::move(read));
      bytes = std::move(next);
    }
    co_return std::move(bytes);
  }

  Task<Reply> upgrade(Request request) override {
    // The WebSocket has deadlines of its own.
    beast::get_lowest_layer(stream_).expires_never();
    socket_.emplace(stream_);
    socket_->set_option(websocket::stream_base::timeout{
        .handshake_timeout = request.limit, .idle_timeout = kSilence, .keep_alive_pings = true});
    socket_->set_option(websocket::stream_base::decorator(
        [this](websocket::request_type& head) { add_headers(head); }));
    socket_->read_message_max(kMessageMax);
    websocket::response_type answer;
    auto [ec] = co_await socket_->async_handshake(answer, host(), address_.prefix + request.target,
                                                  kNoThrow);
    if (ec == websocket::error::upgrade_declined) {
      co_return Reply{.status = static_cast<int>(answer.result_int()), .body = answer.body()};
    }
    if (ec) {
      co_return lost(ec, "open the WebSocket");
    }
    co_return Reply{.status = 101, .body = {}};
  }

  Task<Message> receive() override {
    auto [ec, n] = co_await socket_->async_read(buffer_, kNoThrow);
    if (ec == websocket::error::closed) {
      co_return Message{.closed = true};
    }
    if (ec) {
      co_return lost(ec, "read from the WebSocket");
    }
    Message message{.binary = socket_->got_binary(),
                    .bytes = beast::buffers_to_string(buffer_.data())};
    buffer_.consume(buffer_.size());
    co_return std::move(message);
  }

  void send(bool binary, std::string bytes) override {
    unsent_ += bytes.size();
    outbox_.push_back({.binary = binary, .bytes = std::move(bytes)});
    if (outbox_.size() == 1) {
      send_first();
    }
  }

  std::size_t unsent() const override { return unsent_; }

  void cut() override { beast::get_lowest_layer(stream_).close(); }

 private:
  std::string host() const {
    if (address_.kind == Address::Kind::unix_socket) {
      return "localhost";
    }
    const bool six = address_.host.find(':') != std::string::npos;
    const bool tls = address_.kind == Address::Kind::tls;
    std::string text = six ? "[" + address_.host + "]" : address_.host;
    return address_.port == (tls ? 443 : 80) ? text : text + ":" + std::to_string(address_.port);
  }

  template <class Head>
  void add_headers(Head& head) const {
    head.set(http::field::user_agent, "tsb/" TALON_VERSION);
    if (!address_.key.empty()) {
      head.set(http::field::authorization, "Bearer " + address_.key);
    }
  }

  http::request<http::string_body> make(Request& request) const {
    http::request<http::string_body> message;
    message.method_string(request.method);
    message.target(address_.prefix + request.target);
    message.version(11);
    message.set(http::field::host, host());
    add_headers(message);
    if (!request.body.empty()) {
      message.set(http::field::content_type, "application/json");
      message.body() = std::move(request.body);
    }
    for (const auto& [name, value] : request.headers) {
      message.set(name, value);
    }
    message.prepare_payload();
    return message;
  }

  Task<std::string> piece() {
    auto [ec, n] = co_await http::async_read_some(stream_, buffer_, *parser_, kNoThrow);
    if (ec) {
      co_return lost(ec, "read the answer");
    }
    co_return take_body();
  }

  // string_body appends to the string that it is given, so taking it away is fine.
  std::string take_body() { return std::exchange(parser_->get().body(), {}); }

  // Nothing is sent after an error: receive() meets it, too.
  void send_first() {
    socket_->binary(outbox_.front().binary);
    socket_->async_write(asio::buffer(outbox_.front().bytes),
                         [this](const error_code& ec, std::size_t) {
                           if (ec) {
                             return;
                           }
                           unsent_ -= outbox_.front().bytes.size();
                           outbox_.pop_front();
                           if (!outbox_.empty()) {
                             send_first();
                           }
                         });
  }

  Stream stream_;
  Address address_;
  beast::flat_buffer buffer_;
  std::optional<http::response_parser<http::string_body>> parser_;
  std::optional<websocket::stream<Stream&>> socket_;
  std::deque<Message> outbox_;
  std::size_t unsent_ = 0;
};

Result<asio::generic::stream_protocol::endpoint> endpoint_of(const Address& address,
                                                             const std::string& host) {
  if (address.kind == Address::Kind::unix_socket) {
    if (host.size() >= sizeof(sockaddr_un::sun_path)) {
      return fail(Code::invalid_request, "the socket's path is longer than 107 bytes: " + host);
    }
    return asio::local::stream_protocol::endpoint(host);
  }
  error_code ec;
  const auto ip = asio::ip::make_address(host, ec);
  if (ec) {
    return fail(Code::invalid_request, "not an address: " + host);
  }
  return asio::ip::tcp::endpoint(ip, address.port);
}

Task<Plain> connect(Executor executor, const Address& address) {
  std::vector<std::string> hosts{address.host};
  if (address.kind != Address::Kind::unix_socket) {
    auto resolved = resolve(address.host);
    TALON_CO_TRY(found, std::move(resolved));
    hosts = std::move(found);
  }
  error_code last;
  for (const std::string& host : hosts) {
    auto made = endpoint_of(address, host);
    TALON_CO_TRY(endpoint, std::move(made));
    Plain stream(executor);
    stream.expires_after(kConnectLimit);
    auto [ec] = co_await stream.async_connect(endpoint, kNoThrow);
    if (!ec) {
      if (address.kind != Address::Kind::unix_socket) {
        // A peer that vanished is noticed in about a minute, while an answer is waited for.
        using boost::asio::detail::socket_option::boolean;
        using boost::asio::detail::socket_option::integer;
        error_code ignored;
        stream.socket().set_option(boolean<IPPROTO_TCP, TCP_NODELAY>(true), ignored);
        stream.socket().set_option(boolean<SOL_SOCKET, SO_KEEPALIVE>(true), ignored);
        stream.socket().set_option(integer<IPPROTO_TCP, TCP_KEEPIDLE>(20), ignored);
        stream.socket().set_option(integer<IPPROTO_TCP, TCP_KEEPINTVL>(10), ignored);
        stream.socket().set_option(integer<IPPROTO_TCP, TCP_KEEPCNT>(4), ignored);
      }
      co_return std::move(stream);
    }
    last = ec;
  }
  co_return fail(Code::unavailable, address.text + " cannot be reached: " + last.message() +
                                        "; is talond running (talond serve)? TALON_URL says "
                                        "where it is");
}

}  // namespace

Task<std::unique_ptr<Connection>> Connection::open(Executor executor, const Address& address) {
  auto connected = co_await connect(executor, address);
  TALON_CO_TRY(plain, std::move(connected));
  if (address.kind != Address::Kind::tls) {
    co_return std::make_unique<ConnectionOf<Plain>>(std::move(plain), address);
  }
  // As in serve: OpenSSL's configuration file could load modules into a static binary.
  OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
  asio::ssl::context context(asio::ssl::context::tls_client);
  error_code ec;
  context.set_default_verify_paths(ec);
  Tls stream(std::move(plain), context);
  // SNI takes names only (RFC 6066 §3); the check of the certificate takes both.
  asio::ip::make_address(address.host, ec);
  if (ec) {
    SSL_set_tlsext_host_name(stream.native_handle(), address.host.c_str());
  }
  stream.set_verify_mode(asio::ssl::verify_peer, ec);
  stream.set_verify_callback(asio::ssl::host_name_verification(address.host), ec);
  beast::get_lowest_layer(stream).expires_after(kConnectLimit);
  auto [failed] = co_await stream.async_handshake(asio::ssl::stream_base::client, kNoThrow);
  if (failed) {
    co_return lost(failed, "TLS with " + address.text);
  }
  co_return std::make_unique<ConnectionOf<Tls>>(std::move(stream), address);
}

}  // namespace talon::client
