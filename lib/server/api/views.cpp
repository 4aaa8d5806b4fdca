#include "server/api/views.h"

#include "base/clock.h"
#include "server/node/codec.h"

namespace talon::server::api {

namespace json = boost::json;

namespace {

json::value time_or_null(const std::optional<std::int64_t>& ms) {
  return ms ? json::value(rfc3339(*ms)) : json::value(nullptr);
}

json::value text_or_null(const std::string& text) {
  return text.empty() ? json::value(nullptr) : json::value(text);
}

}  // namespace

json::value stored_json(std::string_view text) {
  if (text.empty()) {
    return nullptr;
  }
  boost::system::error_code ec;
  json::value value = json::parse(text, ec);
  return ec ? json::value(nullptr) : value;
}

std::string etag(const store::SandboxRow& row) { return "\"" + std::to_string(row.version) + "\""; }

json::object sandbox_view(const store::SandboxRow& row, const Api& api) {
  json::object view;
  view["id"] = row.id;
  view["name"] = text_or_null(row.name);
  view["state"] = row.state;
  view["operation"] = text_or_null(row.operation);
  view["image"] = row.image;
  view["image_generation"] =
      row.image_generation == 0 ? json::value(nullptr) : json::value(row.image_generation);
  json::value labels = stored_json(row.labels_json);
  view["labels"] = labels.is_object() ? labels : json::value(json::object{});
  const json::value spec = stored_json(row.spec_json);
  if (const json::object* wish = spec.if_object()) {
    for (const char* name :
         {"env", "user", "cwd", "hostname", "resources", "shm_size", "storage", "proc"}) {
      if (const json::value* value = wish->if_contains(name)) {
        view[name] = *value;
      }
    }
    const json::value* timeout = wish->if_contains("timeout_ms");
    view["timeout"] = timeout != nullptr && timeout->is_int64()
                          ? json::value(static_cast<double>(timeout->as_int64()) / 1000)
                          : json::value(nullptr);
    const json::value* storage = wish->if_contains("storage");
    view["survives"] = storage != nullptr && *storage == "memory" ? "pause" : "stop";
  }
  view["network"] = json::object{{"mode", "deny"}};
  view["isolation"] =
      json::object{{"tier", "namespace"},
                   {"seccomp", api.config().unconfined_seccomp ? "unconfined" : "filtered"}};
  json::object workspace{{"id", row.workspace}, {"private", true}, {"path", "/workspace"}};
  if (const json::object* wish = spec.if_object()) {
    if (const json::value* size = wish->if_contains("workspace_size")) {
      workspace["size"] = *size;
    }
  }
  view["workspace"] = std::move(workspace);
  view["limits"] = stored_json(row.applied_json);
  view["certificate"] = stored_json(row.certificate_json);
  view["created_by"] = row.created_by;
  view["created_at"] = rfc3339(row.created_ms);
  view["updated_at"] = rfc3339(row.updated_ms);
  view["expires_at"] = time_or_null(row.expires_ms);
  view["ended_at"] = time_or_null(row.ended_ms);
  return view;
}

json::object process_view(const store::ExecRow& row) {
  json::object view;
  view["id"] = row.id;
  view["state"] = row.state;
  view["pid"] = row.pid == 0 ? json::value(nullptr) : json::value(row.pid);
  const json::value spec = stored_json(row.spec_json);
  if (const json::object* wish = spec.if_object()) {
    for (const auto& entry : *wish) {
      view[entry.key()] = entry.value();
    }
  }
  view["started_at"] = rfc3339(row.started_ms);
  view["ended_at"] = time_or_null(row.ended_ms);
  view["result"] = stored_json(row.result_json);
  view["certificate"] = stored_json(row.certificate_json);
  return view;
}

json::object event_view(const store::EventRow& row) {
  json::object view;
  view["cursor"] = std::to_string(row.seq);
  view["type"] = row.type;
  view["sandbox"] = row.sandbox;
  view["at"] = rfc3339(row.at_ms);
  view["data"] = stored_json(row.data_json);
  return view;
}

json::object service_view(const node::Service& service) {
  const store::ServiceRow& row = service.row;
  json::object view;
  view["name"] = row.name;
  const json::value shown = stored_json(node::encode(service.spec.exec));
  if (const json::object* spec = shown.if_object()) {
    for (const char* name : {"command", "argv", "env_names", "user", "cwd"}) {
      if (const json::value* value = spec->if_contains(name)) {
        view[name] = *value;
      }
    }
  }
  view["restart"] = node::to_string(service.spec.restart);
  view["backoff"] =
      json::object{{"first", static_cast<double>(service.spec.backoff.count()) / 1000},
                   {"most", static_cast<double>(service.spec.backoff_max.count()) / 1000}};
  view["state"] = row.state;
  view["process"] = text_or_null(row.exec);
  view["restarts"] = row.restarts;
  view["last_exit"] = stored_json(row.last_json);
  view["next_start_at"] = time_or_null(service.next_ms);
  view["created_at"] = rfc3339(row.created_ms);
  view["updated_at"] = rfc3339(row.updated_ms);
  return view;
}

json::object reconcile_view(const node::ReconcileReport& report) {
  json::object view;
  view["at"] = rfc3339(report.at_ms);
  view["took_ms"] = report.took_ms;
  view["rows"] = report.rows;
  view["exits_collected"] = report.exits_collected;
  view["directories"] = report.directories;
  json::object counts;
  for (const char* did : {"adopted", "stopped", "failed", "deleted", "orphan", "error"}) {
    const auto it = report.counts.find(did);
    counts[did] = it == report.counts.end() ? 0 : it->second;
  }
  view["counts"] = std::move(counts);
  json::array actions;
  for (const auto& action : report.actions) {
    actions.push_back(json::object{
        {"sandbox", text_or_null(action.sandbox)}, {"did", action.did}, {"detail", action.detail}});
  }
  view["actions"] = std::move(actions);
  return view;
}

json::object key_view(const store::ApiKeyRow& row) {
  json::object view;
  view["id"] = row.id;
  view["name"] = row.name;
  view["role"] = row.role;
  view["hint"] = row.hint;
  view["sandbox"] = row.sandbox ? json::value(*row.sandbox) : json::value(nullptr);
  view["created_at"] = rfc3339(row.created_ms);
  view["expires_at"] = time_or_null(row.expires_ms);
  view["revoked_at"] = time_or_null(row.revoked_ms);
  return view;
}

}  // namespace talon::server::api
