#include "server/http/answer.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "server/http/grammar.h"

namespace talon::server::http {

namespace {

// Bodies up to this size go out in one piece with their head.
constexpr std::size_t kOnePiece = 32 * 1024;
constexpr std::size_t kChunkBytes = 64 * 1024;

bool has_no_body(int status) { return status == 204 || status == 304; }

std::optional<std::uint64_t> declared_length(const Response& response) {
  for (const auto& [name, value] : response.headers) {
    std::uint64_t n = 0;
    if (equals_ignore_case(name, "content-length") &&
        std::from_chars(value.data(), value.data() + value.size(), n).ec == std::errc{}) {
      return n;
    }
  }
  return std::nullopt;
}

std::unexpected<Error> misuse(const char* what) {
  return fail(Code::internal, std::string("response: ") + what);
}

}  // namespace

Answer::Answer(Connection& connection, const Head& head)
    : connection_(connection),
      head_only_(head.request.method == "HEAD"),
      http10_(head.http10),
      close_(!head.keep_alive),
      id_(head.request.id) {}

bool Answer::gone() const { return connection_.gone_; }

void Answer::on_gone(std::function<void()> wake) {
  connection_.on_gone_ = std::move(wake);
  if (connection_.gone_) {
    connection_.mark_gone();
  }
}

Task<> Answer::flush(std::string_view bytes) {
  auto written = co_await connection_.write(bytes);
  if (!written) {
    state_ = State::broken;
  }
  co_return written;
}

Task<> Answer::send(Response response) {
  if (state_ != State::fresh) {
    co_return misuse("send() after the answer began");
  }
  if (!is_sendable(response)) {
    co_return misuse("a status or header that cannot be sent");
  }
  state_ = State::streaming;
  close_ = close_ || connection_.shared_.stopping;
  HeadPlan plan;
  plan.framing = has_no_body(response.status) ? Framing::none : Framing::length;
  plan.length = response.body.size();
  if (head_only_) {
    // A handler may know the length without having the body.
    plan.length = declared_length(response).value_or(plan.length);
  }
  plan.close = close_;
  plan.request_id = id_;
  append_head(out_, response, plan);
  const bool body = !head_only_ && plan.framing == Framing::length && !response.body.empty();
  const bool one_piece = body && response.body.size() <= kOnePiece;
  if (one_piece) {
    out_.append(response.body);
  }
  auto written = co_await flush(out_);
  if (written && body && !one_piece) {
    written = co_await flush(response.body);
  }
  if (written) {
    state_ = State::complete;
  }
  co_return written;
}

Task<> Answer::start(Response head, std::vector<std::string> trailers) {
  if (state_ != State::fresh) {
    co_return misuse("start() after the answer began");
  }
  if (!is_sendable(head) || !std::all_of(trailers.begin(), trailers.end(), is_token)) {
    co_return misuse("a status or header that cannot be sent");
  }
  state_ = State::streaming;
  close_ = close_ || connection_.shared_.stopping;
  framing_ = http10_ ? Framing::until_close : Framing::chunked;
  HeadPlan plan;
  if (const auto length = declared_length(head)) {
    framing_ = Framing::length;
    left_ = plan.length = *length;
  }
  if (has_no_body(head.status)) {
    framing_ = Framing::none;
  }
  plan.framing = framing_;
  plan.close = close_;
  plan.request_id = id_;
  plan.trailers = &trailers;
  append_head(out_, head, plan);
  auto written = co_await flush(out_);
  if (written && !head.body.empty()) {
    written = co_await write(head.body);
  }
  co_return written;
}

Task<> Answer::write(std::string_view bytes) {
  if (state_ == State::broken) {
    co_return fail(Code::unavailable, "response: the client is gone");
  }
  if (state_ != State::streaming) {
    co_return misuse("write() outside start() and finish()");
  }
  if (framing_ == Framing::none && !bytes.empty()) {
    co_return misuse("a body where the status has none");
  }
  if (framing_ == Framing::length) {
    if (bytes.size() > left_) {
      state_ = State::broken;
      co_return misuse("more bytes than Content-Length");
    }
    left_ -= bytes.size();
  }
  if (bytes.empty() || head_only_) {  // an empty chunk would end the body
    co_return Result<>{};
  }
  if (framing_ == Framing::chunked) {
    auto chunked = co_await write_chunked(bytes);
    co_return chunked;
  }
  auto plain = co_await flush(bytes);
  co_return plain;
}

Task<> Answer::write_chunked(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::string_view part = bytes.substr(0, kChunkBytes);
    char size[24];
    const int n = std::snprintf(size, sizeof(size), "%zx\r\n", part.size());
    out_.assign(size, static_cast<std::size_t>(n));
    out_.append(part).append("\r\n");
    auto written = co_await flush(out_);
    if (!written) {
      co_return written;
    }
    bytes.remove_prefix(part.size());
  }
  co_return Result<>{};
}

Task<> Answer::finish(std::vector<std::pair<std::string, std::string>> trailers) {
  if (state_ == State::broken) {
    co_return fail(Code::unavailable, "response: the client is gone");
  }
  if (state_ != State::streaming) {
    co_return misuse("finish() without start()");
  }
  if (framing_ == Framing::length && left_ != 0 && !head_only_) {
    state_ = State::broken;
    co_return misuse("fewer bytes than Content-Length");
  }
  if (framing_ == Framing::chunked && !head_only_) {
    out_.assign("0\r\n");
    for (const auto& [name, value] : trailers) {
      if (!is_token(name) || !is_field_value(value)) {
        state_ = State::broken;
        co_return misuse("a trailer that cannot be sent");
      }
      out_.append(name).append(": ").append(value).append("\r\n");
    }
    out_.append("\r\n");
    auto written = co_await flush(out_);
    if (!written) {
      co_return written;
    }
  }
  // Without chunks the end of the connection is the end of the body.
  close_ = close_ || framing_ == Framing::until_close;
  state_ = State::complete;
  co_return Result<>{};
}

}  // namespace talon::server::http
