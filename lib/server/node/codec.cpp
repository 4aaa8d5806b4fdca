#include "server/node/codec.h"

#include <algorithm>
#include <boost/json.hpp>
#include <csignal>
#include <cstring>

#include "base/utf8.h"

namespace talon::server::node {

namespace json = boost::json;

namespace {

Result<json::object> parse_object(std::string_view text, std::string_view what) {
  boost::system::error_code ec;
  json::value value = json::parse(text, ec);
  if (ec || !value.is_object()) {
    return fail(Code::internal, std::string{what} + " in the store is not a JSON object");
  }
  return std::move(value.as_object());
}

std::string text_of(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string{value->as_string()} : std::string{};
}

std::optional<std::uint64_t> number_of(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (value->is_int64() && value->as_int64() >= 0) {
    return static_cast<std::uint64_t>(value->as_int64());
  }
  if (value->is_uint64()) {
    return value->as_uint64();
  }
  return std::nullopt;
}

std::string repaired(std::string_view bytes) {
  std::string out;
  Utf8Repair repair;
  repair.feed(out, bytes);
  repair.finish(out);
  return out;
}

std::string biggest_name(const wire::ExitInfo& info) {
  return {info.biggest_name, ::strnlen(info.biggest_name, sizeof info.biggest_name)};
}

// The last whole lines within kLastBytes and kLastLines; the end of a single longer line.
json::array last_lines(std::string_view text) {
  if (text.size() > kLastBytes) {
    text.remove_prefix(text.size() - kLastBytes);
    const auto first = text.find('\n');
    if (first != std::string_view::npos && first + 1 < text.size()) {
      text.remove_prefix(first + 1);
    }
  }
  if (text.ends_with('\n')) {
    text.remove_suffix(1);
  }
  std::vector<std::string_view> lines;
  for (std::size_t at = 0; at != std::string_view::npos;) {
    const auto end = text.find('\n', at);
    lines.push_back(text.substr(at, end == std::string_view::npos ? end : end - at));
    at = end == std::string_view::npos ? end : end + 1;
  }
  json::array out;
  for (std::size_t i = lines.size() - std::min(lines.size(), kLastLines); i < lines.size(); ++i) {
    out.emplace_back(repaired(lines[i]));
  }
  return out;
}

}  // namespace

std::string_view to_string(isolate::Storage storage) {
  switch (storage) {
    case isolate::Storage::disk: return "disk";
    case isolate::Storage::memory: return "memory";
    case isolate::Storage::readonly: return "readonly";
  }
  return "disk";
}

std::string_view to_string(isolate::ProcMode mode) {
  return mode == isolate::ProcMode::full ? "full" : "pid_only";
}

std::string encode(const SandboxWish& wish) {
  json::object object;
  object["image"] = wish.image;
  json::object env;
  for (const auto& [name, value] : wish.env) {
    env[name] = value;
  }
  object["env"] = std::move(env);
  object["user"] = wish.user;
  object["cwd"] = wish.cwd;
  object["hostname"] = wish.hostname;
  json::object resources;
  if (wish.limits.memory_bytes) {
    resources["memory"] = *wish.limits.memory_bytes;
  }
  if (wish.limits.cpu_cores) {
    resources["cpu"] = *wish.limits.cpu_cores;
  }
  if (wish.limits.pids) {
    resources["pids"] = *wish.limits.pids;
  }
  if (wish.limits.io_read || wish.limits.io_write) {
    json::object io;
    if (wish.limits.io_read) {
      io["read"] = *wish.limits.io_read;
    }
    if (wish.limits.io_write) {
      io["write"] = *wish.limits.io_write;
    }
    resources["io"] = std::move(io);
  }
  if (wish.disk_bytes) {
    resources["disk"] = *wish.disk_bytes;
  }
  object["resources"] = std::move(resources);
  if (wish.workspace_bytes) {
    object["workspace_size"] = *wish.workspace_bytes;
  }
  object["shm_size"] = wish.shm_bytes;
  object["storage"] = to_string(wish.storage);
  object["proc"] = to_string(wish.proc);
  if (wish.timeout) {
    object["timeout_ms"] = wish.timeout->count();
  }
  return json::serialize(object);
}

Result<SandboxWish> decode_wish(std::string_view text) {
  TALON_TRY(object, parse_object(text, "spec_json"));
  SandboxWish wish;
  wish.image = text_of(object, "image");
  if (const auto* env = object.if_contains("env"); env != nullptr && env->is_object()) {
    for (const auto& entry : env->as_object()) {
      if (entry.value().is_string()) {
        wish.env.emplace_back(std::string{entry.key()}, std::string{entry.value().as_string()});
      }
    }
  }
  wish.user = text_of(object, "user");
  wish.cwd = text_of(object, "cwd");
  wish.hostname = text_of(object, "hostname");
  if (const auto* given = object.if_contains("resources"); given != nullptr && given->is_object()) {
    const json::object& resources = given->as_object();
    wish.limits.memory_bytes = number_of(resources, "memory");
    wish.limits.pids = number_of(resources, "pids");
    wish.disk_bytes = number_of(resources, "disk");
    if (const auto* io = resources.if_contains("io"); io != nullptr && io->is_object()) {
      wish.limits.io_read = number_of(io->as_object(), "read");
      wish.limits.io_write = number_of(io->as_object(), "write");
    }
    if (const auto* cpu = resources.if_contains("cpu"); cpu != nullptr && cpu->is_number()) {
      wish.limits.cpu_cores = cpu->to_number<double>();
    }
  }
  wish.workspace_bytes = number_of(object, "workspace_size");
  wish.shm_bytes = number_of(object, "shm_size").value_or(limits::kShmDefault);
  const std::string storage = text_of(object, "storage");
  wish.storage = storage == "memory"     ? isolate::Storage::memory
                 : storage == "readonly" ? isolate::Storage::readonly
                                         : isolate::Storage::disk;
  wish.proc =
      text_of(object, "proc") == "pid_only" ? isolate::ProcMode::pid_only : isolate::ProcMode::full;
  if (const auto timeout = number_of(object, "timeout_ms")) {
    wish.timeout = Millis{static_cast<std::int64_t>(*timeout)};
  }
  return wish;
}

bool SandboxWish::operator==(const SandboxWish& other) const {
  return encode(*this) == encode(other);
}

std::string encode(const Labels& labels) {
  json::object object;
  for (const auto& [key, value] : labels) {
    object[key] = value;
  }
  return json::serialize(object);
}

Result<Labels> decode_labels(std::string_view text) {
  Labels labels;
  if (text.empty()) {
    return labels;
  }
  TALON_TRY(object, parse_object(text, "labels_json"));
  for (const auto& entry : object) {
    labels[std::string{entry.key()}] = text_of(object, entry.key());
  }
  return labels;
}

std::string encode(const isolate::Identity& identity) {
  json::object object;
  object["id"] = identity.id;
  object["host_pid"] = identity.host_pid;
  object["start_time"] = identity.start_time;
  object["cgroup"] = identity.cgroup;
  object["boot_id"] = identity.boot_id;
  object["nonce"] = identity.nonce;
  object["lease"] = identity.lease;
  return json::serialize(object);
}

Result<isolate::Identity> decode_identity(std::string_view text) {
  TALON_TRY(object, parse_object(text, "identity_json"));
  isolate::Identity identity;
  identity.id = text_of(object, "id");
  identity.host_pid = static_cast<std::int32_t>(number_of(object, "host_pid").value_or(0));
  identity.start_time = number_of(object, "start_time").value_or(0);
  identity.cgroup = text_of(object, "cgroup");
  identity.boot_id = text_of(object, "boot_id");
  identity.nonce = text_of(object, "nonce");
  identity.lease = static_cast<std::uint32_t>(number_of(object, "lease").value_or(0));
  return identity;
}

std::string encode(const isolate::CgroupApplied& applied, const isolate::DiskApplied& disk) {
  auto one = [](const isolate::LimitState& state, double scale) {
    json::object object;
    if (scale == 1) {
      object["value"] = state.value;
    } else {
      object["value"] = static_cast<double>(state.value) * scale;
    }
    object["enforced"] = state.enforced;
    object["asked"] = state.asked;
    return object;
  };
  json::object object;
  object["memory"] = one(applied.memory, 1);
  object["cpu"] = one(applied.cpu_millicores, 0.001);
  object["pids"] = one(applied.pids, 1);
  if (applied.io_read.asked) {
    object["io_read"] = one(applied.io_read, 1);
  }
  if (applied.io_write.asked) {
    object["io_write"] = one(applied.io_write, 1);
  }
  const auto size = [&object](const char* name, const isolate::DiskLimit& limit) {
    if (limit.method != isolate::DiskMethod::none) {
      object[name] = json::object{{"value", limit.bytes},
                                  {"enforced", true},
                                  {"asked", true},
                                  {"method", isolate::to_string(limit.method)}};
    }
  };
  size("disk", disk.root);
  size("workspace", disk.workspace);
  return json::serialize(object);
}

bool has_size(std::string_view applied_json, std::string_view name) {
  boost::system::error_code ec;
  const json::value applied = json::parse(applied_json, ec);
  const json::object* object = ec ? nullptr : applied.if_object();
  return object != nullptr && object->contains(name);
}

std::string encode(const Certificate& certificate) {
  json::object object;
  object["reason"] = certificate.reason;
  object["detail"] = certificate.detail;
  if (!certificate.by.empty()) {
    object["by"] = certificate.by;
  }
  object["at"] = rfc3339(certificate.at_ms);
  if (certificate.exit_code) {
    object["exit_code"] = *certificate.exit_code;
  }
  if (certificate.signal) {
    object["signal"] = *certificate.signal;
  }
  if (certificate.peak_bytes != 0) {
    object["peak_memory_bytes"] = certificate.peak_bytes;
  }
  if (!certificate.biggest_name.empty()) {
    object["biggest_process"] = json::object{{"name", repaired(certificate.biggest_name)},
                                             {"bytes", certificate.biggest_bytes}};
  }
  if (!certificate.last_exec.empty()) {
    object["last_process"] = certificate.last_exec;
  }
  if (!certificate.last_output.empty()) {
    object["last_lines"] = last_lines(certificate.last_output);
  }
  return json::serialize(object);
}

Certificate certificate_of(const wire::ExitInfo& info, std::int64_t at_ms) {
  Certificate out;
  out.at_ms = at_ms;
  if (info.signal == 0) {
    out.exit_code = info.code;
  } else {
    out.signal = info.signal;
  }
  out.peak_bytes = info.peak_bytes;
  const auto flag = [&info](wire::ExitFlags one) { return (info.flags & one) != 0; };
  if (flag(wire::kOom)) {
    out.reason = "oom";
    out.detail = "its memory limit was reached";
    out.biggest_name = biggest_name(info);
    out.biggest_bytes = info.biggest_bytes;
  } else if (flag(wire::kTimedOut)) {
    out.reason = "timeout";
    out.detail = "its timeout passed";
  } else if (flag(wire::kOutputLimit)) {
    out.reason = "output_limit";
    out.detail = "it printed more than max_output";
  } else if (flag(wire::kKilled)) {
    out.reason = "user";
    out.detail = "ended by a call";
  } else if (flag(wire::kNotStarted)) {
    out.reason = "error";
    out.detail = fail_sys(info.exec_errno, "start the program").error().message;
  } else if (info.signal == SIGSYS) {
    out.reason = "seccomp";
    out.detail =
        "it made a system call that is not allowed; which one, only the kernel's audit log knows";
  } else if (info.signal != 0) {
    out.reason = "signal";
    out.detail = "ended by signal " + std::to_string(info.signal);
  } else {
    out.reason = "exit";
    out.detail = "exited with code " + std::to_string(info.code);
  }
  return out;
}

std::string encode(const ExecRequest& request) {
  json::object object;
  if (request.argv.empty()) {
    object["command"] = request.command;
  } else {
    object["argv"] = json::array(request.argv.begin(), request.argv.end());
  }
  json::array names;
  for (const auto& [name, value] : request.env) {
    names.emplace_back(name);
  }
  object["env_names"] = std::move(names);
  object["user"] = request.user;
  object["cwd"] = request.cwd;
  object["timeout_ms"] = request.timeout.count();
  if (request.tty) {
    object["tty"] = true;
    object["cols"] = request.cols;
    object["rows"] = request.rows;
    object["record"] = request.record == Recording::input
                           ? json::value("input")
                           : json::value(request.record != Recording::none);
  }
  if (!request.service.empty()) {
    object["service"] = request.service;
  }
  return json::serialize(object);
}

std::optional<Terminal> terminal_of(const store::ExecRow& row) {
  if (row.spec_json.find("\"tty\":true") == std::string::npos) {
    return std::nullopt;  // without reading it: most have none
  }
  boost::system::error_code ec;
  const json::value spec = json::parse(row.spec_json, ec);
  const json::object* object = ec ? nullptr : spec.if_object();
  const json::value* tty = object == nullptr ? nullptr : object->if_contains("tty");
  if (tty == nullptr || *tty != true) {
    return std::nullopt;
  }
  Terminal out;
  const auto size = [&](const char* name, std::uint16_t& to) {
    if (const json::value* value = object->if_contains(name); value && value->is_int64()) {
      to = static_cast<std::uint16_t>(value->as_int64());
    }
  };
  size("cols", out.cols);
  size("rows", out.rows);
  if (const json::value* record = object->if_contains("record")) {
    out.record = *record == false     ? Recording::none
                 : *record == "input" ? Recording::input
                                      : Recording::output;
  }
  return out;
}

json::object result_object(const wire::ExitInfo& info) {
  json::object object;
  object["exit_code"] = info.signal == 0 ? json::value(info.code) : json::value(nullptr);
  object["signal"] = info.signal != 0 ? json::value(info.signal) : json::value(nullptr);
  object["timed_out"] = (info.flags & wire::kTimedOut) != 0;
  object["oom"] = (info.flags & wire::kOom) != 0;
  object["output_limit"] = (info.flags & wire::kOutputLimit) != 0;
  object["killed"] = (info.flags & wire::kKilled) != 0;
  object["lost_output"] = (info.flags & wire::kLostOutput) != 0;
  object["duration_ms"] = static_cast<double>(info.duration_ns / 1000) / 1000.0;
  json::object usage;
  usage["user_ms"] = static_cast<double>(info.user_us) / 1000.0;
  usage["system_ms"] = static_cast<double>(info.system_us) / 1000.0;
  usage["max_rss_bytes"] = info.max_rss_kb * 1024;
  if (info.peak_bytes != 0) {
    usage["peak_memory_bytes"] = info.peak_bytes;
  }
  if ((info.flags & wire::kOom) != 0 && info.biggest_name[0] != '\0') {
    usage["biggest_process"] =
        json::object{{"name", repaired(biggest_name(info))}, {"bytes", info.biggest_bytes}};
  }
  usage["throttled_periods"] = info.throttled;
  usage["throttled_ms"] = static_cast<double>(info.throttled_us) / 1000.0;
  usage["stdout_bytes"] = info.out_bytes;
  usage["stderr_bytes"] = info.err_bytes;
  object["usage"] = std::move(usage);
  return object;
}

std::string encode(const wire::ExitInfo& info) { return json::serialize(result_object(info)); }

}  // namespace talon::server::node
