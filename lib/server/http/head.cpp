// The head of a request. The lines are checked here, by the strict grammar; Beast's parser then
// reads the complete block. It is never given an unfinished message: its chunk parser asserts on
// some splits ("0\r\n" then one byte), which a client chooses.

#include <boost/beast/http/basic_parser.hpp>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "server/http/grammar.h"
#include "server/http/parser.h"

namespace talon::server::http {

namespace {

namespace beast = boost::beast;
using BeastError = beast::error_code;

constexpr std::size_t kMethodBytes = 32;
constexpr std::size_t kVersionBytes = 8;  // "HTTP/1.1"

std::unexpected<Fault> bad(std::string detail) {
  return std::unexpected(Fault{400, "invalid_request", std::move(detail), 0});
}

std::unexpected<Fault> target_too_long() {
  return std::unexpected(
      Fault{414, "too_large",
            "the request target is longer than " + std::to_string(limits::kTargetBytes) + " bytes",
            limits::kTargetBytes});
}

std::unexpected<Fault> head_too_large() {
  return std::unexpected(
      Fault{431, "too_large",
            "the request head is larger than " + std::to_string(limits::kHeaderBytes) + " bytes",
            limits::kHeaderBytes});
}

Parsed<> check_version(std::string_view version) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  if (version.size() != kVersionBytes || !version.starts_with("HTTP/") || !digit(version[5]) ||
      version[6] != '.' || !digit(version[7])) {
    return bad("the request line must end with HTTP/1.1");
  }
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    return std::unexpected(Fault{505, "invalid_request", "only HTTP/1.1 and HTTP/1.0", 0});
  }
  return {};
}

Parsed<> check_request_line(std::string_view line) {
  const auto first = line.find(' ');
  const auto last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) {
    return bad("the request line must be METHOD TARGET HTTP/1.1");
  }
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  if (!is_token(method) || method.size() > kMethodBytes) {
    return bad("malformed method");
  }
  if (target.size() > limits::kTargetBytes) {
    return target_too_long();
  }
  if (auto ok = check_version(line.substr(last + 1)); !ok) {
    return ok;
  }
  // Origin form, or * for OPTIONS. Absolute and authority forms are for proxies; refusing them
  // leaves one place, Host, that names the authority.
  if (!(target.starts_with('/') || (target == "*" && method == "OPTIONS"))) {
    return bad("the request target must begin with /");
  }
  if (!std::all_of(target.begin(), target.end(),
                   [](char c) { return c > 0x20 && c < 0x7f && c != '#'; })) {
    return bad("the request target has a character that must be percent-encoded");
  }
  return {};
}

Parsed<> check_field_line(std::string_view line) {
  if (line.front() == ' ' || line.front() == '\t') {
    return bad("folded header lines are not accepted");
  }
  const auto colon = line.find(':');
  // is_token also refuses a space before the colon (RFC 9112 §5.1).
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) {
    return bad("malformed header name");
  }
  if (!is_field_value(line.substr(colon + 1))) {
    return bad("control character in a header value");
  }
  return {};
}

// Collects what Beast reads. Only the head: bodies are BodyReader's.
class Collector final : public beast::http::basic_parser<true> {
 public:
  explicit Collector(Head& head) : head_(head) {
    header_limit(static_cast<std::uint32_t>(limits::kHeaderBytes + 16));
    body_limit(boost::none);
  }

 private:
  void on_request_impl(beast::http::verb, beast::string_view method, beast::string_view target,
                       int version, BeastError&) override {
    head_.request.method.assign(method.data(), method.size());
    head_.request.target.assign(target.data(), target.size());
    head_.http10 = version == 10;
  }
  void on_response_impl(int, beast::string_view, int, BeastError&) override {}
  void on_field_impl(beast::http::field, beast::string_view name, beast::string_view value,
                     BeastError&) override {
    head_.request.headers.emplace_back(to_lower({name.data(), name.size()}),
                                       std::string(value.data(), value.size()));
  }
  void on_header_impl(BeastError&) override {}
  void on_body_init_impl(const boost::optional<std::uint64_t>&, BeastError&) override {}
  std::size_t on_body_impl(beast::string_view, BeastError&) override { return 0; }
  void on_chunk_header_impl(std::uint64_t, beast::string_view, BeastError&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, beast::string_view, BeastError&) override {
    return 0;
  }
  void on_finish_impl(BeastError&) override {}

  Head& head_;
};

// RFC 9112 §6.3, without its permissions to repair.
Parsed<> read_framing(Head& head) {
  const Request& request = head.request;
  const std::size_t lengths = request.count("content-length");
  const std::size_t codings = request.count("transfer-encoding");
  if (lengths > 1) {
    return bad("more than one Content-Length");
  }
  if (lengths == 1 && codings > 0) {
    return bad("both Content-Length and Transfer-Encoding");
  }
  if (codings > 0) {
    if (head.http10) {
      return bad("Transfer-Encoding in an HTTP/1.0 request");
    }
    if (codings > 1 || !equals_ignore_case(request.header("transfer-encoding"), "chunked")) {
      return std::unexpected(
          Fault{501, "not_supported_yet", "the only Transfer-Encoding understood is chunked", 0});
    }
    head.chunked = true;
  }
  if (lengths == 1) {
    const std::string_view text = request.header("content-length");
    const char* end = text.data() + text.size();
    auto [at, ec] = std::from_chars(text.data(), end, head.content_length);
    if (text.empty() || at != end || ec != std::errc{} || text.size() > 18) {
      return bad("malformed Content-Length");
    }
  }
  return {};
}

Parsed<> read_host(const Head& head) {
  const std::size_t hosts = head.request.count("host");
  if (hosts > 1 || (hosts == 0 && !head.http10)) {
    return bad(hosts > 1 ? "more than one Host" : "Host is missing");
  }
  const std::string_view host = head.request.header("host");
  if (!std::all_of(host.begin(), host.end(), [](char c) {
        return c > 0x20 && c < 0x7f && std::strchr("/\\?#@,<>\"", c) == nullptr;
      })) {
    return bad("malformed Host");
  }
  return {};
}

Parsed<> read_options(Head& head) {
  bool close = head.http10;  // no keep-alive for HTTP/1.0: its clients do not need it
  for (const auto& [name, value] : head.request.headers) {
    if (name == "connection" && list_has(value, "close")) {
      close = true;
    }
  }
  head.keep_alive = !close;
  if (head.request.count("expect") > 0 && !head.http10) {
    if (!equals_ignore_case(head.request.header("expect"), "100-continue") ||
        head.request.count("expect") > 1) {
      return std::unexpected(Fault{417, "invalid_request", "unknown Expect", 0});
    }
    head.expect_continue = true;
  }
  return {};
}

}  // namespace

// What can be refused in a request line before its end: a client that is no HTTP client, or a
// target that only grows. `line` may end with the CR.
Parsed<> HeadParser::check_partial(std::string_view line) const {
  if (fields_ != 0) {
    return {};
  }
  const auto space = line.find(' ');
  std::string_view method = line.substr(0, space);
  if (space == std::string_view::npos && method.ends_with('\r')) {
    method.remove_suffix(1);  // perhaps an empty line
  }
  if (method.size() > kMethodBytes || !(method.empty() || is_token(method))) {
    return bad("malformed method");
  }
  if (space != std::string_view::npos &&
      line.size() - space - 1 > limits::kTargetBytes + 1 + kVersionBytes + 1) {
    return target_too_long();
  }
  return {};
}

// The order of the checks makes the answer independent of how the bytes were split.
Parsed<std::optional<std::size_t>> HeadParser::scan(std::string_view in) {
  for (;;) {
    const auto lf = in.find('\n', scanned_);
    const bool complete = lf != std::string_view::npos;
    const std::size_t end = complete ? lf + 1 : in.size();
    if (auto ok = check_partial(in.substr(line_, (complete ? lf : end) - line_)); !ok) {
      return std::unexpected(std::move(ok).error());
    }
    if (end - blank_ > limits::kHeaderBytes) {
      return head_too_large();
    }
    scanned_ = end;
    if (!complete) {
      started_ = started_ || end > line_;
      return std::nullopt;
    }
    if (lf == line_ || in[lf - 1] != '\r') {
      return bad("a line must end with CR LF");
    }
    const std::string_view line = in.substr(line_, lf - 1 - line_);
    line_ = end;
    if (line.empty() && fields_ == 0) {
      // RFC 9112 §2.2: an empty line before the request line is to be ignored. Two are enough.
      blank_ += 2;
      if (blank_ > 4) {
        return bad("empty lines instead of a request");
      }
      continue;
    }
    started_ = true;
    if (line.empty()) {
      return end;
    }
    auto ok = fields_ == 0 ? check_request_line(line) : check_field_line(line);
    if (!ok) {
      return std::unexpected(std::move(ok).error());
    }
    if (++fields_ > kMaxFields + 1) {
      return std::unexpected(Fault{431, "too_large",
                                   "more than " + std::to_string(kMaxFields) + " header fields",
                                   kMaxFields});
    }
  }
}

Parsed<Head> HeadParser::take(std::string_view block) {
  block.remove_prefix(blank_);
  *this = HeadParser{};
  Head head;
  Collector collector(head);
  BeastError ec;
  const std::size_t used = collector.put({block.data(), block.size()}, ec);
  if (ec || used != block.size() || !collector.is_header_done()) {
    return bad("malformed request head");
  }
  Request& request = head.request;
  const auto question = request.target.find('?');
  request.path = request.target.substr(0, question);
  if (question != std::string::npos) {
    request.query = request.target.substr(question + 1);
  }
  if (auto ok = read_framing(head); !ok) {
    return std::unexpected(std::move(ok).error());
  }
  if (auto ok = read_host(head); !ok) {
    return std::unexpected(std::move(ok).error());
  }
  if (auto ok = read_options(head); !ok) {
    return std::unexpected(std::move(ok).error());
  }
  return head;
}

}  // namespace talon::server::http
