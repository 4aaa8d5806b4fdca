#include <boost/asio/post.hpp>

#include <sys/socket.h>

#include <algorithm>
#include <list>

#include "base/id.h"
#include "base/log.h"
#include "server/http/connection.h"
#include "server/http/listener.h"

namespace talon::server::http {

struct Server::Impl : std::enable_shared_from_this<Server::Impl> {
  Impl(const Executor& ex, ServerConfig config, Service& service)
      : shared{ex, std::move(config), service, {}, 0, false},
        group(ex, log_task),
        sweep(ex),
        changed(ex) {
    changed.expires_at(Connection::Clock::time_point::max());
  }

  static void log_task(std::string_view name, const Error& error) {
    log_warn("http_task_failed", {{"task", name}, {"error", error.message}});
  }

  static Task<> accept_loop(std::shared_ptr<Impl> self, Listener& listener);
  static Task<> serve(std::shared_ptr<Impl> self, std::shared_ptr<Connection> connection);
  void admit(UniqueFd fd, const Listener& listener);
  bool make_room();
  void schedule_sweep();
  Millis sweep_period() const;
  Result<std::shared_ptr<TlsContext>> load_tls() const;

  Shared shared;
  TaskGroup group;
  std::vector<std::unique_ptr<Listener>> listeners;
  std::vector<std::string> urls;
  std::shared_ptr<TlsContext> tls;
  std::list<std::shared_ptr<Connection>> connections;  // oldest first
  asio::steady_timer sweep;
  asio::steady_timer changed;  // cancelled when the last connection ends
  bool sweeping = false;
};

namespace {

// For one connection too many: written to the bare socket, best effort, without waiting.
void turn_away(int fd) {
  const std::string id = new_id(IdKind::request);
  const Response response =
      problem(Fault{503, "unavailable", "too many connections; try again", 0}, id);
  HeadPlan plan;
  plan.length = response.body.size();
  plan.close = true;
  plan.request_id = id;
  std::string out;
  append_head(out, response, plan);
  out.append(response.body);
  (void)!::send(fd, out.data(), out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  ::shutdown(fd, SHUT_WR);
}

}  // namespace

// Closes the connection that is missed least: the oldest that never sent a request, else the
// oldest idle one. False if all of them work.
bool Server::Impl::make_room() {
  Connection* victim = nullptr;
  for (const auto& connection : connections) {
    if (!connection->can_evict()) {
      continue;
    }
    if (!connection->served()) {
      victim = connection.get();
      break;
    }
    if (victim == nullptr) {
      victim = connection.get();
    }
  }
  if (victim == nullptr) {
    return false;
  }
  ++shared.counters.refused;
  victim->abort();
  return true;
}

void Server::Impl::admit(UniqueFd fd, const Listener& listener) {
  const bool with_tls = tls != nullptr && listener.family() != AF_UNIX;
  ++shared.counters.accepted;
  if (connections.size() >= shared.config.max_connections && !make_room()) {
    ++shared.counters.refused;
    if (!with_tls) {
      turn_away(fd.get());
    }
    return;
  }
  auto peer = peer_of(fd.get(), listener.family(), with_tls);
  if (!peer) {
    return;  // gone already
  }
  auto stream = make_stream(shared.ex, std::move(fd), listener.family(),
                            with_tls ? tls : std::shared_ptr<TlsContext>{});
  if (!stream) {
    log_warn("http_connection_failed", {{"error", stream.error().message}});
    return;
  }
  auto connection = std::make_shared<Connection>(shared, std::move(*stream), std::move(*peer));
  connection->place = connections.insert(connections.end(), connection);
  ++shared.counters.open;
  group.spawn("http connection", serve(shared_from_this(), std::move(connection)));
  schedule_sweep();
}

Task<> Server::Impl::serve(std::shared_ptr<Impl> self, std::shared_ptr<Connection> connection) {
  struct Leave {
    Impl& impl;
    Connection& connection;
    ~Leave() {
      connection.abort();
      impl.connections.erase(connection.place);
      --impl.shared.counters.open;
      if (impl.connections.empty()) {
        impl.changed.cancel();
      }
    }
  };
  Leave leave{*self, *connection};
  auto served = co_await Connection::serve(connection);
  co_return served;
}

Task<> Server::Impl::accept_loop(std::shared_ptr<Impl> self, Listener& listener) {
  unsigned burst = 0;
  while (!self->shared.stopping) {
    auto fd = co_await listener.accept();
    if (fd) {
      self->admit(std::move(*fd), listener);
      if (++burst % 32 == 0) {  // accept() does not wait while the queue is full
        co_await asio::post(self->shared.ex, asio::use_awaitable);
      }
      continue;
    }
    if (fd.error().code != Code::too_many) {
      break;
    }
    // No descriptor left. The queue keeps the client; a closed idle connection makes room.
    self->make_room();
    auto slept = co_await sleep_for(Millis(50));
    if (!slept) {
      break;
    }
  }
  co_return Result<>{};
}

Millis Server::Impl::sweep_period() const {
  const ServerConfig& c = shared.config;
  const Millis least = std::min({c.header_timeout, c.idle_timeout, c.body_timeout, c.write_timeout,
                                 c.ping_every, c.pong_timeout});
  return std::clamp(least / 8, Millis(5), Millis(1000));
}

// Runs only while there are connections: an idle daemon does not wake.
void Server::Impl::schedule_sweep() {
  if (sweeping || connections.empty()) {
    return;
  }
  sweeping = true;
  sweep.expires_after(sweep_period());
  sweep.async_wait([weak = weak_from_this()](const boost::system::error_code&) {
    const auto self = weak.lock();
    if (!self) {
      return;
    }
    self->sweeping = false;
    const auto now = Connection::Clock::now();
    for (const auto& connection : self->connections) {
      connection->tick(now);
    }
    self->schedule_sweep();
  });
}

Result<std::shared_ptr<TlsContext>> Server::Impl::load_tls() const {
  const ServerConfig& config = shared.config;
  if (config.tls_cert_file.empty() != config.tls_key_file.empty()) {
    return fail(Code::invalid_request, "TLS needs both a certificate and a key file");
  }
  if (config.tls_cert_file.empty()) {
    return std::shared_ptr<TlsContext>{};
  }
  return TlsContext::load(config.tls_cert_file, config.tls_key_file);
}

Server::Server(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() { impl_->sweep.cancel(); }

Result<std::unique_ptr<Server>> Server::open(Executor ex, ServerConfig config, Service& service) {
  auto impl = std::make_shared<Impl>(ex, std::move(config), service);
  TALON_TRY(tls, impl->load_tls());
  impl->tls = std::move(tls);
  for (const ListenAddress& address : impl->shared.config.listen) {
    TALON_TRY(listener, Listener::open(ex, address, impl->shared.config.unix_mode));
    impl->urls.push_back(listener->url(impl->tls != nullptr));
    impl->listeners.push_back(std::move(listener));
  }
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

std::vector<std::string> Server::addresses() const { return impl_->urls; }

void Server::start() {
  for (const auto& listener : impl_->listeners) {
    impl_->group.spawn("http accept", Impl::accept_loop(impl_, *listener));
  }
}

Task<> Server::stop(Millis gentle) {
  auto impl = impl_;
  impl->shared.stopping = true;
  for (const auto& listener : impl->listeners) {
    listener->close();
  }
  const std::vector<std::shared_ptr<Connection>> now(impl->connections.begin(),
                                                     impl->connections.end());
  for (const auto& connection : now) {
    connection->finish_soon();
  }
  const auto until = Connection::Clock::now() + std::max(gentle, Millis(0));
  while (!impl->connections.empty() && Connection::Clock::now() < until) {
    impl->changed.expires_at(until);
    co_await impl->changed.async_wait(kNoThrow);
  }
  const std::vector<std::shared_ptr<Connection>> late(impl->connections.begin(),
                                                      impl->connections.end());
  for (const auto& connection : late) {
    connection->abort();
  }
  auto stopped = co_await impl->group.stop(Millis(1000));
  impl->sweep.cancel();
  co_return stopped;
}

Server::Counters Server::counters() const { return impl_->shared.counters; }

Result<> Server::reload_tls() {
  TALON_TRY(tls, impl_->load_tls());
  impl_->tls = std::move(tls);
  return {};
}

}  // namespace talon::server::http
