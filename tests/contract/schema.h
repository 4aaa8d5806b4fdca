#pragma once
// A checker for the part of JSON Schema (2020-12) that api/openapi.yaml uses. A keyword that it
// does not know is an error, so that the file cannot say what nobody checks.

#include <boost/json.hpp>
#include <string>
#include <vector>

namespace talon::test {

// The API description as JSON.
const boost::json::object& openapi();

// Follows "#/…" references.
const boost::json::value& resolve(const boost::json::value& schema);

// What is wrong, one line each; empty = valid. `where` is for messages.
std::vector<std::string> violations(const boost::json::value& schema,
                                    const boost::json::value& value, const std::string& where);

}  // namespace talon::test
