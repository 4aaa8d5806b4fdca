#include "support/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

namespace talon::test {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

int connect_to(const Endpoint& to) {
  if (!to.unix_path.empty()) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (to.unix_path.size() >= sizeof(address.sun_path)) {
      return -1;
    }
    std::memcpy(address.sun_path, to.unix_path.c_str(), to.unix_path.size() + 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
      close(fd);
      return -1;
    }
    return fd;
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(to.port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    close(fd);
    return -1;
  }
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  return fd;
}

void parse_field(const std::string& line, Headers& into) {
  const auto colon = line.find(':');
  if (colon == std::string::npos) {
    return;
  }
  auto value = line.substr(colon + 1);
  value.erase(0, value.find_first_not_of(" \t"));
  into.emplace_back(lower(line.substr(0, colon)), value);
}

}  // namespace

std::string Reply::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) {
      return value;
    }
  }
  return {};
}

boost::json::value Reply::json() const {
  boost::system::error_code ec;
  auto value = boost::json::parse(body, ec);
  return ec ? boost::json::value() : value;
}

boost::json::value Reply::at(std::string_view path) const {
  boost::json::value value = json();
  while (!path.empty()) {
    const auto dot = path.find('.');
    const auto name = path.substr(0, dot);
    path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
    const auto* object = value.if_object();
    const auto* member = object ? object->if_contains(name) : nullptr;
    if (!member) {
      return nullptr;
    }
    boost::json::value next = *member;
    value = std::move(next);
  }
  return value;
}

std::string Reply::text(std::string_view path) const {
  const auto value = at(path);
  return value.is_string() ? std::string(value.get_string()) : std::string();
}

Connection::Connection(const Endpoint& to) : fd_(connect_to(to)) {}
Connection::~Connection() { close(); }
Connection::Connection(Connection&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      buffer_(std::move(other.buffer_)),
      failed_(other.failed_),
      body_done_(other.body_done_),
      chunked_(other.chunked_),
      left_(other.left_),
      trailers_(std::move(other.trailers_)) {}

void Connection::close() {
  if (fd_ >= 0) {
    ::close(fd_);
    fd_ = -1;
  }
}

bool Connection::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      return false;
    }
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

bool Connection::fill(double until) {
  for (;;) {
    const double left = until - now();
    if (fd_ < 0 || left <= 0) {
      return false;
    }
    pollfd p{fd_, POLLIN, 0};
    if (poll(&p, 1, static_cast<int>(left * 1000) + 1) <= 0) {
      continue;
    }
    char bytes[65536];
    const auto n = recv(fd_, bytes, sizeof(bytes), 0);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      return false;
    }
    buffer_.append(bytes, static_cast<std::size_t>(n));
    return true;
  }
}

std::optional<std::string> Connection::read_line(double until) {
  std::size_t from = 0;
  for (;;) {
    const auto end = buffer_.find("\r\n", from);
    if (end != std::string::npos) {
      auto line = buffer_.substr(0, end);
      buffer_.erase(0, end + 2);
      return line;
    }
    from = buffer_.empty() ? 0 : buffer_.size() - 1;
    if (!fill(until)) {
      return std::nullopt;
    }
  }
}

Reply Connection::read_head(Seconds deadline) {
  Reply reply;
  const double start = now();
  const double until = start + deadline.count();
  do {  // 1xx answers are skipped
    reply.headers.clear();
    const auto status = read_line(until);
    if (!status || status->size() < 12 || !status->starts_with("HTTP/1.")) {
      reply.status = 0;
      reply.error = status ? "not HTTP: " + *status : "no answer";
      failed_ = true;
      return reply;
    }
    std::from_chars(status->data() + 9, status->data() + 12, reply.status);
    for (;;) {
      const auto line = read_line(until);
      if (!line) {
        reply.status = 0;
        reply.error = "head cut";
        failed_ = true;
        return reply;
      }
      if (line->empty()) {
        break;
      }
      parse_field(*line, reply.headers);
    }
  } while (reply.status >= 100 && reply.status < 200 && reply.status != 101);
  chunked_ = lower(reply.header("transfer-encoding")) == "chunked";
  left_.reset();
  trailers_.clear();
  body_done_ = reply.status == 101 || reply.status == 204 || reply.status == 304;
  if (const auto length = reply.header("content-length"); !chunked_ && !length.empty()) {
    std::uint64_t n = 0;
    std::from_chars(length.data(), length.data() + length.size(), n);
    left_ = n;
    body_done_ = body_done_ || n == 0;
  }
  reply.seconds = now() - start;
  return reply;
}

void Connection::read_trailers(double until) {
  for (;;) {
    const auto line = read_line(until);
    if (!line) {
      failed_ = true;
      return;
    }
    if (line->empty()) {
      return;
    }
    parse_field(*line, trailers_);
  }
}

std::optional<std::string> Connection::read_piece(Seconds deadline) {
  const double until = now() + deadline.count();
  if (body_done_ || failed_) {
    return std::nullopt;
  }
  if (chunked_) {
    const auto line = read_line(until);
    std::uint64_t size = 0;
    if (!line ||
        std::from_chars(line->data(), line->data() + line->size(), size, 16).ec != std::errc()) {
      failed_ = true;
      return std::nullopt;
    }
    if (size == 0) {
      body_done_ = true;
      read_trailers(until);
      return std::nullopt;
    }
    while (buffer_.size() < size + 2) {
      if (!fill(until)) {
        failed_ = true;
        return std::nullopt;
      }
    }
    auto piece = buffer_.substr(0, size);
    buffer_.erase(0, size + 2);
    return piece;
  }
  if (buffer_.empty() && !fill(until)) {
    body_done_ = true;
    failed_ = left_.has_value();  // without a length the end of the connection is the end
    return std::nullopt;
  }
  auto piece =
      buffer_.substr(0, left_ ? std::min<std::uint64_t>(*left_, buffer_.size()) : buffer_.size());
  buffer_.erase(0, piece.size());
  if (left_) {
    *left_ -= piece.size();
    body_done_ = *left_ == 0;
  }
  return piece;
}

Reply Connection::read_reply(Seconds deadline, bool head_only) {
  const double start = now();
  Reply reply = read_head(deadline);
  if (reply.status == 0 || head_only) {
    return reply;
  }
  while (auto piece = read_piece(Seconds(deadline.count() - (now() - start)))) {
    reply.body += *piece;
  }
  if (failed_) {
    reply.error = "body cut after " + std::to_string(reply.body.size()) + " bytes";
    reply.status = 0;
  }
  reply.trailers = trailers_;
  reply.seconds = now() - start;
  return reply;
}

std::optional<std::string> Connection::read_some(Seconds deadline) {
  if (buffer_.empty() && !fill(now() + deadline.count())) {
    return std::nullopt;
  }
  return std::exchange(buffer_, {});
}

bool Connection::closed_by_peer(Seconds deadline) {
  const double until = now() + deadline.count();
  while (fill(until)) {
  }
  return now() < until;
}

std::string Client::raw(std::string_view method, std::string_view target, std::string_view body,
                        const Headers& headers) const {
  std::string text =
      std::string(method) + " " + std::string(target) + " HTTP/1.1\r\nHost: test\r\n";
  if (!key_.empty()) {
    text += "Authorization: Bearer " + key_ + "\r\n";
  }
  for (const auto& [name, value] : headers) {
    text += name + ": " + value + "\r\n";
  }
  if (!body.empty() || method == "POST" || method == "PATCH" || method == "PUT") {
    text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  }
  return text + "\r\n" + std::string(body);
}

Reply Client::request(std::string_view method, std::string_view target, std::string_view body,
                      const Headers& headers, Seconds deadline) const {
  Connection connection(to_);
  if (!connection.open()) {
    Reply reply;
    reply.error = "connect: " + std::string(std::strerror(errno));
    return reply;
  }
  // A server may answer and close before it has read all of a body that is too large; the
  // answer is what counts, so a failed send is no end.
  connection.send(raw(method, target, body, headers));
  return connection.read_reply(deadline, method == "HEAD");
}

Reply Client::put(std::string_view target, const boost::json::value& body) const {
  return request("PUT", target, boost::json::serialize(body),
                 {{"Content-Type", "application/json"}});
}

Reply Client::post(std::string_view target, const boost::json::value& body,
                   const Headers& headers) const {
  Headers all = headers;
  all.emplace_back("Content-Type", "application/json");
  return request("POST", target, boost::json::serialize(body), all);
}

Connection Client::stream(std::string_view target, Reply& head, const Headers& headers) const {
  Connection connection(to_);
  if (connection.open() && connection.send(raw("GET", target, {}, headers))) {
    head = connection.read_head(Seconds(30));
  }
  return connection;
}

}  // namespace talon::test
