#include "cli/relay.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/terminal.h"

namespace talon::cli {

namespace {

constexpr std::size_t kStdinChunk = wire::kStdinFrame;
// A pipe or terminal that poll() calls writable takes a page without blocking (pipe(7)).
constexpr std::size_t kSafeWrite = 4096;
constexpr std::size_t kFileWrite = 256 * 1024;

bool writable_now(int fd) {
  pollfd item{.fd = fd, .events = POLLOUT, .revents = 0};
  return ::poll(&item, 1, 0) == 1 && item.revents != 0;
}

bool readable_now(int fd) {
  pollfd item{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&item, 1, 0) == 1 && item.revents != 0;
}

std::string stage_text(wire::Stage stage) {
  switch (stage) {
    case wire::Stage::request: return "the request was refused";
    case wire::Stage::user: return "no such user inside (--user)";
    case wire::Stage::cwd: return "the working directory cannot be entered (--cwd)";
    case wire::Stage::log: return "the output log cannot be written";
    case wire::Stage::cgroup: return "its cgroup cannot be made";
    case wire::Stage::pipe: return "its pipes cannot be made";
    case wire::Stage::clone: return "no process could be made";
    case wire::Stage::too_many: return "too many processes run already";
    case wire::Stage::paused: return "the sandbox is paused";
  }
  return "it was refused";
}

}  // namespace

struct Relay::Polled {
  enum Index { signals, init, log, pid, input, out, count };
};

Relay::Relay(isolate::Sandbox& sandbox, int logs, std::string px, Signals& signals,
             RelayOptions options)
    : sandbox_(sandbox),
      logs_(logs),
      px_(std::move(px)),
      signals_(signals),
      options_(options),
      stdin_on_(options.stdin_open),
      throttle_(sandbox.identity().cgroup) {}

Result<wire::ExitInfo> Relay::run() {
  for (;;) {
    TALON_CHECK(receive_events());
    take_signals();
    if (given_up_) {
      return fail(Code::unavailable, "killed at the third signal; its last output may be missing");
    }
    if (log_dirty_ && output_.empty()) {
      TALON_CHECK(read_log());
    }
    write_output();
    if (output_.empty() && exit_) {
      if (write_error_ != 0) {
        return fail_sys(write_error_, "the command's output could not be written");
      }
      if (lost_ > 0) {
        say(std::to_string(lost_) +
            " bytes of output were lost (the disk is full, or it was "
            "read too slowly)");
      }
      return *exit_;
    }
    if (output_.empty() && init_gone_ && !log_dirty_) {
      return fail(Code::internal, "the sandbox ended before its command did: " + gone_reason_);
    }
    if (!log_dirty_ || !output_.empty()) {
      TALON_CHECK(wait());
    }
  }
}

Result<> Relay::receive_events() {
  while (!init_gone_) {
    TALON_TRY(event, sandbox_.receive());
    if (!event) {
      return {};
    }
    TALON_CHECK(handle(*event));
  }
  return {};
}

Result<> Relay::handle(const isolate::Event& event) {
  namespace ev = isolate::event;
  if (const auto* started = std::get_if<ev::Started>(&event); started && started->px == px_) {
    started_ = true;
    log_dirty_ = true;
    for (const int number : std::exchange(early_, {})) {
      pass_signal(number);
    }
  } else if (const auto* failed = std::get_if<ev::ExecFailed>(&event); failed) {
    return fail_sys(failed->error, "the command was not started: " + stage_text(failed->stage));
  } else if (std::holds_alternative<ev::Exited>(event) ||
             std::holds_alternative<ev::Resync>(event)) {
    log_dirty_ = true;
  } else if (const auto* ack = std::get_if<ev::StdinAck>(&event); ack && ack->px == px_) {
    accepted_ = std::max(accepted_, ack->accepted);
    while (!in_flight_.empty() && in_flight_.front() <= accepted_) {
      in_flight_.pop_front();
    }
    if (ack->error != 0) {
      stop_stdin();  // EPIPE: nobody inside reads it any more
    }
  } else if (const auto* closed = std::get_if<ev::Closed>(&event); closed) {
    init_gone_ = true;
    gone_reason_ = closed->reason;
    log_dirty_ = true;
  }
  return {};
}

Result<> Relay::read_log() {
  log_dirty_ = false;
  if (!reader_) {
    auto opened = isolate::LogReader::open(logs_, px_);
    if (!opened) {
      // Before the start there is none; after init's end there never was one.
      return opened.error().code == Code::not_found ? Result<>{} : std::unexpected(opened.error());
    }
    reader_.emplace(std::move(*opened));
  }
  std::vector<isolate::LogEntry> entries;
  TALON_TRY(more, reader_->read(entries));
  log_dirty_ = more;
  throttle_.check(*reader_);
  for (isolate::LogEntry& entry : entries) {
    if (exit_) {
      break;  // what children left behind write later is theirs
    }
    switch (entry.kind) {
      case wire::Kind::out:
      case wire::Kind::tty:
        output_.push_back({.fd = STDOUT_FILENO, .bytes = std::move(entry.bytes)});
        break;
      case wire::Kind::err:
        output_.push_back({.fd = STDERR_FILENO, .bytes = std::move(entry.bytes)});
        break;
      case wire::Kind::lost: lost_ += entry.lost_bytes; break;
      case wire::Kind::exit: exit_ = entry.exit; break;
      case wire::Kind::input:
      case wire::Kind::resize:
      case wire::Kind::end: break;
    }
  }
  return {};
}

void Relay::write_output() {
  while (!output_.empty()) {
    Chunk& chunk = output_.front();
    if (!closed_[chunk.fd] && chunk.at < chunk.bytes.size()) {
      if (!writable_now(chunk.fd)) {
        return;
      }
      write_chunk(chunk);
      continue;
    }
    output_.pop_front();
  }
}

void Relay::write_chunk(Chunk& chunk) {
  struct stat info{};
  const bool file = ::fstat(chunk.fd, &info) == 0 && S_ISREG(info.st_mode);
  const std::size_t size = std::min(chunk.bytes.size() - chunk.at, file ? kFileWrite : kSafeWrite);
  const ssize_t n = S_ISSOCK(info.st_mode) ? ::send(chunk.fd, chunk.bytes.data() + chunk.at, size,
                                                    MSG_DONTWAIT | MSG_NOSIGNAL)
                                           : ::write(chunk.fd, chunk.bytes.data() + chunk.at, size);
  if (n >= 0) {
    chunk.at += static_cast<std::size_t>(n);
  } else if (errno != EINTR && errno != EAGAIN) {
    output_closed(chunk.fd, errno);
  }
}

// Nobody reads our output any more, or the disk behind it is full. The command learns it by
// SIGPIPE, as it would without us, and what it still writes is thrown away.
void Relay::output_closed(int fd, int error) {
  closed_[fd] = true;
  if (error != EPIPE && write_error_ == 0) {
    write_error_ = error;
  }
  if (fd == STDOUT_FILENO && started_ && !exit_) {
    [[maybe_unused]] const auto sent = sandbox_.signal(px_, SIGPIPE, wire::Scope::all);
  }
}

bool Relay::stdin_wanted() const {
  return stdin_on_ && started_ && !stdin_eof_ && pending_.empty() &&
         in_flight_.size() < wire::kStdinFrames - 1 &&  // one is left for the closing frame
         sent_ - accepted_ + kStdinChunk <= wire::kStdinWindow;
}

void Relay::read_stdin() {
  std::array<char, kStdinChunk> buffer;
  const ssize_t n = ::read(STDIN_FILENO, buffer.data(), buffer.size());
  if (n > 0) {
    pending_.assign(buffer.data(), static_cast<std::size_t>(n));
  } else if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
    stdin_eof_ = true;
  }
}

void Relay::send_stdin() {
  if (!stdin_on_ || (pending_.empty() && !stdin_eof_)) {
    return;
  }
  const auto sent = sandbox_.send_stdin(px_, sent_, pending_, stdin_eof_ && pending_.empty());
  send_blocked_ = !sent && sent.error().sys == EAGAIN;
  if (!sent) {
    if (!send_blocked_) {
      stop_stdin();  // init's end shows as an event of its own
    }
    return;
  }
  if (pending_.empty()) {
    stdin_on_ = false;
  }
  sent_ += pending_.size();
  in_flight_.push_back(sent_);
  pending_.clear();
}

void Relay::stop_stdin() {
  stdin_on_ = false;
  send_blocked_ = false;
  pending_.clear();
}

void Relay::take_signals() {
  while (const auto number = signals_.next()) {
    if (!started_) {
      early_.push_back(*number);
    } else {
      pass_signal(*number);
    }
  }
}

void Relay::pass_signal(int number) {
  if (number == SIGWINCH) {
    if (options_.tty) {
      const WindowSize size = window_size(STDOUT_FILENO);
      [[maybe_unused]] const auto sent = sandbox_.resize(px_, size.cols, size.rows);
    }
    return;
  }
  ++endings_;
  throttle_.give_up();  // what is frozen sees no signal
  if (endings_ == 1) {
    // As a terminal would: its keys reach the whole group, kill(1) one process.
    const bool key = number == SIGINT || number == SIGQUIT;
    [[maybe_unused]] const auto sent =
        sandbox_.signal(px_, number, key ? wire::Scope::group : wire::Scope::process);
  } else if (endings_ == 2) {
    [[maybe_unused]] const auto sent = sandbox_.end_exec(px_, Millis{0});
  } else {
    given_up_ = true;  // the caller kills the sandbox
  }
}

Result<> Relay::wait() {
  std::array<pollfd, Polled::count> items;
  const auto set = [&](Polled::Index index, int fd, short events) {
    items[index] = pollfd{.fd = events != 0 ? fd : -1, .events = events, .revents = 0};
  };
  const bool output_waits = !output_.empty();
  set(Polled::signals, signals_.fd(), POLLIN);
  set(Polled::init, init_gone_ ? -1 : sandbox_.init_fd(),
      static_cast<short>(POLLIN | (send_blocked_ ? POLLOUT : 0)));
  // While output waits for its reader nothing more is read from the log, only looked at.
  set(Polled::log, sandbox_.event_fd(), output_waits && throttle_.held() ? 0 : POLLIN);
  set(Polled::pid, init_gone_ ? -1 : sandbox_.pid_fd(), POLLIN);
  set(Polled::input, STDIN_FILENO, stdin_wanted() ? POLLIN : 0);
  set(Polled::out, output_waits ? output_.front().fd : -1, output_waits ? POLLOUT : 0);
  if (::poll(items.data(), items.size(), -1) < 0) {
    return errno == EINTR ? Result<>{} : fail_sys(errno, "poll");
  }
  if (items[Polled::log].revents != 0) {
    std::uint64_t batches = 0;
    [[maybe_unused]] const auto n = ::read(sandbox_.event_fd(), &batches, sizeof batches);
    log_dirty_ = true;
    if (output_waits && reader_) {
      throttle_.check(*reader_);
    }
  }
  if (items[Polled::pid].revents != 0 && items[Polled::init].revents == 0) {
    // Its last frames have all been received: the socket says nothing more.
    init_gone_ = true;
    gone_reason_ = "its init has exited";
    log_dirty_ = true;
  }
  if (items[Polled::input].revents != 0) {
    read_stdin();
  }
  send_stdin();
  // What more is there now goes out before anything is waited for.
  while (stdin_wanted() && readable_now(STDIN_FILENO)) {
    read_stdin();
    send_stdin();
  }
  return {};
}

}  // namespace talon::cli
