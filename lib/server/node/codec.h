#pragma once
// The JSON kept in the rows: what a sandbox was asked to be, its identity, the limits that were
// applied, certificates, results. Written and read here only; what is read back comes from our
// own store, so a damaged text is an internal error that names the row's column.

#include <boost/json/fwd.hpp>
#include <string>
#include <string_view>

#include "base/error.h"
#include "isolate/cgroup.h"
#include "isolate/sandbox.h"
#include "server/node/types.h"

namespace talon::server::node {

std::string encode(const SandboxWish& wish);
Result<SandboxWish> decode_wish(std::string_view text);

std::string encode(const Labels& labels);
Result<Labels> decode_labels(std::string_view text);

std::string encode(const isolate::Identity& identity);
Result<isolate::Identity> decode_identity(std::string_view text);

// {"memory":{"value":n,"enforced":b,"asked":b},"cpu":{…cores},"pids":{…}}
std::string encode(const isolate::CgroupApplied& applied);

// {"reason","detail","by","at"}
std::string encode(const Certificate& certificate);

// argv or command, user, cwd, limits and the names of env; never a value of env or stdin.
std::string encode(const ExecRequest& request);

// The result of an exec as `run` and `GET processes/{px}` show it.
boost::json::object result_object(const wire::ExitInfo& info);
std::string encode(const wire::ExitInfo& info);

std::string_view to_string(isolate::Storage storage);
std::string_view to_string(isolate::ProcMode mode);

}  // namespace talon::server::node
