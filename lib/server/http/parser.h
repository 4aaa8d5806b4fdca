#pragma once
// HTTP/1.1 requests from bytes, without I/O. Strict where two parsers could read the same bytes
// differently (RFC 9112 §11.2): a request is refused rather than repaired. HeadParser looks at
// each line as it comes, so a bad one is answered at once and a slow one costs no rescans;
// BodyReader takes the bytes after the head.

#include <cstddef>
#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>

#include "base/limits.h"
#include "server/http/http.h"

namespace talon::server::http {

// Why a request is refused: an HTTP status and the problem's `code` and `detail`. The
// connection ends after it, for what follows in the stream cannot be trusted.
struct Fault {
  int status = 400;
  std::string_view code = "invalid_request";
  std::string detail;
  std::uint64_t limit = 0;  // 0 = none named
};
template <class T = void>
using Parsed = std::expected<T, Fault>;

// How many fields a head may have.
inline constexpr std::size_t kMaxFields = 128;

struct Head {
  Request request;  // without body, peer and id
  bool http10 = false;
  bool keep_alive = true;
  bool expect_continue = false;
  bool chunked = false;
  std::uint64_t content_length = 0;  // 0 also when there is none
  bool has_body() const { return chunked || content_length > 0; }
};

class HeadParser {
 public:
  // `in` is everything received since the last request ended; it only grows between calls.
  // Size of the head in `in` once it is complete, else nullopt.
  Parsed<std::optional<std::size_t>> scan(std::string_view in);
  // The head of `size` bytes that scan() found, parsed. The parser is ready for the next one.
  Parsed<Head> take(std::string_view head);
  // True once a byte of the request line has been seen.
  bool started() const { return started_; }

 private:
  Parsed<> check_partial(std::string_view line) const;

  std::size_t line_ = 0;     // where the unfinished line begins
  std::size_t scanned_ = 0;  // no LF before this
  std::size_t fields_ = 0;
  std::size_t blank_ = 0;  // bytes of empty lines before the request line
  bool started_ = false;
};

// The body of one request: Content-Length or chunked (RFC 9112 §6, §7.1). Chunk extensions and
// trailer fields are checked and dropped.
class BodyReader {
 public:
  BodyReader(const Head& head, std::size_t limit);
  // Takes bytes from the front of `in`, appends content to `body`, returns how many it took.
  // Errors: 413 above `limit`, 400 malformed.
  Parsed<std::size_t> feed(std::string_view in, std::string& body);
  bool done() const { return state_ == State::done; }

 private:
  enum class State { fixed, size, extension, size_lf, data, data_cr, data_lf, trailer, done };
  Parsed<> step(char c);
  Parsed<> end_of_size_line();
  Parsed<> trailer_byte(char c);

  State state_;
  std::size_t limit_;
  std::uint64_t left_ = 0;   // bytes of the body or the chunk still to come
  std::uint64_t chunk_ = 0;  // size being read
  std::size_t digits_ = 0;
  std::size_t overhead_ = 0;  // extension and trailer bytes of the whole body
  std::string trailer_line_;
  std::size_t total_ = 0;
};

}  // namespace talon::server::http
