#include "server/api/decode.h"

#include <boost/json/basic_parser_impl.hpp>
#include <charconv>
#include <chrono>
#include <cmath>

#include "base/limits.h"
#include "base/units.h"
#include "server/api/errors.h"

namespace talon::server::api {

namespace json = boost::json;

namespace {

// Walks the text once for what a parsed value no longer shows: a name given twice.
class Scan {
 public:
  static constexpr std::size_t max_object_size = json::object::max_size();
  static constexpr std::size_t max_array_size = json::array::max_size();
  static constexpr std::size_t max_key_size = json::string::max_size();
  static constexpr std::size_t max_string_size = json::string::max_size();

  std::string repeated;

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_object_begin(json::error_code&) {
    names_.emplace_back();
    return true;
  }
  bool on_object_end(std::size_t, json::error_code&) {
    names_.pop_back();
    return true;
  }
  bool on_array_begin(json::error_code&) { return true; }
  bool on_array_end(std::size_t, json::error_code&) { return true; }
  bool on_key_part(json::string_view part, std::size_t, json::error_code&) {
    key_.append(part.data(), part.size());
    return true;
  }
  bool on_key(json::string_view part, std::size_t, json::error_code& ec) {
    key_.append(part.data(), part.size());
    if (!names_.back().insert(key_).second) {
      repeated = key_;
      ec = json::error::extra_data;
      return false;
    }
    key_.clear();
    return true;
  }
  bool on_string_part(json::string_view, std::size_t, json::error_code&) { return true; }
  bool on_string(json::string_view, std::size_t, json::error_code&) { return true; }
  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool on_int64(std::int64_t, json::string_view, json::error_code&) { return true; }
  bool on_uint64(std::uint64_t, json::string_view, json::error_code&) { return true; }
  bool on_double(double, json::string_view, json::error_code&) { return true; }
  bool on_bool(bool, json::error_code&) { return true; }
  bool on_null(json::error_code&) { return true; }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }

 private:
  std::vector<std::set<std::string>> names_;
  std::string key_;
};

std::string_view kind_name(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null: return "null";
    case json::kind::bool_: return "a boolean";
    case json::kind::int64:
    case json::kind::uint64:
    case json::kind::double_: return "a number";
    case json::kind::string: return "a string";
    case json::kind::array: return "an array";
    case json::kind::object: return "an object";
  }
  return "something else";
}

std::unexpected<Error> wrong_type(std::string field, std::string_view wanted,
                                  const json::value& got) {
  std::string message =
      field + " must be " + std::string{wanted} + ", not " + std::string{kind_name(got)};
  return bad_field(std::move(field), std::move(message));
}

std::string shown(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

}  // namespace

Result<json::object> parse_body(std::string_view body) {
  if (body.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return json::object{};
  }
  json::parse_options options;
  options.max_depth = limits::kJsonDepth;
  json::basic_parser<Scan> scan(options);
  json::error_code ec;
  const std::size_t used = scan.write_some(false, body.data(), body.size(), ec);
  if (!scan.handler().repeated.empty()) {
    return bad_field(scan.handler().repeated,
                     "the name \"" + scan.handler().repeated + "\" is given twice");
  }
  if (ec == json::error::too_deep) {
    return bad_field("", "the JSON body is nested deeper than 32 levels");
  }
  if (!ec && body.find_first_not_of(" \t\r\n", used) != std::string_view::npos) {
    return bad_field("", "there are bytes after the JSON value, at offset " + std::to_string(used));
  }
  if (ec) {
    return bad_field("", "the body is not valid JSON (" + ec.message() + ") near offset " +
                             std::to_string(used));
  }
  json::value value = json::parse(body, ec, {}, options);
  if (ec) {
    return bad_field("", "the body is not valid JSON: " + ec.message());
  }
  if (!value.is_object()) {
    return bad_field("", "the body must be a JSON object, not " + std::string{kind_name(value)});
  }
  return std::move(value.as_object());
}

Fields::Fields(const json::object& object, std::string path)
    : object_(&object), path_(std::move(path)) {}

std::string Fields::path(std::string_view name) const {
  return path_.empty() ? std::string{name} : path_ + "." + std::string{name};
}

const json::value* Fields::value(std::string_view name) {
  known_.emplace(name);
  const json::value* found = object_->if_contains(name);
  return found != nullptr && !found->is_null() ? found : nullptr;
}

bool Fields::has(std::string_view name) { return value(name) != nullptr; }

Result<std::optional<std::string>> Fields::raw_text(std::string_view name, std::size_t max_bytes,
                                                    bool any_bytes) {
  const json::value* found = value(name);
  if (found == nullptr) {
    return std::nullopt;
  }
  if (!found->is_string()) {
    return wrong_type(path(name), "a string", *found);
  }
  const json::string& text = found->as_string();
  if (text.size() > max_bytes) {
    return bad_field(path(name),
                     path(name) + " is longer than " + std::to_string(max_bytes) + " bytes");
  }
  if (!any_bytes && text.find('\0') != json::string::npos) {
    return bad_field(path(name), path(name) + " contains a NUL character");
  }
  return std::string{text};
}

Result<std::optional<std::string>> Fields::text(std::string_view name, std::size_t max_bytes) {
  auto found = raw_text(name, max_bytes, false);
  if (found && *found && (*found)->empty()) {
    return bad_field(path(name), path(name) + " is empty; give a value or leave it out");
  }
  return found;
}

Result<std::optional<bool>> Fields::boolean(std::string_view name) {
  const json::value* found = value(name);
  if (found == nullptr) {
    return std::nullopt;
  }
  if (!found->is_bool()) {
    return wrong_type(path(name), "true or false", *found);
  }
  return found->as_bool();
}

Result<std::optional<double>> Fields::number(std::string_view name, double least, double most) {
  const json::value* found = value(name);
  if (found == nullptr) {
    return std::nullopt;
  }
  if (!found->is_number()) {
    return wrong_type(path(name), "a number", *found);
  }
  const double got = found->to_number<double>();
  if (!std::isfinite(got) || got < least || got > most) {
    return bad_field(path(name), path(name) + " must be from " + shown(least) + " to " +
                                     shown(most) + ", not " + shown(got));
  }
  return got;
}

Result<std::optional<std::uint64_t>> Fields::whole(std::string_view name, std::uint64_t least,
                                                   std::uint64_t most) {
  const json::value* found = value(name);
  if (found == nullptr) {
    return std::nullopt;
  }
  if (!found->is_number()) {
    return wrong_type(path(name), "a whole number", *found);
  }
  json::error_code ec;
  const auto got = found->to_number<std::uint64_t>(ec);
  if (ec || got < least || got > most) {
    return bad_field(path(name), path(name) + " must be a whole number from " +
                                     std::to_string(least) + " to " + std::to_string(most));
  }
  return got;
}

Result<std::optional<std::uint64_t>> Fields::size(std::string_view name, std::uint64_t least,
                                                  std::uint64_t most) {
  const json::value* found = value(name);
  if (found == nullptr) {
    return std::nullopt;
  }
  std::uint64_t got = 0;
  if (found->is_string()) {
    auto parsed = parse_size(std::string_view{found->as_string()});
    if (!parsed) {
      return bad_field(path(name), path(name) + ": " + parsed.error().message);
    }
    got = *parsed;
  } else if (found->is_number()) {
    json::error_code ec;
    got = found->to_number<std::uint64_t>(ec);
    if (ec) {
      return bad_field(path(name), path(name) +
                                       " must be a whole, positive number of bytes or a "
                                       "text such as \"512MiB\"");
    }
  } else {
    return wrong_type(path(name), "a number of bytes or a text such as \"512MiB\"", *found);
  }
  if (got < least || got > most) {
    return bad_field(path(name), path(name) + " must be from " + format_size(least) + " to " +
                                     format_size(most) + ", not " + format_size(got));
  }
  return got;
}

Result<std::optional<Millis>> Fields::duration(std::string_view name, Millis least, Millis most) {
  const json::value* found = value(name);
  if (found == nullptr) {
    return std::nullopt;
  }
  Millis got{0};
  if (found->is_string()) {
    auto parsed = parse_duration(std::string_view{found->as_string()});
    if (!parsed) {
      return bad_field(path(name), path(name) + ": " + parsed.error().message);
    }
    got = *parsed;
  } else if (found->is_number()) {
    const double seconds = found->to_number<double>();
    if (!std::isfinite(seconds) || seconds < 0 || seconds > 400'000'000) {
      return bad_field(path(name), path(name) +
                                       " must be a positive number of seconds or a text "
                                       "such as \"90s\"");
    }
    got = Millis{static_cast<std::int64_t>(std::ceil(seconds * 1000))};
  } else {
    return wrong_type(path(name), "a number of seconds or a text such as \"90s\"", *found);
  }
  if (got < least || got > most) {
    return bad_field(path(name), path(name) + " must be from " +
                                     shown(static_cast<double>(least.count()) / 1000) + " to " +
                                     shown(static_cast<double>(most.count()) / 1000) + " seconds");
  }
  return got;
}

Result<std::optional<std::size_t>> Fields::word(std::string_view name,
                                                const std::vector<std::string_view>& words) {
  const json::value* found = value(name);
  if (found == nullptr) {
    return std::nullopt;
  }
  std::string list;
  for (const std::string_view word : words) {
    list += list.empty() ? "" : ", ";
    list += word;
  }
  if (!found->is_string()) {
    return wrong_type(path(name), "one of " + list, *found);
  }
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == std::string_view{found->as_string()}) {
      return i;
    }
  }
  return bad_field(path(name), path(name) + " must be one of " + list);
}

Result<std::optional<std::vector<std::string>>> Fields::texts(std::string_view name) {
  const json::value* found = value(name);
  if (found == nullptr) {
    return std::nullopt;
  }
  if (!found->is_array()) {
    return wrong_type(path(name), "an array of strings", *found);
  }
  std::vector<std::string> out;
  for (const json::value& item : found->as_array()) {
    const std::string where = path(name) + "[" + std::to_string(out.size()) + "]";
    if (!item.is_string()) {
      return wrong_type(where, "a string", item);
    }
    const json::string& text = item.as_string();
    if (text.find('\0') != json::string::npos) {
      return bad_field(where, where + " contains a NUL character");
    }
    if (text.size() > limits::kArgBytes) {
      return passed_limit(Code::too_large, "argument_bytes", where,
                          where + " is longer than " + std::to_string(limits::kArgBytes) +
                              " bytes, the most that Linux passes as one argument; send it as "
                              "`command`, `stdin` or a file");
    }
    out.emplace_back(text);
  }
  return out;
}

Result<std::optional<node::Env>> Fields::env(std::string_view name) {
  TALON_TRY(found, object(name));
  if (found == nullptr) {
    return std::nullopt;
  }
  node::Env out;
  for (const auto& entry : *found) {
    const std::string key{entry.key()};
    const std::string where = path(name) + "." + key;
    if (key.empty() || key.find('=') != std::string::npos || key.find('\0') != std::string::npos) {
      return bad_field(path(name), path(name) + " has a name that is empty or contains '=' or NUL");
    }
    if (!entry.value().is_string()) {
      return wrong_type(where, "a string", entry.value());
    }
    const json::string& text = entry.value().as_string();
    if (text.find('\0') != json::string::npos) {
      return bad_field(where, where + " contains a NUL character");
    }
    if (key.size() + 1 + text.size() > limits::kArgBytes) {
      return passed_limit(Code::too_large, "argument_bytes", where,
                          where + " is longer than " + std::to_string(limits::kArgBytes) +
                              " bytes, the most that Linux passes as one variable");
    }
    out.emplace_back(key, std::string{text});
  }
  return out;
}

Result<std::optional<node::Labels>> Fields::labels(std::string_view name) {
  TALON_TRY(found, object(name));
  if (found == nullptr) {
    return std::nullopt;
  }
  if (found->size() > limits::kLabels) {
    return bad_field(path(name),
                     path(name) + " has more than " + std::to_string(limits::kLabels) + " labels");
  }
  node::Labels out;
  for (const auto& entry : *found) {
    const std::string key{entry.key()};
    const std::string where = path(name) + "." + key;
    if (key.empty() || key.size() > limits::kLabelKeyBytes || key.find('=') != std::string::npos ||
        key.find('\0') != std::string::npos) {
      return bad_field(path(name), path(name) + ": a label's name has 1 to " +
                                       std::to_string(limits::kLabelKeyBytes) +
                                       " bytes and no '=' or NUL");
    }
    if (!entry.value().is_string()) {
      return wrong_type(where, "a string", entry.value());
    }
    const json::string& text = entry.value().as_string();
    if (text.size() > limits::kLabelValueBytes || text.find('\0') != json::string::npos) {
      return bad_field(where, where + " is longer than " +
                                  std::to_string(limits::kLabelValueBytes) +
                                  " bytes or contains NUL");
    }
    out.emplace(key, std::string{text});
  }
  return out;
}

Result<const json::object*> Fields::object(std::string_view name) {
  const json::value* found = value(name);
  if (found == nullptr) {
    return nullptr;
  }
  if (!found->is_object()) {
    return wrong_type(path(name), "an object", *found);
  }
  return &found->as_object();
}

Result<> Fields::later(std::string_view name) {
  if (value(name) == nullptr) {
    return {};
  }
  auto error = fail(Code::not_supported_yet,
                    path(name) + " is not supported by this version of talond; leave it out");
  error.error().field = path(name);
  return error;
}

Result<> Fields::done() const {
  for (const auto& entry : *object_) {
    if (!known_.contains(std::string_view{entry.key()})) {
      const std::string field = path(entry.key());
      return bad_field(field, "there is no field \"" + field +
                                  "\"; check its spelling against "
                                  "/openapi.yaml");
    }
  }
  return {};
}

Result<std::uint64_t> query_whole(std::string_view name, std::string_view text, std::uint64_t least,
                                  std::uint64_t most) {
  std::uint64_t value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc{} || end != text.data() + text.size() || value < least || value > most) {
    return bad_field(std::string{name}, std::string{name} + " must be a whole number from " +
                                            std::to_string(least) + " to " + std::to_string(most));
  }
  return value;
}

Result<bool> query_flag(std::string_view name, std::string_view text) {
  if (text == "1" || text == "true" || text.empty()) {
    return true;
  }
  if (text == "0" || text == "false") {
    return false;
  }
  return bad_field(std::string{name}, std::string{name} + " must be 1, 0, true or false");
}

Result<std::uint64_t> query_time(std::string_view name, std::string_view text) {
  const auto wrong = [&] {
    return bad_field(std::string{name}, std::string{name} +
                                            " must be a time such as "
                                            "2026-01-31T12:34:56Z or seconds since 1970");
  };
  if (text.find('T') == std::string_view::npos) {
    double seconds = 0;
    const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), seconds);
    if (ec != std::errc{} || end != text.data() + text.size() || !(seconds >= 0) ||
        seconds > 1e10) {
      return wrong();
    }
    return static_cast<std::uint64_t>(seconds * 1e9);
  }
  // YYYY-MM-DDTHH:MM:SS[.fraction](Z|±HH:MM)
  std::array<int, 6> part{};
  constexpr std::array<std::size_t, 6> at{0, 5, 8, 11, 14, 17};
  constexpr std::string_view shape = "dddd-dd-ddTdd:dd:dd";
  if (text.size() < shape.size() + 1) {
    return wrong();
  }
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (shape[i] == 'd' ? !digit : text[i] != shape[i]) {
      return wrong();
    }
  }
  for (std::size_t i = 0; i < part.size(); ++i) {
    const std::size_t size = i == 0 ? 4 : 2;
    std::from_chars(text.data() + at[i], text.data() + at[i] + size, part[i]);
  }
  const std::chrono::year_month_day day{std::chrono::year{part[0]},
                                        std::chrono::month{static_cast<unsigned>(part[1])},
                                        std::chrono::day{static_cast<unsigned>(part[2])}};
  if (!day.ok() || part[3] > 23 || part[4] > 59 || part[5] > 60 || part[0] < 1970) {
    return wrong();
  }
  std::int64_t seconds = std::chrono::sys_days{day}.time_since_epoch().count() * 86'400ll +
                         part[3] * 3600 + part[4] * 60 + part[5];
  std::string_view rest = text.substr(shape.size());
  std::uint64_t nanos = 0;
  if (rest.starts_with('.')) {
    std::uint64_t unit = 100'000'000;
    rest.remove_prefix(1);
    if (rest.empty() || rest[0] < '0' || rest[0] > '9') {
      return wrong();
    }
    while (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') {
      nanos += static_cast<std::uint64_t>(rest[0] - '0') * unit;
      unit /= 10;
      rest.remove_prefix(1);
    }
  }
  if (rest.size() == 6 && (rest[0] == '+' || rest[0] == '-') && rest[3] == ':') {
    int hours = 0;
    int minutes = 0;
    const auto h = std::from_chars(rest.data() + 1, rest.data() + 3, hours);
    const auto m = std::from_chars(rest.data() + 4, rest.data() + 6, minutes);
    if (h.ptr != rest.data() + 3 || m.ptr != rest.data() + 6 || hours > 23 || minutes > 59) {
      return wrong();
    }
    seconds -= (rest[0] == '+' ? 1 : -1) * (hours * 3600 + minutes * 60);
  } else if (rest != "Z" && rest != "z") {
    return wrong();
  }
  if (seconds < 0) {
    return wrong();
  }
  return static_cast<std::uint64_t>(seconds) * 1'000'000'000 + nanos;
}

Result<> check_arguments(const std::vector<std::string>& argv, const node::Env& env) {
  std::size_t total = 0;
  for (const std::string& text : argv) {
    total += text.size() + 1;
  }
  const std::size_t arguments = total;
  for (const auto& [name, value] : env) {
    total += name.size() + value.size() + 2;
  }
  if (total > limits::kArgsBytes) {
    return passed_limit(Code::too_large, "arguments_bytes", arguments > total / 2 ? "argv" : "env",
                        "argv and env together are " + std::to_string(total) + " bytes; at most " +
                            std::to_string(limits::kArgsBytes) +
                            " can be passed to a process: use stdin or a file");
  }
  return {};
}

}  // namespace talon::server::api
