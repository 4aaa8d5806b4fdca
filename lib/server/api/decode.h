#pragma once
// Strict JSON for request bodies. Anything that is not exactly what the API describes is
// invalid_request naming the field: an unknown or repeated name, a wrong type, a value out of
// range, too much depth, bytes after the value, text that is not UTF-8. A null is the same as
// leaving the field out.

#include <boost/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "server/node/types.h"

namespace talon::server::api {

// One object (an empty body is an empty object).
Result<boost::json::object> parse_body(std::string_view body);

// A reader of one object: each getter marks its name as known, done() refuses the others.
class Fields {
 public:
  // `object` must outlive it. `path` is "" for the body, "resources" inside it.
  explicit Fields(const boost::json::object& object, std::string path = {});

  // Without NUL, at most `max_bytes`, not empty.
  Result<std::optional<std::string>> text(std::string_view name, std::size_t max_bytes);
  // The same, "" allowed; NUL allowed too with `any_bytes`.
  Result<std::optional<std::string>> raw_text(std::string_view name, std::size_t max_bytes,
                                              bool any_bytes);
  Result<std::optional<bool>> boolean(std::string_view name);
  Result<std::optional<std::uint64_t>> whole(std::string_view name, std::uint64_t least,
                                             std::uint64_t most);
  Result<std::optional<double>> number(std::string_view name, double least, double most);
  // Bytes as a number or "512MiB"; seconds as a number or "90s".
  Result<std::optional<std::uint64_t>> size(std::string_view name, std::uint64_t least,
                                            std::uint64_t most);
  Result<std::optional<Millis>> duration(std::string_view name, Millis least, Millis most);
  // One of `words`: its index.
  Result<std::optional<std::size_t>> word(std::string_view name,
                                          const std::vector<std::string_view>& words);
  // Strings without NUL, each within kArgBytes (too_large otherwise).
  Result<std::optional<std::vector<std::string>>> texts(std::string_view name);
  // {"NAME": "value"}: names not empty and without '=' or NUL, values within kArgBytes.
  Result<std::optional<node::Env>> env(std::string_view name);
  Result<std::optional<node::Labels>> labels(std::string_view name);
  Result<const boost::json::object*> object(std::string_view name);  // null = not given
  const boost::json::value* value(std::string_view name);            // null = not given or null
  // A field of a later release: not_supported_yet when it is there.
  Result<> later(std::string_view name);
  bool has(std::string_view name);

  // invalid_request for the first name that nobody asked for.
  Result<> done() const;
  std::string path(std::string_view name) const;

 private:
  const boost::json::object* object_;
  std::string path_;
  std::set<std::string, std::less<>> known_;
};

// Text values of query parameters.
Result<std::uint64_t> query_whole(std::string_view name, std::string_view text, std::uint64_t least,
                                  std::uint64_t most);
Result<bool> query_flag(std::string_view name, std::string_view text);  // 1 0 true false
// RFC 3339, or seconds since 1970 ("1767225600.5"); nanoseconds.
Result<std::uint64_t> query_time(std::string_view name, std::string_view text);

// The limits that argv and env share (decision 11): too_large naming the limit and the field.
Result<> check_arguments(const std::vector<std::string>& argv, const node::Env& env);

}  // namespace talon::server::api
