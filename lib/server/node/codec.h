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
#include "store/tables.h"

namespace talon::server::node {

std::string encode(const SandboxWish& wish);
Result<SandboxWish> decode_wish(std::string_view text);

std::string encode(const Labels& labels);
Result<Labels> decode_labels(std::string_view text);

std::string encode(const isolate::Identity& identity);
Result<isolate::Identity> decode_identity(std::string_view text);

// {"memory":{"value":n,"enforced":b,"asked":b},"cpu":{…cores},"pids":{…}}; "disk" and "workspace"
// have a "method".
std::string encode(const isolate::CgroupApplied& applied, const isolate::DiskApplied& disk = {});

// Whether it says of "disk" or "workspace" how large it may be.
bool has_size(std::string_view applied_json, std::string_view name);

// {"reason","detail","by","at"} and the facts that are known. The last lines of output are made
// text: what is not UTF-8 shows as U+FFFD.
std::string encode(const Certificate& certificate);
// Why an exec ended, from what init says about its end.
Certificate certificate_of(const wire::ExitInfo& info, std::int64_t at_ms);
// How much of the output's end encode() shows.
inline constexpr std::size_t kLastBytes = 4096;
inline constexpr std::size_t kLastLines = 20;

// argv or command, user, cwd, limits and the names of env; never a value of env or stdin.
std::string encode(const ExecRequest& request);
// What of it makes a terminal; nullopt for an exec without one.
struct Terminal {
  std::uint16_t cols = 80;
  std::uint16_t rows = 24;
  Recording record = Recording::output;
};
std::optional<Terminal> terminal_of(const store::ExecRow& row);

// The result of an exec as `run` and `GET processes/{px}` show it.
boost::json::object result_object(const wire::ExitInfo& info);
std::string encode(const wire::ExitInfo& info);

std::string_view to_string(isolate::Storage storage);
std::string_view to_string(isolate::ProcMode mode);

}  // namespace talon::server::node
