#include "server/api/errors.h"

#include <array>

#include "server/api/text.h"

namespace talon::server::api {

namespace {

constexpr std::array kKinds = std::to_array<ProblemKind>({
    {"internal", 500, "Internal error"},
    {"invalid_request", 400, "Invalid request"},
    {"not_found", 404, "Not found"},
    {"gone", 410, "Deleted"},
    {"conflict", 409, "Conflict"},
    {"wrong_state", 409, "Wrong state"},
    {"busy", 409, "Busy"},
    {"too_large", 413, "Too large"},
    {"too_many", 429, "Too many"},
    {"unauthenticated", 401, "Not authenticated"},
    {"forbidden", 403, "Forbidden"},
    {"unenforceable", 422, "Cannot be enforced on this host"},
    {"not_supported_yet", 422, "Not supported yet"},
    {"unavailable", 503, "Unavailable"},
    {"timeout", 504, "Timed out"},
    {"disk_full", 507, "Disk full"},
    {"io", 500, "The kernel refused"},
    {"method_not_allowed", 405, "Method not allowed"},
    {"precondition_failed", 412, "Precondition failed"},
    {"upgrade_required", 426, "Upgrade required"},
    {"create_failed", 500, "Create failed"},
});

std::string_view subject_name(Code code) {
  switch (code) {
    case Code::wrong_state:
    case Code::timeout: return "state";
    case Code::busy: return "operation";
    case Code::too_large:
    case Code::too_many:
    case Code::unavailable:
    case Code::disk_full: return "limit";
    default: return "field";
  }
}

int retry_after(Code code) {
  switch (code) {
    case Code::busy: return 1;
    case Code::too_many: return 5;
    case Code::unavailable: return 5;
    case Code::disk_full: return 30;
    default: return 0;
  }
}

}  // namespace

std::span<const ProblemKind> problem_kinds() { return kKinds; }

Problem make_problem(std::string_view code, std::string detail) {
  for (const ProblemKind& kind : kKinds) {
    if (kind.code == code) {
      return Problem{.status = kind.status,
                     .code = std::string{kind.code},
                     .title = std::string{kind.title},
                     .detail = std::move(detail),
                     .extra = {},
                     .retry_after_s = 0};
    }
  }
  return make_problem("internal", std::move(detail));
}

Problem to_problem(const Error& error) {
  if (error.code == Code::conflict && error.field == "If-Match") {
    Problem problem = make_problem("precondition_failed", error.message);
    problem.extra["field"] = error.field;
    return problem;
  }
  Problem problem = make_problem(to_string(error.code), error.message);
  problem.retry_after_s = retry_after(error.code);
  if (!error.field.empty()) {
    const auto at = error.field.find('@');
    problem.extra[subject_name(error.code)] = error.field.substr(0, at);
    if (at != std::string::npos) {
      problem.extra["field"] = error.field.substr(at + 1);
    }
  }
  return problem;
}

http::Response render(const Problem& problem, std::string_view request_id) {
  boost::json::object object;
  object["type"] = "urn:talon:problem:" + problem.code;
  object["title"] = problem.title;
  object["status"] = problem.status;
  object["code"] = problem.code;
  object["detail"] = problem.detail;
  object["request_id"] = request_id;
  for (const auto& entry : problem.extra) {
    object[entry.key()] = entry.value();
  }
  http::Response response;
  response.status = problem.status;
  response.content_type = "application/problem+json";
  response.body = json_text(object);
  response.body += '\n';
  if (problem.retry_after_s > 0) {
    response.headers.emplace_back("Retry-After", std::to_string(problem.retry_after_s));
  }
  if (problem.status == 401) {
    response.headers.emplace_back("WWW-Authenticate", "Bearer realm=\"talon\"");
  }
  return response;
}

std::unexpected<Error> passed_limit(Code code, std::string_view limit, std::string_view field,
                                    std::string message) {
  auto error = fail(code, std::move(message));
  error.error().field = std::string{limit} + "@" + std::string{field};
  return error;
}

}  // namespace talon::server::api
