#include <algorithm>

#include "server/http/grammar.h"
#include "server/http/parser.h"

namespace talon::server::http {

namespace {

// Chunk sizes of at most this many digits: no overflow, and zero-padding is bounded.
constexpr std::size_t kSizeDigits = 12;
// Extensions and trailers of one body together. Each costs work and carries nothing that is
// used: this is what a client may spend on them.
constexpr std::size_t kOverheadBytes = 16 * 1024;

std::unexpected<Fault> bad(std::string detail) {
  return std::unexpected(Fault{400, "invalid_request", std::move(detail), 0});
}

std::unexpected<Fault> body_too_large(std::size_t limit) {
  return std::unexpected(Fault{
      413, "too_large",
      "the request body is larger than this call's limit of " + std::to_string(limit) + " bytes",
      limit});
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  const char l = static_cast<char>(c | 0x20);
  return l >= 'a' && l <= 'f' ? l - 'a' + 10 : -1;
}

}  // namespace

BodyReader::BodyReader(const Head& head, std::size_t limit)
    : state_(head.chunked ? State::size : State::fixed), limit_(limit), left_(head.content_length) {
  if (!head.has_body()) {
    state_ = State::done;
  }
}

Parsed<std::size_t> BodyReader::feed(std::string_view in, std::string& body) {
  std::size_t at = 0;
  if (state_ == State::fixed && left_ > limit_) {
    return body_too_large(limit_);
  }
  while (at < in.size() && state_ != State::done) {
    if (state_ != State::fixed && state_ != State::data) {
      if (auto ok = step(in[at]); !ok) {
        return std::unexpected(std::move(ok).error());
      }
      ++at;
      continue;
    }
    const std::size_t n = static_cast<std::size_t>(std::min<std::uint64_t>(left_, in.size() - at));
    body.append(in.substr(at, n));
    at += n;
    left_ -= n;
    if (left_ == 0) {
      state_ = state_ == State::fixed ? State::done : State::data_cr;
    }
  }
  return at;
}

Parsed<> BodyReader::step(char c) {
  switch (state_) {
    case State::size:
      if (const int digit = hex_value(c); digit >= 0) {
        if (++digits_ > kSizeDigits) {
          return bad("malformed chunk size");
        }
        chunk_ = chunk_ * 16 + static_cast<unsigned>(digit);
        return {};
      }
      if (digits_ == 0 || (c != ';' && c != '\r')) {
        return bad("malformed chunk size");
      }
      state_ = c == '\r' ? State::size_lf : State::extension;
      return {};
    case State::extension:
      if (c == '\r') {
        state_ = State::size_lf;
        return {};
      }
      if (++overhead_ > kOverheadBytes || !is_field_value({&c, 1})) {
        return bad("malformed or too long chunk extension");
      }
      return {};
    case State::size_lf: return c == '\n' ? end_of_size_line() : bad("malformed chunk header");
    case State::data_cr:
      state_ = State::data_lf;
      return c == '\r' ? Parsed<>{} : bad("a chunk is longer than its size says");
    case State::data_lf:
      state_ = State::size;
      return c == '\n' ? Parsed<>{} : bad("a chunk is longer than its size says");
    case State::trailer: return trailer_byte(c);
    case State::fixed:
    case State::data:
    case State::done: break;
  }
  return bad("unexpected body byte");
}

Parsed<> BodyReader::end_of_size_line() {
  const std::uint64_t size = std::exchange(chunk_, 0);
  digits_ = 0;
  if (size == 0) {
    state_ = State::trailer;
    return {};
  }
  if (size > limit_ - total_) {
    return body_too_large(limit_);
  }
  total_ += static_cast<std::size_t>(size);
  left_ = size;
  state_ = State::data;
  return {};
}

Parsed<> BodyReader::trailer_byte(char c) {
  if (++overhead_ > kOverheadBytes) {
    return std::unexpected(Fault{431, "too_large", "too many trailer bytes", kOverheadBytes});
  }
  if (c != '\n') {
    trailer_line_.push_back(c);
    return {};
  }
  std::string_view line = trailer_line_;
  if (!line.ends_with('\r')) {
    return bad("a trailer line must end with CR LF");
  }
  line.remove_suffix(1);
  if (line.empty()) {
    state_ = State::done;
    return {};
  }
  const auto colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon)) ||
      !is_field_value(line.substr(colon + 1))) {
    return bad("malformed trailer");
  }
  trailer_line_.clear();
  return {};
}

}  // namespace talon::server::http
