#pragma once
// The API description, embedded: api/openapi.yaml is written by hand, api/openapi.json is made
// from it (api/to_json.py) and committed, so that a build needs no Python.

#include <string_view>

namespace talon::server::api {

std::string_view openapi_yaml();
std::string_view openapi_json();

}  // namespace talon::server::api
