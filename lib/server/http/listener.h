#pragma once
// Listening sockets. Made and accepted from by hand, so that every descriptor is close-on-exec
// from its first instant: a spawner may be started at any time.

#include <boost/asio/posix/stream_descriptor.hpp>

#include <sys/stat.h>

#include <memory>
#include <string>

#include "base/fd.h"
#include "server/http/http.h"

namespace talon::server::http {

class Listener {
 public:
  // Binds and listens. A unix socket's stale file is removed if nothing answers on it.
  // Errors: conflict if the address is taken; io; each names the address.
  static Result<std::unique_ptr<Listener>> open(const Executor& ex, const ListenAddress& address,
                                                unsigned unix_mode);
  // Closes, and removes the unix socket's file if it is still the one made here.
  ~Listener();
  void close();

  // The next connection, waiting for it if there is none. Errors: unavailable after close();
  // too_many when descriptors or memory are short (the connection stays queued); io else.
  Task<UniqueFd> accept();

  int family() const { return family_; }
  bool is_open() const { return stream_.is_open(); }
  // "http://127.0.0.1:41234", "https://…", "unix:/path".
  std::string url(bool tls) const;

 private:
  explicit Listener(const Executor& ex) : stream_(ex) {}
  asio::posix::stream_descriptor stream_;
  ListenAddress address_;  // with the port that was chosen
  int family_ = 0;
  struct stat file_{};  // unix: what was made; st_nlink 0 = nothing
};

// Who is at the other end of an accepted socket.
Result<Peer> peer_of(int socket, int family, bool tls);

}  // namespace talon::server::http
