#pragma once
// What every verb needs: a connection to talond on which it asks, an answer or the reason why
// there is none, and the exit code that goes with the reason.
//
// Exit codes: 0 done; 1 refused; 2 wrong usage; 3 talond cannot be reached; 4 no such thing. For
// exec all four are 125, and every other number is the command's.

#include <boost/asio/io_context.hpp>
#include <boost/json.hpp>
#include <expected>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "client/address.h"
#include "client/http.h"

namespace talon::client {

namespace asio = boost::asio;
namespace json = boost::json;

inline constexpr int kRefused = 1;
inline constexpr int kUsage = 2;
inline constexpr int kUnreachable = 3;
inline constexpr int kNoSuchThing = 4;
inline constexpr int kExecFailed = 125;

struct Failure {
  int exit = kRefused;
  std::string code;  // of the problem, or not_reachable, usage
  std::string detail;
};

template <class T = void>
using Answer = std::expected<T, Failure>;

Failure to_failure(const Error& error);
std::unexpected<Failure> usage(std::string detail);
// Refusals (status 400 and above) as failures, everything else untouched.
Answer<Reply> judge(Reply reply);

class Session {
 public:
  Session(std::string_view program, Address address)
      : program_(program), address_(std::move(address)) {}

  // Sends and waits. A request that may be sent twice (GET, PUT, DELETE, or a POST with an
  // Idempotency-Key) is sent again, for kPatience, when talond went away under it.
  Answer<Reply> ask(Request request);
  // The same, and the body as JSON.
  Answer<json::value> ask_json(Request request);
  // The id that a name or an id means; an id is not looked up.
  Answer<std::string> sandbox(const std::string& name_or_id);

  asio::io_context& context() { return context_; }
  const Address& address() const { return address_; }
  std::string_view program() const { return program_; }
  // Runs a task to its end on context().
  template <class T>
  Result<T> run(Task<T> task) {
    auto slot = std::make_shared<std::optional<Result<T>>>();
    run_job(server::store_result<T>(std::move(task), slot));
    return slot->has_value() ? std::move(**slot) : fail(Code::internal, "a task without an end");
  }

  // "tsb: code: detail" on stderr, in one line without control characters; the exit code.
  int report(const Failure& failure) const;
  void say(std::string_view text, std::string_view line_end = "\n") const;

 private:
  void run_job(asio::awaitable<void> job);
  Result<Reply> once(const Request& request);
  std::string_view program_;
  Address address_;
  asio::io_context context_{1};
  std::unique_ptr<Connection> connection_;
  bool reached_ = false;  // there has been a connection
};

// How long talond may be away before a verb gives up on it.
inline constexpr Millis kPatience{30'000};
inline constexpr Millis kRetryEvery{200};

// "%2F" and the like for everything that is not plain in a path segment or a query value.
std::string percent_encode(std::string_view text);
// `text` with control characters as '?', so that what others wrote cannot steer a terminal.
std::string printable(std::string_view text);
// A string member, "" when it is missing or none.
std::string text_of(const json::value& object, std::string_view member);
// Writes to stdout; the exit code of the verb. A reader that went away is no failure.
int print(std::string_view text);

}  // namespace talon::client
