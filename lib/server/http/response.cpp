#include "server/http/response.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "base/log.h"
#include "server/http/grammar.h"

namespace talon::server::http {

namespace {

struct Phrase {
  int status;
  std::string_view text;
};
// IANA "HTTP Status Code Registry", those that are used.
constexpr std::array kPhrases{
    Phrase{100, "Continue"},
    Phrase{101, "Switching Protocols"},
    Phrase{200, "OK"},
    Phrase{201, "Created"},
    Phrase{202, "Accepted"},
    Phrase{204, "No Content"},
    Phrase{206, "Partial Content"},
    Phrase{301, "Moved Permanently"},
    Phrase{302, "Found"},
    Phrase{303, "See Other"},
    Phrase{304, "Not Modified"},
    Phrase{307, "Temporary Redirect"},
    Phrase{308, "Permanent Redirect"},
    Phrase{400, "Bad Request"},
    Phrase{401, "Unauthorized"},
    Phrase{403, "Forbidden"},
    Phrase{404, "Not Found"},
    Phrase{405, "Method Not Allowed"},
    Phrase{406, "Not Acceptable"},
    Phrase{408, "Request Timeout"},
    Phrase{409, "Conflict"},
    Phrase{410, "Gone"},
    Phrase{411, "Length Required"},
    Phrase{412, "Precondition Failed"},
    Phrase{413, "Content Too Large"},
    Phrase{414, "URI Too Long"},
    Phrase{415, "Unsupported Media Type"},
    Phrase{416, "Range Not Satisfiable"},
    Phrase{417, "Expectation Failed"},
    Phrase{422, "Unprocessable Content"},
    Phrase{426, "Upgrade Required"},
    Phrase{428, "Precondition Required"},
    Phrase{429, "Too Many Requests"},
    Phrase{431, "Request Header Fields Too Large"},
    Phrase{500, "Internal Server Error"},
    Phrase{501, "Not Implemented"},
    Phrase{502, "Bad Gateway"},
    Phrase{503, "Service Unavailable"},
    Phrase{504, "Gateway Timeout"},
    Phrase{505, "HTTP Version Not Supported"},
    Phrase{507, "Insufficient Storage"},
};

// IMF-fixdate (RFC 9110 §5.6.7) of now, made once a second. Names are spelled out here: strftime
// would follow the locale.
std::string_view date_now() {
  static constexpr std::array<const char*, 7> kDays{"Sun", "Mon", "Tue", "Wed",
                                                    "Thu", "Fri", "Sat"};
  static constexpr std::array<const char*, 12> kMonths{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                       "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  thread_local std::time_t made = 0;
  thread_local std::array<char, 40> text{};
  const std::time_t now = std::time(nullptr);
  if (now != made) {
    made = now;
    std::tm t{};
    ::gmtime_r(&now, &t);
    std::snprintf(text.data(), text.size(), "%s, %02d %s %04d %02d:%02d:%02d GMT",
                  kDays[static_cast<std::size_t>(t.tm_wday)], t.tm_mday,
                  kMonths[static_cast<std::size_t>(t.tm_mon)], t.tm_year + 1900, t.tm_hour,
                  t.tm_min, t.tm_sec);
  }
  return text.data();
}

void append_field(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ").append(value).append("\r\n");
}

// Fields that the server writes itself, from what it knows; a handler's are dropped.
bool is_ours(std::string_view name) {
  static constexpr std::array<std::string_view, 8> kOurs{
      "content-length", "transfer-encoding", "connection", "date",
      "x-request-id",   "trailer",           "server",     "content-type"};
  return std::any_of(kOurs.begin(), kOurs.end(),
                     [name](std::string_view ours) { return equals_ignore_case(name, ours); });
}

}  // namespace

std::string_view reason_phrase(int status) {
  for (const Phrase& phrase : kPhrases) {
    if (phrase.status == status) {
      return phrase.text;
    }
  }
  return {};
}

bool is_sendable(const Response& response) {
  return response.status >= 200 && response.status <= 599 &&
         is_field_value(response.content_type) &&
         std::all_of(response.headers.begin(), response.headers.end(), [](const auto& field) {
           return is_token(field.first) && is_field_value(field.second);
         });
}

void append_head(std::string& out, const Response& response, const HeadPlan& plan) {
  out.append("HTTP/1.1 ").append(std::to_string(response.status)).append(" ");
  out.append(reason_phrase(response.status)).append("\r\n");
  append_field(out, "Date", date_now());
  append_field(out, "X-Request-Id", plan.request_id);
  if (!response.content_type.empty() && response.status != 204 && response.status != 304) {
    append_field(out, "Content-Type", response.content_type);
  }
  append_field(out, "X-Content-Type-Options", "nosniff");
  for (const auto& [name, value] : response.headers) {
    if (!is_ours(name)) {
      append_field(out, name, value);
    }
  }
  if (plan.framing == Framing::length) {
    append_field(out, "Content-Length", std::to_string(plan.length));
  } else if (plan.framing == Framing::chunked) {
    append_field(out, "Transfer-Encoding", "chunked");
    if (plan.trailers != nullptr) {
      for (const std::string& name : *plan.trailers) {
        append_field(out, "Trailer", name);
      }
    }
  }
  if (plan.close) {
    append_field(out, "Connection", "close");
  }
  out.append("\r\n");
}

Response problem(const Fault& fault, std::string_view request_id) {
  Response out;
  out.status = fault.status;
  out.content_type = "application/problem+json";
  std::string& body = out.body;
  body = R"({"type":)";
  append_json_string(body, "urn:talon:problem:" + std::string{fault.code});
  body.append(R"(,"title":)");
  append_json_string(body, reason_phrase(fault.status));
  body.append(R"(,"status":)").append(std::to_string(fault.status)).append(R"(,"code":)");
  append_json_string(body, fault.code);
  body.append(R"(,"detail":)");
  append_json_string(body, fault.detail);
  if (fault.limit != 0) {
    body.append(R"(,"limit":)").append(std::to_string(fault.limit));
  }
  body.append(R"(,"request_id":)");
  append_json_string(body, request_id);
  body.append("}\n");
  if (fault.status == 503) {
    out.headers.emplace_back("Retry-After", "1");
  }
  return out;
}

}  // namespace talon::server::http
