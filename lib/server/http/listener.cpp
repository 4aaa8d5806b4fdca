#include "server/http/listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace talon::server::http {

namespace {

union SocketAddress {
  sockaddr any;
  sockaddr_in four;
  sockaddr_in6 six;
  sockaddr_un local;
};

std::string printed(const ListenAddress& a) {
  if (a.unix_socket) {
    return "unix:" + a.host;
  }
  const bool six = a.host.find(':') != std::string::npos;
  return (six ? "[" + a.host + "]" : a.host) + ":" + std::to_string(a.port);
}

Result<socklen_t> to_native(const ListenAddress& address, SocketAddress& out) {
  std::memset(&out, 0, sizeof(out));
  if (address.unix_socket) {
    if (address.host.size() >= sizeof(out.local.sun_path)) {
      return fail(Code::invalid_request, "listen on " + printed(address) + ": path too long");
    }
    out.local.sun_family = AF_UNIX;
    std::memcpy(out.local.sun_path, address.host.data(), address.host.size());
    return socklen_t{sizeof(sockaddr_un)};
  }
  if (::inet_pton(AF_INET, address.host.c_str(), &out.four.sin_addr) == 1) {
    out.four.sin_family = AF_INET;
    out.four.sin_port = htons(address.port);
    return socklen_t{sizeof(sockaddr_in)};
  }
  if (::inet_pton(AF_INET6, address.host.c_str(), &out.six.sin6_addr) == 1) {
    out.six.sin6_family = AF_INET6;
    out.six.sin6_port = htons(address.port);
    return socklen_t{sizeof(sockaddr_in6)};
  }
  return fail(Code::invalid_request, "listen on " + printed(address) + ": not an address");
}

void set_option(int fd, int level, int name, int value) {
  ::setsockopt(fd, level, name, &value, sizeof(value));
}

// A socket file that nobody listens on is left from a daemon that was killed.
Result<> clear_stale(const ListenAddress& address, const SocketAddress& native, socklen_t size) {
  struct stat st{};
  if (::lstat(address.host.c_str(), &st) != 0) {
    return {};
  }
  if (!S_ISSOCK(st.st_mode)) {
    return fail(Code::conflict, "listen on " + printed(address) + ": the file is not a socket");
  }
  UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe) {
    return fail_sys(errno, "listen on " + printed(address));
  }
  if (::connect(probe.get(), &native.any, size) == 0 || errno != ECONNREFUSED) {
    return fail(Code::conflict,
                "listen on " + printed(address) + ": another process listens there");
  }
  if (::unlink(address.host.c_str()) != 0 && errno != ENOENT) {
    return fail_sys(errno, "listen on " + printed(address) + ": remove the stale socket");
  }
  return {};
}

Result<> bind_and_listen(int fd, const ListenAddress& address, const SocketAddress& native,
                         socklen_t size) {
  if (::bind(fd, &native.any, size) != 0) {
    if (errno == EADDRINUSE) {
      return fail(Code::conflict, "listen on " + printed(address) + ": address already in use");
    }
    return fail_sys(errno, "listen on " + printed(address));
  }
  if (::listen(fd, SOMAXCONN) != 0) {
    return fail_sys(errno, "listen on " + printed(address));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Listener>> Listener::open(const Executor& ex, const ListenAddress& address,
                                                 unsigned unix_mode) {
  SocketAddress native;
  TALON_TRY(size, to_native(address, native));
  const int family = native.any.sa_family;
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) {
    return fail_sys(errno, "listen on " + printed(address));
  }
  if (address.unix_socket) {
    TALON_CHECK(clear_stale(address, native, size));
    // Linux gives the file the socket's own mode less the umask: never wider, not for an instant.
    if (::fchmod(fd.get(), unix_mode) != 0) {
      return fail_sys(errno, "listen on " + printed(address));
    }
  } else {
    set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (family == AF_INET6) {
      set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
    }
  }
  TALON_CHECK(bind_and_listen(fd.get(), address, native, size));

  auto out = std::unique_ptr<Listener>(new Listener(ex));
  out->address_ = address;
  out->family_ = family;
  if (address.unix_socket) {
    if (::lstat(address.host.c_str(), &out->file_) != 0 ||
        ::chmod(address.host.c_str(), unix_mode) != 0) {
      return fail_sys(errno, "listen on " + printed(address));
    }
  } else {
    socklen_t length = sizeof(native);
    if (::getsockname(fd.get(), &native.any, &length) != 0) {
      return fail_sys(errno, "listen on " + printed(address));
    }
    out->address_.port = ntohs(family == AF_INET ? native.four.sin_port : native.six.sin6_port);
  }
  boost::system::error_code ec;
  out->stream_.assign(fd.get(), ec);
  if (ec) {
    return fail_sys(ec.value(), "listen on " + printed(address));
  }
  (void)fd.release();
  return out;
}

Listener::~Listener() { close(); }

void Listener::close() {
  boost::system::error_code ignored;
  if (file_.st_nlink != 0) {
    struct stat now{};
    if (::lstat(address_.host.c_str(), &now) == 0 && now.st_dev == file_.st_dev &&
        now.st_ino == file_.st_ino) {
      ::unlink(address_.host.c_str());
    }
    file_ = {};
  }
  stream_.close(ignored);
}

Task<UniqueFd> Listener::accept() {
  for (;;) {
    if (!stream_.is_open()) {
      co_return fail(Code::unavailable, "accept: closed");
    }
    UniqueFd fd(::accept4(stream_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) {
      if (family_ != AF_UNIX) {
        set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
        set_option(fd.get(), SOL_SOCKET, SO_KEEPALIVE, 1);  // a peer that lost power while we work
      }
      co_return fd;
    }
    const int sys = errno;
    const bool short_of = sys == EMFILE || sys == ENFILE || sys == ENOBUFS || sys == ENOMEM;
    // accept(2) takes the descriptor before it looks at the queue: EMFILE may mean nobody waits.
    pollfd queue{stream_.native_handle(), POLLIN, 0};
    if (short_of && ::poll(&queue, 1, 0) == 1) {
      co_return fail(Code::too_many, std::string("accept: ") + std::strerror(sys));
    }
    if (!short_of && sys != EAGAIN) {
      continue;  // accept(2): pending network errors of that connection; the next may be good
    }
    auto [ec] = co_await stream_.async_wait(asio::posix::stream_descriptor::wait_read, kNoThrow);
    if (ec) {
      co_return fail(Code::unavailable, "accept: closed");
    }
  }
}

std::string Listener::url(bool tls) const {
  if (address_.unix_socket) {
    return printed(address_);
  }
  return (tls ? "https://" : "http://") + printed(address_);
}

Result<Peer> peer_of(int socket, int family, bool tls) {
  Peer peer;
  peer.tls = tls;
  if (family == AF_UNIX) {
    ucred credentials{};
    socklen_t size = sizeof(credentials);
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
      return fail_sys(errno, "peer credentials");
    }
    peer.unix_socket = true;
    peer.uid = credentials.uid;
    peer.pid = credentials.pid;
    peer.address = "unix:uid=" + std::to_string(credentials.uid);
    return peer;
  }
  SocketAddress native;
  socklen_t size = sizeof(native);
  if (::getpeername(socket, &native.any, &size) != 0) {
    return fail_sys(errno, "peer address");
  }
  char text[INET6_ADDRSTRLEN] = "";
  ListenAddress address;
  if (family == AF_INET) {
    ::inet_ntop(AF_INET, &native.four.sin_addr, text, sizeof(text));
    address.port = ntohs(native.four.sin_port);
  } else {
    ::inet_ntop(AF_INET6, &native.six.sin6_addr, text, sizeof(text));
    address.port = ntohs(native.six.sin6_port);
  }
  address.host = text;
  peer.address = printed(address);
  return peer;
}

}  // namespace talon::server::http
