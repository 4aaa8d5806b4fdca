// A client's bytes through the request parser, whole and in pieces: both must come to the same
// requests and the same refusal, and nothing that is ambiguous may pass.

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/grammar.h"
#include "server/http/parser.h"

namespace {

using namespace talon::server::http;

constexpr std::size_t kBodyLimit = 4096;

void require(bool ok) {
  if (!ok) {
    std::abort();
  }
}

void check_head(const Head& head) {
  const Request& r = head.request;
  require(is_token(r.method));
  require(r.target.size() <= talon::limits::kTargetBytes);
  require(r.target.starts_with('/') || r.target == "*");
  require(r.path + (r.target.find('?') == std::string::npos ? "" : "?" + r.query) == r.target);
  require(r.headers.size() <= kMaxFields);
  require(r.count("content-length") + r.count("transfer-encoding") <= 1);
  require(r.count("host") == 1 || (head.http10 && r.count("host") == 0));
  for (const auto& [name, value] : r.headers) {
    require(is_token(name) && name == to_lower(name));
    require(is_field_value(value) && value == trim_ows(value));
  }
  (void)percent_decode(r.path, false);
  (void)parse_query(r.query);
}

// What came of the bytes, as text to compare.
std::string run(std::string_view bytes, std::size_t piece) {
  std::string log;
  std::string in;
  HeadParser parser;
  std::optional<BodyReader> reader;
  std::string body;
  while (!bytes.empty()) {
    in.append(bytes.substr(0, piece));
    bytes.remove_prefix(std::min(piece, bytes.size()));
    for (bool more = true; more;) {
      more = false;
      if (!reader) {
        auto size = parser.scan(in);
        if (!size) {
          return log + " refused " + std::to_string(size.error().status);
        }
        if (!*size) {
          continue;
        }
        require(**size <= in.size());
        auto head = parser.take(std::string_view(in).substr(0, **size));
        in.erase(0, **size);
        if (!head) {
          return log + " refused " + std::to_string(head.error().status);
        }
        check_head(*head);
        log += " " + head->request.method + " " + head->request.target;
        reader.emplace(*head, kBodyLimit);
        body.clear();
      }
      auto used = reader->feed(in, body);
      if (!used) {
        return log + " refused " + std::to_string(used.error().status);
      }
      in.erase(0, *used);
      require(body.size() <= kBodyLimit);
      if (reader->done()) {
        log += " body " + body;
        reader.reset();
        more = !in.empty();
      }
    }
  }
  return log;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) {
    return 0;
  }
  const std::size_t piece = 1 + data[0] % 64;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  require(run(bytes, piece) == run(bytes, bytes.size()));
  require(run(bytes, 1) == run(bytes, bytes.size()));
  return 0;
}
