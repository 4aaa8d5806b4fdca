#include "client/logs.h"

#include <unistd.h>

#include <thread>

#include "base/fd.h"
#include "server/api/text.h"

namespace talon::client {

namespace {

class LogCopy {
 public:
  LogCopy(Session& session, LogOptions options) : session_(session), options_(std::move(options)) {}

  int run() {
    auto give_up = std::chrono::steady_clock::now();
    bool reached = false;
    bool said = false;
    while (true) {
      const auto read = read_once();
      if (code_) {
        return *code_;
      }
      if (!read && read.error().code != Code::unavailable) {
        return session_.report(to_failure(read.error()));
      }
      const auto now = std::chrono::steady_clock::now();
      if (std::exchange(progress_, false)) {
        reached = true;
        said = false;
        give_up = now + kPatience;
        continue;  // often talond is there again, or was never away
      }
      if (!reached || now > give_up) {
        return session_.report(to_failure(
            read ? fail(Code::unavailable, "the log ended too early").error() : read.error()));
      }
      if (!std::exchange(said, true)) {
        session_.say("the connection is lost; trying to reach talond again");
      }
      std::this_thread::sleep_for(kRetryEvery);
    }
  }

 private:
  std::string target() const {
    std::string text = "/v1/sandboxes/" + percent_encode(options_.sandbox) + "/processes/" +
                       percent_encode(options_.px) +
                       "/logs?follow=" + (options_.follow ? "1" : "0") + options_.query;
    if (!cursor_.empty()) {
      text += "&from=" + percent_encode(cursor_);
    } else if (!options_.tail.empty()) {
      text += "&tail=" + percent_encode(options_.tail);
    }
    return text;
  }

  // One request, to the end of its answer. code_ is set when that is the end of all.
  Result<> read_once() {
    TALON_TRY(connection, session_.run(Connection::open(session_.context().get_executor(),
                                                        session_.address())));
    TALON_TRY(head, session_.run(connection->start(
                        {.target = target(), .headers = {{"Accept", "application/x-ndjson"}}})));
    if (head.status == 503) {
      return fail(Code::unavailable, "talond is starting or stopping");
    }
    if (const auto judged = judge(std::move(head)); !judged) {
      code_ = session_.report(judged.error());
      return {};
    }
    progress_ = true;
    std::string rest;
    while (!code_) {
      TALON_TRY(bytes, session_.run(connection->more()));
      if (bytes.empty()) {
        // A stream that ends without the end of the process was cut by a talond that stops.
        if (!options_.follow || options_.query.find("&until=") != std::string::npos) {
          code_ = 0;
        }
        return {};
      }
      rest += bytes;
      std::size_t begin = 0;
      for (auto end = rest.find('\n'); end != std::string::npos && !code_;
           end = rest.find('\n', begin)) {
        TALON_CHECK(take(std::string_view{rest}.substr(begin, end - begin)));
        begin = end + 1;
      }
      rest.erase(0, begin);
    }
    return {};
  }

  Result<> take(std::string_view line) {
    TALON_TRY(event, parse_event(line));
    cursor_ = event.cursor;
    switch (event.kind) {
      case LogEvent::Kind::out:
      case LogEvent::Kind::tty: write(STDOUT_FILENO, event.bytes); break;
      case LogEvent::Kind::err: write(STDERR_FILENO, event.bytes); break;
      case LogEvent::Kind::lost:
        session_.say(std::to_string(event.lost) + " bytes are no longer kept");
        break;
      case LogEvent::Kind::exit: code_ = options_.follow ? std::optional{0} : code_; break;
      case LogEvent::Kind::other: break;
    }
    return {};
  }

  void write(int fd, const std::string& bytes) {
    const auto written = write_all(fd, bytes);
    if (!written) {
      code_ = written.error().sys == EPIPE ? 0 : session_.report(to_failure(written.error()));
    }
  }

  Session& session_;
  LogOptions options_;
  std::string cursor_;
  std::optional<int> code_;
  bool progress_ = false;  // an answer has come since it was looked at
};

}  // namespace

Result<LogEvent> parse_event(std::string_view line) {
  boost::system::error_code ec;
  const json::value value = json::parse(line, ec);
  const json::object* object = value.if_object();
  if (ec || object == nullptr) {
    return fail(Code::invalid_request, "the log's answer is not talond's");
  }
  LogEvent event;
  event.cursor = text_of(value, "cursor");
  const std::string name = text_of(value, "event");
  event.kind = name == "stdout"   ? LogEvent::Kind::out
               : name == "stderr" ? LogEvent::Kind::err
               : name == "tty"    ? LogEvent::Kind::tty
               : name == "lost"   ? LogEvent::Kind::lost
               : name == "exit"   ? LogEvent::Kind::exit
                                  : LogEvent::Kind::other;
  if (object->contains("base64")) {
    if (!server::api::base64_decode(text_of(value, "base64"), event.bytes)) {
      return fail(Code::invalid_request, "the log's answer is not talond's");
    }
  } else {
    event.bytes = text_of(value, "text");
  }
  if (const json::value* lost = object->if_contains("bytes"); lost && lost->is_number()) {
    event.lost = lost->to_number<std::uint64_t>();
  }
  return event;
}

int copy_log(Session& session, LogOptions options) {
  return LogCopy(session, std::move(options)).run();
}

}  // namespace talon::client
