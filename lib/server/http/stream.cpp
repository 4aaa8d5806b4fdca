#include "server/http/stream.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl.hpp>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <netinet/in.h>
#include <sys/socket.h>

namespace talon::server::http {

struct TlsContext::Impl {
  Impl() : context(asio::ssl::context::tls_server) {}
  asio::ssl::context context;
};

namespace {

using Socket = asio::generic::stream_protocol::socket;
using ErrorCode = boost::system::error_code;

class PlainStream final : public AnyStream {
 public:
  explicit PlainStream(Socket socket) : socket_(std::move(socket)) {}

  void read_some(char* to, std::size_t size, Done done) override {
    socket_.async_read_some(asio::buffer(to, size), std::move(done));
  }
  void write_some(const char* from, std::size_t size, Done done) override {
    socket_.async_write_some(asio::buffer(from, size), std::move(done));
  }
  std::size_t try_write(const char* from, std::size_t size, ErrorCode& ec) override {
    const std::size_t n = socket_.write_some(asio::buffer(from, size), ec);
    if (ec == asio::error::would_block) {
      ec = {};
      return 0;
    }
    return n;
  }
  void handshake(Done done) override { finish_later(std::move(done)); }
  void end_writing(Done done) override {
    ErrorCode ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
    finish_later(std::move(done));
  }
  void close() override {
    ErrorCode ignored;
    socket_.close(ignored);
  }

 private:
  void finish_later(Done done) {
    asio::post(socket_.get_executor(),
               [done = std::move(done)]() mutable { done(ErrorCode{}, 0); });
  }
  Socket socket_;
};

class TlsStream final : public AnyStream {
 public:
  TlsStream(Socket socket, std::shared_ptr<TlsContext> tls)
      : tls_(std::move(tls)), stream_(std::move(socket), tls_->impl().context) {}

  void read_some(char* to, std::size_t size, Done done) override {
    stream_.async_read_some(asio::buffer(to, size), std::move(done));
  }
  void write_some(const char* from, std::size_t size, Done done) override {
    stream_.async_write_some(asio::buffer(from, size), std::move(done));
  }
  std::size_t try_write(const char*, std::size_t, ErrorCode& ec) override {
    ec = {};
    return 0;  // a record may need a read first; Asio's engine does both
  }
  void handshake(Done done) override {
    stream_.async_handshake(asio::ssl::stream_base::server,
                            [done = std::move(done)](ErrorCode ec) mutable { done(ec, 0); });
  }
  void end_writing(Done done) override {
    stream_.async_shutdown([done = std::move(done)](ErrorCode ec) mutable { done(ec, 0); });
  }
  void close() override {
    ErrorCode ignored;
    stream_.next_layer().close(ignored);
  }

 private:
  std::shared_ptr<TlsContext> tls_;
  asio::ssl::stream<Socket> stream_;
};

// RFC 7301: we speak http/1.1 only. A client that offers only others gets no ALPN answer.
int choose_alpn(SSL*, const unsigned char** out, unsigned char* out_size, const unsigned char* in,
                unsigned in_size, void*) {
  static constexpr unsigned char kOurs[] = "\x08http/1.1";
  unsigned char* chosen = nullptr;
  if (::SSL_select_next_proto(&chosen, out_size, kOurs, sizeof(kOurs) - 1, in, in_size) !=
      OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_NOACK;
  }
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

// A key with a passphrase is an error, not a prompt on the daemon's terminal.
int no_passphrase(char*, int, int, void*) { return 0; }

std::unexpected<Error> tls_error(const std::string& what) {
  char text[256] = "unknown error";
  if (const unsigned long e = ::ERR_get_error(); e != 0) {
    ::ERR_error_string_n(e, text, sizeof(text));
  }
  ::ERR_clear_error();
  return fail(Code::invalid_request, what + ": " + text);
}

}  // namespace

TlsContext::TlsContext(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TlsContext::~TlsContext() = default;

Result<std::shared_ptr<TlsContext>> TlsContext::load(const std::string& cert_file,
                                                     const std::string& key_file) {
  // A static binary must not follow the host's openssl.cnf into dlopen (docs: build.md 1.2).
  ::OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
  ::ERR_clear_error();
  try {
    auto impl = std::make_unique<Impl>();
    SSL_CTX* ctx = impl->context.native_handle();
    if (::SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1) {
      return tls_error("TLS 1.2");
    }
    ::SSL_CTX_set_options(
        ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
    ::SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    ::SSL_CTX_set_alpn_select_cb(ctx, choose_alpn, nullptr);
    ::SSL_CTX_set_default_passwd_cb(ctx, no_passphrase);
    if (::SSL_CTX_use_certificate_chain_file(ctx, cert_file.c_str()) != 1) {
      return tls_error("TLS certificate " + cert_file);
    }
    if (::SSL_CTX_use_PrivateKey_file(ctx, key_file.c_str(), SSL_FILETYPE_PEM) != 1) {
      return tls_error("TLS key " + key_file);
    }
    if (::SSL_CTX_check_private_key(ctx) != 1) {
      return tls_error("TLS key " + key_file + " does not belong to " + cert_file);
    }
    return std::make_shared<TlsContext>(std::move(impl));
  } catch (const std::exception& e) {
    return fail(Code::internal, std::string("TLS: ") + e.what());
  }
}

Result<std::unique_ptr<AnyStream>> make_stream(const Executor& ex, UniqueFd fd, int family,
                                               std::shared_ptr<TlsContext> tls) {
  try {
    Socket socket(ex);
    ErrorCode ec;
    // Registering is all that can fail; the descriptor stays ours then.
    socket.assign(asio::generic::stream_protocol(family, family == AF_UNIX ? 0 : IPPROTO_TCP),
                  fd.get(), ec);
    if (ec) {
      return fail_sys(ec.value(), "watch a connection");
    }
    (void)fd.release();
    socket.non_blocking(true, ec);
    if (ec) {
      return fail_sys(ec.value(), "watch a connection");
    }
    if (tls) {
      return std::make_unique<TlsStream>(std::move(socket), std::move(tls));
    }
    return std::make_unique<PlainStream>(std::move(socket));
  } catch (const std::exception& e) {
    return fail(Code::internal, std::string("connection: ") + e.what());
  }
}

}  // namespace talon::server::http
