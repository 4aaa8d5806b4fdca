#include "client/session.h"

#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <cerrno>
#include <thread>

#include "base/clock.h"
#include "base/fd.h"
#include "base/id.h"

namespace talon::client {

namespace {

std::unexpected<Failure> failure(int exit, std::string code, std::string detail) {
  return std::unexpected(
      Failure{.exit = exit, .code = std::move(code), .detail = std::move(detail)});
}

bool may_repeat(const Request& request) {
  return request.method != "POST" || std::ranges::any_of(request.headers, [](const auto& header) {
           return header.first == "Idempotency-Key";
         });
}

// talond starts or stops, or the first of two equal requests has no answer yet.
bool passing(const Reply& reply) {
  if (reply.status == 503) {
    return true;
  }
  boost::system::error_code ec;
  return reply.status == 409 && text_of(json::parse(reply.body, ec), "code") == "busy";
}

}  // namespace

Failure to_failure(const Error& error) {
  const bool reach = error.code == Code::unavailable || error.code == Code::timeout;
  return {.exit = reach                                 ? kUnreachable
                  : error.code == Code::invalid_request ? kUsage
                                                        : kRefused,
          .code = reach ? "not_reachable" : std::string{to_string(error.code)},
          .detail = error.message};
}

std::unexpected<Failure> usage(std::string detail) {
  return failure(kUsage, "usage", std::move(detail));
}

Answer<Reply> judge(Reply reply) {
  if (reply.status < 400) {
    return reply;
  }
  boost::system::error_code ec;
  const json::value problem = json::parse(reply.body, ec);
  std::string code = text_of(problem, "code");
  std::string detail = text_of(problem, "detail");
  if (code.empty()) {
    // Not talond: a proxy in between, or something else at that address.
    return failure(kUnreachable, "not_reachable",
                   "the answer is HTTP " + std::to_string(reply.status) + " and not talond's");
  }
  const bool missing = code == "not_found" || code == "gone";
  return failure(missing ? kNoSuchThing : kRefused, std::move(code), std::move(detail));
}

void Session::run_job(asio::awaitable<void> job) {
  context_.restart();
  std::exception_ptr broken;
  asio::co_spawn(context_, std::move(job), [&](std::exception_ptr error) { broken = error; });
  context_.run();
  if (broken) {
    std::rethrow_exception(broken);
  }
}

Result<Reply> Session::once(const Request& request) {
  if (!connection_) {
    TALON_TRY(opened, run(Connection::open(context_.get_executor(), address_)));
    connection_ = std::move(opened);
    reached_ = true;
  }
  auto reply = run(connection_->request(request));
  if (!reply) {
    connection_.reset();
  }
  return reply;
}

Answer<Reply> Session::ask(Request request) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  bool lost = false;
  while (true) {
    Result<Reply> reply = once(request);
    // A talond that was not there when we came is reported at once, and so is what it refuses,
    // unless it may be the trace of our own first try.
    lost = lost || (!reply && reached_ && reply.error().code == Code::unavailable);
    const bool again = lost && (!reply || passing(*reply)) && may_repeat(request) &&
                       std::chrono::steady_clock::now() < until;
    if (!again) {
      return reply ? judge(std::move(*reply)) : std::unexpected(to_failure(reply.error()));
    }
    std::this_thread::sleep_for(kRetryEvery);
  }
}

Answer<json::value> Session::ask_json(Request request) {
  TALON_TRY(reply, ask(std::move(request)));
  boost::system::error_code ec;
  json::value value = json::parse(reply.body, ec);
  if (ec) {
    return failure(kUnreachable, "not_reachable", "the answer is not JSON, so not talond's");
  }
  return value;
}

Answer<std::string> Session::sandbox(const std::string& name_or_id) {
  if (is_id(IdKind::sandbox, name_or_id)) {
    return name_or_id;
  }
  TALON_TRY(page, ask_json({.target = "/v1/sandboxes?name=" + percent_encode(name_or_id)}));
  const json::value* items = page.is_object() ? page.as_object().if_contains("items") : nullptr;
  if (items == nullptr || !items->is_array() || items->as_array().empty()) {
    return failure(kNoSuchThing, "not_found",
                   "there is no sandbox with the name or id \"" + name_or_id + "\"");
  }
  return text_of(items->as_array().front(), "id");
}

void Session::say(std::string_view text, std::string_view line_end) const {
  const std::string line = std::string{program_} + ": " + printable(text) + std::string{line_end};
  // Where stderr is closed there is nobody to tell.
  [[maybe_unused]] const auto written = write_all(STDERR_FILENO, line);
}

int Session::report(const Failure& failure) const {
  say(failure.code + ": " + failure.detail);
  return failure.exit;
}

std::string percent_encode(std::string_view text) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
                       (byte >= 'A' && byte <= 'Z') || c == '-' || c == '_' || c == '.' || c == '~';
    if (plain) {
      out += c;
    } else {
      out += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out;
}

std::string printable(std::string_view text) {
  std::string out{text};
  std::ranges::replace_if(out, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return out;
}

std::string text_of(const json::value& object, std::string_view member) {
  const json::value* value = object.is_object() ? object.as_object().if_contains(member) : nullptr;
  return value != nullptr && value->is_string() ? std::string{value->as_string()} : "";
}

int print(std::string_view text) {
  const auto written = write_all(STDOUT_FILENO, text);
  if (written) {
    return 0;
  }
  return written.error().sys == EPIPE ? 0 : kRefused;
}

}  // namespace talon::client
