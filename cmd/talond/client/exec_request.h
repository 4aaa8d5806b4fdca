#pragma once
// Bodies of requests that start something, from the words of a command line.

#include "client/session.h"
#include "client/verbs.h"

namespace talon::client {

// NAME=VALUE words of an option as an object. Failure: usage.
Answer<json::object> pairs(const Words& words, std::string_view option);
// argv, env, cwd, user and timeout. Failure: usage.
Answer<json::object> exec_body(const Words& words);

}  // namespace talon::client
