#pragma once
// A server on loopback with its own I/O thread, a service made for tests, and a blocking client
// that speaks raw bytes. Assertions stay on the test's thread.

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <future>
#include <new>
#include <string>
#include <thread>

#include "base/fd.h"
#include "server/http/http.h"
#include "server/http/websocket.h"

namespace talon::test {

using namespace talon::server;
using namespace std::chrono_literals;

// Runs a coroutine on `io` (which another thread runs) and waits for its result.
template <class T>
Result<T> run_on(asio::io_context& io, Task<T> task) {
  std::promise<Result<T>> promise;
  auto future = promise.get_future();
  asio::co_spawn(io, std::move(task), [&promise](const std::exception_ptr& e, Result<T> result) {
    promise.set_value(e ? Result<T>(fail(Code::internal, "exception")) : std::move(result));
  });
  return future.get();
}

class IoThread {
 public:
  IoThread() : guard_(asio::make_work_guard(io)), thread_([this] { io.run(); }) {}
  ~IoThread() {
    guard_.reset();
    thread_.join();
  }
  template <class F>
  auto call(F f) {
    std::packaged_task<decltype(f())()> job(std::move(f));
    auto future = job.get_future();
    asio::post(io, [&job] { job(); });
    return future.get();
  }
  asio::io_context io{1};

 private:
  asio::executor_work_guard<asio::io_context::executor_type> guard_;
  std::thread thread_;
};

// Paths say what happens; see handle().
class TestService final : public http::Service {
 public:
  explicit TestService(const Executor& ex) : changed(ex) {}

  std::size_t body_limit(const http::Request& head) override {
    if (head.path == "/limit-throws") {
      throw std::runtime_error("limit");
    }
    return head.path == "/ten" ? 10 : std::size_t{1} << 20;
  }

  Task<> handle(http::Request request, http::Responder& out) override {
    ++handled;
    if (request.path == "/stream") {
      auto done = co_await stream(std::move(request), out);
      co_return done;
    }
    if (request.path == "/wait") {
      auto done = co_await wait(out);
      co_return done;
    }
    if (request.path.starts_with("/ws")) {
      auto done = co_await socket(std::move(request), out);
      co_return done;
    }
    if (request.path == "/throw") {
      throw std::bad_alloc();
    }
    if (request.path == "/fail") {
      co_return fail(Code::io, "secret detail");
    }
    if (request.path == "/nothing") {
      co_return Result<>{};
    }
    http::Response response;
    response.content_type = "text/plain";
    response.body = "ok";
    if (request.path == "/echo" || request.path == "/ten") {
      response.body = request.method + " " + request.target + " " + request.body;
    } else if (request.path == "/big") {
      response.body.assign(std::size_t{4} << 20, 'b');
    } else if (request.path == "/empty") {
      response.status = 204;
      response.body.clear();
    } else if (request.path == "/inject") {
      response.headers.emplace_back("X-A", "b\r\nSet-Cookie: c");
    } else if (request.path == "/peer") {
      response.body = request.peer.address + " " + std::to_string(request.peer.unix_socket) + " " +
                      std::to_string(request.peer.uid) + " " + std::to_string(request.peer.pid) +
                      " " + std::to_string(request.peer.tls);
    }
    auto sent = co_await out.send(std::move(response));
    co_return sent;
  }

  Task<> stream(http::Request request, http::Responder& out) {
    const bool cut = request.query == "cut";
    const bool endless = request.query == "endless";
    http::Response head;
    head.content_type = "text/plain";
    if (request.query == "length") {
      head.headers.emplace_back("Content-Length", "10");
    }
    std::vector<std::string> names{"Talon-Cursor"};
    auto begun = co_await out.start(std::move(head), std::move(names));
    if (!begun) {
      co_return begun;
    }
    const std::string block(endless ? 64 * 1024 : 5, 's');
    for (int i = 0; i < 2 || endless; ++i) {
      auto written = co_await out.write(block);
      if (!written) {
        stream_ended = true;
        co_return written;
      }
      streamed += block.size();
    }
    if (cut) {
      co_return Result<>{};
    }
    std::vector<std::pair<std::string, std::string>> trailers{{"Talon-Cursor", "7.0"}};
    auto finished = co_await out.finish(std::move(trailers));
    co_return finished;
  }

  // Echoes messages. /ws-flood sends without end, /ws-deaf does not receive, /ws-stalled says so.
  Task<> socket(http::Request request, http::Responder& out) {
    if (auto refused = http::refuse_upgrade(request)) {
      auto sent = co_await out.send(std::move(*refused));
      co_return sent;
    }
    auto upgraded = co_await out.upgrade(request, {.window = 64 * 1024, .protocol = "talon.v1"});
    if (!upgraded) {
      co_return std::unexpected(std::move(upgraded.error()));
    }
    const std::shared_ptr<http::WebSocket> ws = *upgraded;
    if (request.path == "/ws-flood") {
      auto flooded = co_await flood(ws);
      co_return flooded;
    }
    ws->stalled(request.path == "/ws-stalled");
    while (request.path == "/ws-stalled") {
      auto sent = co_await ws->send("");
      if (!sent) {
        break;
      }
      auto woken = co_await changed.wait(changed.version(), 20ms);
      (void)woken;
    }
    while (request.path == "/ws-deaf" && !released) {
      auto woken = co_await changed.wait(changed.version(), 30s);
      if (!woken) {
        break;
      }
    }
    while (true) {
      auto got = co_await ws->receive();
      if (!got) {
        break;
      }
      received += got->bytes.size();
      if (request.path == "/ws-bye") {
        auto closed = co_await ws->close(4000, "enough");
        (void)closed;
        break;
      }
      const auto op = got->text ? http::WsOp::text : http::WsOp::binary;
      std::string frames;
      http::append_ws_frame(frames, op, std::string{got->first ? 'F' : '-', got->last ? 'L' : '-'},
                            got->bytes);
      auto sent = co_await ws->send(frames);
      if (!sent) {
        break;
      }
    }
    ++sockets_ended;
    co_return Result<>{};
  }

  static Task<> receive_all(std::shared_ptr<http::WebSocket> ws) {
    while (!ws->over()) {
      auto got = co_await ws->receive();
      (void)got;
    }
    ws->shut();
    co_return Result<>{};
  }

  Task<> flood(std::shared_ptr<http::WebSocket> ws) {
    auto ex = co_await asio::this_coro::executor;
    TaskGroup group(ex, [](std::string_view, const Error&) {});
    group.spawn("receive", receive_all(ws));
    std::string frames;
    http::append_ws_frame(frames, http::WsOp::binary, std::string(8192, 'f'));
    Result<> sent;
    while (sent) {
      sent = co_await ws->send(frames);
      streamed += sent ? 8192 : 0;
    }
    ws->shut();
    auto stopped = co_await group.stop(100ms);
    (void)stopped;
    stream_ended = true;
    co_return Result<>{};
  }

  Task<> wait(http::Responder& out) {
    waiting = true;
    out.on_gone([this] { changed.notify_all(); });
    while (!out.gone() && !released) {
      auto woken = co_await changed.wait(changed.version(), 30s);
      if (!woken) {
        wait_error = woken.error().code;
        break;
      }
    }
    saw_gone = out.gone();
    http::Response response;
    response.content_type = "text/plain";
    response.body = released ? "released" : "gave up";
    auto sent = co_await out.send(std::move(response));
    waiting = false;
    co_return sent;
  }

  Notifier changed;
  std::atomic<int> handled = 0;
  std::atomic<bool> waiting = false;
  std::atomic<bool> released = false;
  std::atomic<bool> saw_gone = false;
  std::atomic<bool> stream_ended = false;
  std::atomic<std::size_t> streamed = 0;
  std::atomic<std::size_t> received = 0;
  std::atomic<int> sockets_ended = 0;
  std::atomic<Code> wait_error = Code::internal;
};

// Waits until `condition` holds; false after 10 s.
template <class F>
bool eventually(F condition) {
  const auto until = std::chrono::steady_clock::now() + 10s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) {
      return false;
    }
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

class Lab {
 public:
  explicit Lab(http::ServerConfig config = {}) : service(thread_.io.get_executor()) {
    if (config.listen.empty()) {
      config.listen.push_back(*http::parse_listen("127.0.0.1:0"));
    }
    opened = thread_.call([&] {
      auto made = http::Server::open(thread_.io.get_executor(), std::move(config), service);
      if (!made) {
        error = made.error();
        return false;
      }
      server = std::move(*made);
      server->start();
      return true;
    });
  }
  ~Lab() {
    if (server) {
      stop(0ms);
      thread_.call([&] { server.reset(); });
    }
  }
  void stop(Millis gentle) { (void)run_on<void>(thread_.io, server->stop(gentle)); }
  std::future<void> stop_later(Millis gentle) {
    return std::async(std::launch::async, [this, gentle] { stop(gentle); });
  }
  http::Server::Counters counters() {
    return thread_.call([&] { return server->counters(); });
  }
  std::uint16_t port() const {
    const std::string url = server->addresses().at(0);
    return static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));
  }
  void release() {
    service.released = true;
    thread_.call([&] { service.changed.notify_all(); });
  }
  template <class F>
  auto call(F f) {
    return thread_.call(std::move(f));
  }

 private:
  IoThread thread_;

 public:
  TestService service;
  std::unique_ptr<http::Server> server;
  bool opened = false;
  Error error;
};

struct Reply {
  int status = 0;
  std::string head;
  std::string body;
  std::string trailers;
  bool has(std::string_view text) const { return head.find(text) != std::string::npos; }
};

class Client {
 public:
  explicit Client(const Lab& lab) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(lab.port());
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected = ::connect(fd_.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0;
    const int on = 1;  // pieces are sent as they are
    ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    set_timeout();
  }
  explicit Client(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    std::memcpy(to.sun_path, path.data(), path.size());
    connected = ::connect(fd_.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0;
    set_timeout();
  }

  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) {
        return false;
      }
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }
  void end_sending() { ::shutdown(fd_.get(), SHUT_WR); }
  void close() { fd_.reset(); }
  int fd() const { return fd_.get(); }

  // Reads until `buffer` holds more; false at the end, an error or 10 s of silence.
  bool more() {
    char chunk[65536];
    const ssize_t n = ::recv(fd_.get(), chunk, sizeof(chunk), 0);
    if (n <= 0) {
      end_errno = n < 0 ? errno : 0;
      return false;
    }
    buffer.append(chunk, static_cast<std::size_t>(n));
    return true;
  }
  // Everything until the server closes. `closed` tells that it did (not a time-out).
  std::string rest() {
    while (more()) {
    }
    closed = end_errno == 0;
    return std::move(buffer);
  }
  // One response; status 0 if there is none.
  Reply reply(bool to_head = false) {
    Reply out;
    std::size_t end = 0;
    while ((end = buffer.find("\r\n\r\n")) == std::string::npos) {
      if (!more()) {
        return out;
      }
    }
    out.head = buffer.substr(0, end + 2);
    buffer.erase(0, end + 4);
    out.status = std::stoi(out.head.substr(9, 3));
    if (to_head || out.status == 204 || out.status == 100) {
      return out;
    }
    if (const auto at = out.head.find("Content-Length: "); at != std::string::npos) {
      const auto length = static_cast<std::size_t>(std::stoul(out.head.substr(at + 16)));
      while (buffer.size() < length && more()) {
      }
      out.body = buffer.substr(0, length);
      buffer.erase(0, length);
    } else if (out.has("Transfer-Encoding: chunked")) {
      read_chunks(out);
    } else {
      out.body = rest();
    }
    return out;
  }
  Reply ask(std::string_view bytes) {
    send(bytes);
    return reply();
  }

  std::string buffer;
  bool connected = false;
  bool closed = false;
  int end_errno = 0;

 private:
  void set_timeout() {
    timeval t{10, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
  }
  bool line(std::string& out) {
    std::size_t end = 0;
    while ((end = buffer.find("\r\n")) == std::string::npos) {
      if (!more()) {
        return false;
      }
    }
    out = buffer.substr(0, end);
    buffer.erase(0, end + 2);
    return true;
  }
  void read_chunks(Reply& out) {
    std::string text;
    while (line(text)) {
      const std::size_t size = std::stoul(text, nullptr, 16);
      if (size == 0) {
        while (line(text) && !text.empty()) {
          out.trailers += text + "\n";
        }
        return;
      }
      while (buffer.size() < size + 2 && more()) {
      }
      out.body += buffer.substr(0, size);
      buffer.erase(0, size + 2);
    }
    out.status = 0;  // cut
  }
  UniqueFd fd_;
};

inline std::string get(std::string_view path, std::string_view more = "") {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: t\r\n" + std::string(more) + "\r\n";
}

}  // namespace talon::test
