#include "client/relay.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace talon::client {

using server::sleep_for;
using server::with_deadline;

namespace {

// A pipe or terminal that poll() calls writable takes a page without blocking (pipe(7)).
constexpr std::size_t kSafeWrite = 4096;
constexpr std::size_t kInputBytes = 64 * 1024;
// Each request with input is a line in talond's audit log, so a write to its disk: what arrives
// meanwhile goes into the next.
constexpr std::size_t kRequestBytes = 1024 * 1024;
// Between the first and the next of the keys that detach.
constexpr Millis kKeyPause{500};
constexpr Millis kPoll{20};
constexpr std::size_t kFrameHead = 13;  // tag, frame, offset (decision 17)
constexpr char kInterrupt = 3;          // Ctrl-C

std::uint64_t big_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (const char byte : bytes) {
    value = value << 8 | static_cast<unsigned char>(byte);
  }
  return value;
}

std::uint64_t number_of(const json::object& object, std::string_view member) {
  const json::value* value = object.if_contains(member);
  return value != nullptr && value->is_number() ? value->to_number<std::uint64_t>() : 0;
}

int our_terminal() { return ::isatty(STDIN_FILENO) == 1 ? STDIN_FILENO : STDOUT_FILENO; }

ssize_t write_some(int fd, std::string_view bytes) {
  const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return n < 0 && errno == ENOTSOCK ? ::write(fd, bytes.data(), bytes.size()) : n;
}

}  // namespace

Relay::Relay(Session& session, cli::Signals& signals, RelayOptions options)
    : session_(session),
      signals_(signals),
      options_(std::move(options)),
      executor_(session.context().get_executor()),
      input_(executor_, STDIN_FILENO, Ready::For::reading),
      output_(executor_, STDOUT_FILENO, Ready::For::writing),
      errors_(executor_, STDERR_FILENO, Ready::For::writing),
      input_changed_(executor_),
      group_(executor_, [](std::string_view, const Error&) {}),
      cursor_(options_.from) {}

Answer<RelayEnd> Relay::run() {
  if (options_.tty && options_.input && ::isatty(STDIN_FILENO) == 1) {
    auto raw = cli::RawTerminal::enter(STDIN_FILENO);
    if (!raw) {
      return std::unexpected(to_failure(raw.error()));
    }
    raw_.emplace(std::move(*raw));
  }
  if (!options_.screen.empty()) {
    [[maybe_unused]] const int printed = print(options_.screen);
  }
  const auto ran = session_.run(all());
  raw_.reset();
  if (failure_) {
    return std::unexpected(*failure_);
  }
  if (!ran) {
    return std::unexpected(to_failure(ran.error()));
  }
  if (write_error_ != 0) {
    return std::unexpected(
        to_failure(fail_sys(write_error_, "the command's output could not be written").error()));
  }
  return end_;
}

Task<> Relay::all() {
  group_.spawn("signals", pass_signals());
  if (options_.input) {
    group_.spawn("input", options_.tty ? type() : read_input());
    if (!options_.tty) {
      group_.spawn("feed", feed());
    }
  }
  auto followed = co_await follow();
  over_ = true;
  if (feeding_) {
    feeding_->cut();
  }
  auto stopped = co_await group_.stop(Millis{0});
  static_cast<void>(stopped);
  co_return followed;
}

// Attaches, and attaches again, until it is over or talond stays away.
Task<> Relay::follow() {
  auto give_up = std::chrono::steady_clock::now() + kPatience;
  bool said = false;
  while (!finished()) {
    auto attached = co_await attach();
    const auto now = std::chrono::steady_clock::now();
    if (finished() || (attached && *attached)) {
      give_up = now + kPatience;
      said = false;
      continue;
    }
    Error error = attached ? fail(Code::unavailable, "talond ends the connection").error()
                           : std::move(attached.error());
    if ((error.code != Code::unavailable && error.code != Code::timeout) || now > give_up) {
      failure_ = to_failure(error);
      failure_->detail +=
          "; the process goes on, see tsb logs " + options_.sandbox + " " + options_.px;
      break;
    }
    if (!std::exchange(said, true)) {
      say("the connection is lost; trying to reach talond again");
    }
    auto slept = co_await sleep_for(kRetryEvery);
    static_cast<void>(slept);
  }
  co_return Result<>{};
}

Task<bool> Relay::attach() {
  auto opened = co_await Connection::open(executor_, session_.address());
  TALON_CO_TRY(connection, std::move(opened));
  std::string target =
      path(options_.tty ? "/pty/" + options_.px : "/processes/" + options_.px + "/attach");
  target += "?from=" + percent_encode(cursor_);
  if (options_.writer) {
    target += options_.steal ? "&write=1&steal=1" : "&write=1";
  }
  Request request;
  request.target = std::move(target);
  auto upgraded = co_await connection->upgrade(std::move(request));
  TALON_CO_TRY(reply, std::move(upgraded));
  if (reply.status == 503) {
    co_return fail(Code::unavailable, "talond is starting or stopping");
  }
  boost::system::error_code ec;
  if (options_.writer && text_of(json::parse(reply.body, ec), "state") == "exited") {
    options_.writer = false;  // nobody types any more; what it wrote can be read
    co_return true;
  }
  if (reply.status != 101) {
    const auto judged = judge(std::move(reply));
    failure_ = judged ? Failure{.code = "internal", .detail = "no WebSocket"} : judged.error();
    co_return false;
  }
  struct Live {
    Connection*& live;
    ~Live() { live = nullptr; }
  } guard{live_};
  live_ = connection.get();
  options_.steal = true;  // the right to type is ours, even if the last connection seems to have it
  send_typed();           // before the controls: the end of input may be one of them
  for (json::object& control : std::exchange(controls_, {})) {
    send_control(std::move(control));
  }
  const auto began = std::chrono::steady_clock::now();
  bool useful = false;
  while (!finished()) {
    auto received = co_await connection->receive();
    useful = useful || std::chrono::steady_clock::now() - began > std::chrono::seconds(5);
    if (!received || received->closed) {
      break;
    }
    useful = useful || received->binary;
    auto taken = co_await take(std::move(*received));
    static_cast<void>(taken);
  }
  co_return useful;
}

Task<> Relay::take(Message message) {
  if (!message.binary) {
    boost::system::error_code ec;
    event(json::parse(message.bytes, ec));
    co_return Result<>{};
  }
  const std::string_view bytes = message.bytes;
  if (bytes.size() < kFrameHead) {
    co_return Result<>{};
  }
  constexpr char kErr = 2;  // wire/log_format.h
  const int fd = bytes[0] == kErr ? STDERR_FILENO : STDOUT_FILENO;
  auto written = co_await write(fd, bytes.substr(kFrameHead));
  cursor_ = std::to_string(big_endian(bytes.substr(1, 8))) + "." +
            std::to_string(big_endian(bytes.substr(9, 4)));
  co_return written;
}

void Relay::event(const json::value& event) {
  const json::object* object = event.if_object();
  if (object == nullptr) {
    return;
  }
  const std::string name = text_of(event, "event");
  if (name == "start" && options_.tty && options_.writer) {
    const auto size = cli::window_size(our_terminal());
    if (number_of(*object, "cols") != size.cols || number_of(*object, "rows") != size.rows) {
      resize();
    }
    if (std::exchange(options_.redraw, false)) {
      send_signal(SIGWINCH, "all");  // ignored by those who draw nothing
    }
  } else if (name == "lost") {
    end_.lost += number_of(*object, "bytes");
  } else if (name == "writer") {
    options_.writer = false;
    say("somebody else types into this terminal now; Ctrl-C leaves it");
  } else if (name == "error") {
    const std::string code = text_of(event, "code");
    if (std::exchange(last_error_, code) != code) {
      say(code + ": " + text_of(event, "detail"));
    }
  } else if (name == "exit") {
    exited(*object);
  } else if (name == "end" && !over_) {
    failure_ = Failure{.code = "internal", .detail = "it is not known how the process ended"};
  }
  if (const std::string cursor = text_of(event, "cursor"); !cursor.empty()) {
    cursor_ = cursor;
  }
}

void Relay::exited(const json::object& result) {
  over_ = true;
  if (const json::value* code = result.if_contains("exit_code"); code && code->is_int64()) {
    end_.exit_code = static_cast<int>(code->as_int64());
  }
  end_.signal = static_cast<int>(number_of(result, "signal"));
  const json::value* timed_out = result.if_contains("timed_out");
  end_.timed_out = timed_out != nullptr && *timed_out == json::value(true);
}

Task<> Relay::write(int fd, std::string_view bytes) {
  Ready& ready = fd == STDOUT_FILENO ? output_ : errors_;
  while (!bytes.empty() && !closed_[fd] && !finished()) {
    auto waited = co_await ready.wait();
    if (!waited) {
      co_return waited;
    }
    const std::size_t most = ready.file() ? bytes.size() : kSafeWrite;
    const ssize_t n = write_some(fd, bytes.substr(0, most));
    if (n >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno != EINTR && errno != EAGAIN) {
      output_closed(fd, errno);
    }
  }
  co_return Result<>{};
}

// Nobody reads our output any more, or the disk behind it is full. The command learns it by
// SIGPIPE, as it would without us, and what it still writes is thrown away.
void Relay::output_closed(int fd, int error) {
  closed_[fd] = true;
  if (options_.tty) {
    end_.left = true;
    leave();
    return;
  }
  if (error != EPIPE && write_error_ == 0) {
    write_error_ = error;
  }
  if (fd == STDOUT_FILENO) {
    send_signal(SIGPIPE, "all");
  }
}

Task<> Relay::pass_signals() {
  server::FdWatch watch(executor_, signals_.fd());
  while (!finished()) {
    while (const auto number = signals_.next()) {
      pass_signal(*number);
    }
    auto woken = co_await watch.readable();
    if (!woken) {
      break;
    }
  }
  co_return Result<>{};
}

void Relay::pass_signal(int number) {
  if (number == SIGWINCH) {
    if (options_.tty && options_.writer) {
      resize();
    }
    return;
  }
  if (options_.leave_at_signals) {
    end_.left = true;
    leave();
    return;
  }
  ++endings_;
  if (endings_ == 1) {
    // As a terminal would: its keys reach the whole group, kill(1) one process.
    const bool key = number == SIGINT || number == SIGQUIT;
    send_signal(number, key ? "group" : "process");
  } else if (endings_ == 2) {
    send_signal(SIGKILL, "all");
  } else {
    failure_ = Failure{.code = "interrupted", .detail = "given up at the third signal"};
    leave();
  }
}

void Relay::send_signal(int number, std::string_view scope) {
  send_control({{"type", "signal"}, {"signal", number}, {"scope", scope}});
}

void Relay::send_control(json::object control) {
  if (live_ != nullptr) {
    live_->send(false, json::serialize(control));
  } else if (control["type"] != "resize") {
    controls_.push_back(std::move(control));  // the size is looked at when it is attached again
  }
}

void Relay::resize() {
  const auto size = cli::window_size(our_terminal());
  send_control({{"type", "resize"}, {"cols", size.cols}, {"rows", size.rows}});
}

// The keyboard of a terminal.
Task<> Relay::type() {
  while (!finished()) {
    Result<> waited;
    if (options_.keys.holding()) {
      waited = co_await with_deadline(input_.wait(), kKeyPause);
      if (!waited && waited.error().code == Code::timeout) {
        typed_ += options_.keys.release();
        send_typed();
        continue;
      }
    } else {
      waited = co_await input_.wait();
    }
    if (!waited) {
      break;
    }
    std::array<char, kSafeWrite> buffer;
    const ssize_t n = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
      continue;
    }
    if (n <= 0) {
      send_control({{"type", "close_stdin"}});
      break;
    }
    const std::string_view keys{buffer.data(), static_cast<std::size_t>(n)};
    typed_ += options_.keys.feed(keys);
    const bool watching = !options_.writer && keys.find(kInterrupt) != std::string_view::npos;
    if (options_.keys.done() || watching) {
      end_.left = true;
      leave();
      break;
    }
    send_typed();
    while (!finished() &&
           (typed_.size() > kInputBytes || (live_ != nullptr && live_->unsent() > kInputBytes))) {
      auto slept = co_await sleep_for(kPoll);
      if (!slept) {
        co_return slept;
      }
    }
  }
  co_return Result<>{};
}

void Relay::send_typed() {
  if (!options_.writer) {
    typed_.clear();
  } else if (live_ != nullptr && !typed_.empty()) {
    live_->send(true, std::string(1, '\0') + std::exchange(typed_, {}));
  }
}

// Standard input without a terminal, as far ahead of the process as one request goes.
Task<> Relay::read_input() {
  std::string buffer(kRequestBytes, '\0');
  while (!finished() && !input_over_) {
    auto waited = co_await input_.wait();
    if (!waited) {
      co_return waited;
    }
    const std::size_t room = kRequestBytes - read_ahead_.size();
    const ssize_t n = ::read(STDIN_FILENO, buffer.data(), room);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
      continue;
    }
    read_ahead_.append(buffer, 0, n > 0 ? static_cast<std::size_t>(n) : 0);
    input_over_ = n <= 0;
    input_changed_.notify_all();
    while (read_ahead_.size() == kRequestBytes) {
      auto taken = co_await input_changed_.wait(input_changed_.version(), kPatience);
      if (!taken && taken.error().code != Code::timeout) {
        co_return taken;
      }
    }
  }
  co_return Result<>{};
}

Task<> Relay::feed() {
  while (!finished()) {
    if (read_ahead_.empty() && !input_over_) {
      auto come = co_await input_changed_.wait(input_changed_.version(), kPatience);
      if (!come && come.error().code != Code::timeout) {
        co_return come;
      }
      continue;
    }
    std::string bytes = std::exchange(read_ahead_, {});
    input_changed_.notify_all();
    auto more = co_await post_input(std::move(bytes), input_over_);
    if (!more || !*more) {
      break;
    }
  }
  co_return Result<>{};
}

// Until the process was given all of it; false when it takes no more.
Task<bool> Relay::post_input(std::string bytes, bool close) {
  while (!finished()) {
    if (!feeding_) {
      auto opened = co_await Connection::open(executor_, session_.address());
      if (opened) {
        feeding_ = std::move(*opened);
      }
    }
    Result<Reply> reply = fail(Code::unavailable, "not connected");
    if (feeding_) {
      Request request;
      request.method = "POST";
      request.target = path("/processes/" + options_.px +
                            "/stdin?offset=" + std::to_string(given_) + (close ? "&close=1" : ""));
      request.headers.emplace_back("Content-Type", "application/octet-stream");
      request.body = bytes;
      reply = co_await feeding_->request(std::move(request));
    }
    if (finished()) {
      break;
    }
    // Without talond it is follow() that gives up.
    if (reply && reply->status != 503) {
      const std::uint64_t before = given_;
      auto taken = input_taken(*reply, bytes, close);
      if (!taken) {
        failure_ = taken.error();
        leave();
        break;
      }
      if (*taken != Taken::part) {
        co_return *taken == Taken::all && !close;
      }
      if (given_ != before) {
        continue;
      }
    } else {
      feeding_.reset();
    }
    auto slept = co_await sleep_for(kRetryEvery);
    if (!slept) {
      co_return std::unexpected(std::move(slept.error()));
    }
  }
  co_return false;
}

// Takes away from `bytes` what the process has.
Answer<Relay::Taken> Relay::input_taken(const Reply& reply, std::string& bytes, bool close) {
  boost::system::error_code ec;
  const json::value answer = json::parse(reply.body, ec);
  if (const auto judged = judge(reply); !judged) {
    if (text_of(answer, "state") == "paused") {
      return Taken::part;  // it is taken when the sandbox goes on
    }
    const bool ended = judged.error().code == "wrong_state" || judged.error().exit == kNoSuchThing;
    return ended ? Answer<Taken>{Taken::none} : std::unexpected(judged.error());
  }
  const json::object* object = answer.if_object();
  const std::uint64_t accepted = object != nullptr ? number_of(*object, "accepted") : 0;
  bytes.erase(0, accepted > given_ ? accepted - given_ : 0);
  given_ = std::max(given_, accepted);
  const json::value* closed = object != nullptr ? object->if_contains("closed") : nullptr;
  const bool is_closed = closed != nullptr && *closed == json::value(true);
  return bytes.empty() && (is_closed || !close) ? Taken::all : Taken::part;
}

void Relay::leave() {
  over_ = true;
  output_.cancel();
  errors_.cancel();
  if (live_ != nullptr) {
    live_->cut();
  }
}

void Relay::say(std::string_view text) const { session_.say(text, raw_ ? "\r\n" : "\n"); }

std::string Relay::path(std::string_view more) const {
  return "/v1/sandboxes/" + percent_encode(options_.sandbox) + std::string{more};
}

}  // namespace talon::client
