#include "server/node/codec.h"

#include <boost/json.hpp>

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
  object["resources"] = std::move(resources);
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
    if (const auto* cpu = resources.if_contains("cpu"); cpu != nullptr && cpu->is_number()) {
      wish.limits.cpu_cores = cpu->to_number<double>();
    }
  }
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

std::string encode(const isolate::CgroupApplied& applied) {
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
  return json::serialize(object);
}

std::string encode(const Certificate& certificate) {
  json::object object;
  object["reason"] = certificate.reason;
  object["detail"] = certificate.detail;
  if (!certificate.by.empty()) {
    object["by"] = certificate.by;
  }
  object["at"] = rfc3339(certificate.at_ms);
  return json::serialize(object);
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
  return json::serialize(object);
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
  usage["stdout_bytes"] = info.out_bytes;
  usage["stderr_bytes"] = info.err_bytes;
  object["usage"] = std::move(usage);
  return object;
}

std::string encode(const wire::ExitInfo& info) { return json::serialize(result_object(info)); }

}  // namespace talon::server::node
