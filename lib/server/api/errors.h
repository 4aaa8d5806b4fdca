#pragma once
// Problems (RFC 9457): the only place that turns a Code into an HTTP status. An Error names its
// subject in Error::field; what the subject is follows from the code: the JSON field for
// invalid_request, the state for wrong_state, the operation for busy, the limit for too_large,
// too_many, unavailable and disk_full. "limit@field" carries both.

#include <boost/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "server/http/http.h"

namespace talon::server::api {

struct Problem {
  int status = 500;
  std::string code;
  std::string title;
  std::string detail;
  boost::json::object extra;  // field, state, operation, limit, id …
  int retry_after_s = 0;
};

Problem to_problem(const Error& error);
http::Response render(const Problem& problem, std::string_view request_id);

// Every code that a problem may carry, with its status: the closed list of api/openapi.yaml.
struct ProblemKind {
  std::string_view code;
  int status;
  std::string_view title;
};
std::span<const ProblemKind> problem_kinds();

// A problem whose code is not a base Code: method_not_allowed, create_failed, precondition_failed.
Problem make_problem(std::string_view code, std::string detail);

// too_large or too_many that names the limit and the field.
std::unexpected<Error> passed_limit(Code code, std::string_view limit, std::string_view field,
                                    std::string message);

}  // namespace talon::server::api
