#pragma once
// A connected byte stream whose kind (TCP, unix, TLS) only stream.cpp knows: the rest of the
// server compiles without asio::ssl. At most one read and one write at a time; both may be
// under way together. A callback is called exactly once, later, on the executor.

#include <boost/system/error_code.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "base/fd.h"
#include "server/async/task.h"

namespace talon::server::http {

class AnyStream {
 public:
  using Done = std::move_only_function<void(const boost::system::error_code&, std::size_t)>;
  virtual ~AnyStream() = default;
  virtual void read_some(char* to, std::size_t size, Done done) = 0;
  virtual void write_some(const char* from, std::size_t size, Done done) = 0;
  // Bytes written without waiting; 0 with `ec` clear when the stream must be waited for.
  virtual std::size_t try_write(const char* from, std::size_t size,
                                boost::system::error_code& ec) = 0;
  // The server's part of what comes before the first byte (TLS); nothing for a plain stream.
  virtual void handshake(Done done) = 0;
  // Says that no more bytes follow (FIN, close_notify).
  virtual void end_writing(Done done) = 0;
  // Ends everything under way with an error.
  virtual void close() = 0;
};

// OpenSSL's server context: TLS 1.2 and newer, one certificate. Shared by the streams made
// from it; a reload makes a new one.
class TlsContext {
 public:
  // PEM files: the chain, leaf first, and its key. Errors: invalid_request naming the file.
  static Result<std::shared_ptr<TlsContext>> load(const std::string& cert_file,
                                                  const std::string& key_file);
  ~TlsContext();
  struct Impl;
  explicit TlsContext(std::unique_ptr<Impl> impl);
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// `socket` is a connected stream socket of `family` (AF_INET, AF_INET6, AF_UNIX); `tls` may be
// null. Errors: io when the reactor does not take the descriptor.
Result<std::unique_ptr<AnyStream>> make_stream(const Executor& ex, UniqueFd socket, int family,
                                               std::shared_ptr<TlsContext> tls);

}  // namespace talon::server::http
