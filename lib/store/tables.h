#pragma once
// Rows and the functions on them. All take a Db& (writer or reader connection), are synchronous
// and return not_found for a missing row or one of another tenant (the two look the same).
// Times are Unix milliseconds; JSON columns hold text that the server's codecs wrote.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace talon::store {

class Db;

struct TenantRow {
  std::string id;
  std::string name;
  std::int64_t created_ms = 0;
};
Result<> insert_tenant(Db& db, const TenantRow& row);
Result<std::optional<TenantRow>> find_tenant_by_name(Db& db, std::string_view name);

struct ApiKeyRow {
  std::string id;  // ky…
  std::string tenant;
  std::string name;
  std::string role;  // owner | developer | viewer | node_admin
  std::string hash;  // SHA-256 of the secret, hex; the secret itself is never stored
  std::string hint;  // last 4 characters, for people
  std::optional<std::string> sandbox;  // scope
  std::int64_t created_ms = 0;
  std::optional<std::int64_t> expires_ms;
  std::optional<std::int64_t> revoked_ms;
  std::optional<std::int64_t> last_used_ms;
};
Result<> insert_key(Db& db, const ApiKeyRow& row);
Result<std::optional<ApiKeyRow>> find_key_by_hash(Db& db, std::string_view hash);
Result<ApiKeyRow> get_key(Db& db, std::string_view tenant, std::string_view id);  // or not_found
Result<std::vector<ApiKeyRow>> list_keys(Db& db, std::string_view tenant, std::string_view after,
                                         int limit);
Result<> revoke_key(Db& db, std::string_view tenant, std::string_view id, std::int64_t now_ms);
Result<> touch_key(Db& db, std::string_view id, std::int64_t now_ms);  // last_used_ms

struct SandboxRow {
  std::string id;
  std::string tenant;
  std::string name;       // "" = none; unique among alive ones of a tenant when set
  std::string state;      // creating running paused stopped deleting deleted failed
  std::string operation;  // "" or what is in progress
  std::string image;      // name
  std::uint32_t image_generation = 0;
  std::string spec_json;         // the create request after defaults
  std::string labels_json;       // object of strings
  std::string identity_json;     // isolate::Identity, "" while none
  std::string applied_json;      // limits and whether they are enforced
  std::string certificate_json;  // "" until it ended
  std::string workspace;         // ws…
  std::string created_by;        // key id
  std::int64_t created_ms = 0;
  std::int64_t updated_ms = 0;
  std::optional<std::int64_t> expires_ms;  // life timeout
  std::optional<std::int64_t> ended_ms;
  std::uint64_t version = 1;  // +1 per update; the ETag
};
Result<> insert_sandbox(Db& db, const SandboxRow& row);  // conflict when the name is taken
Result<> update_sandbox(Db& db, const SandboxRow& row);  // whole row by id; version is bumped
// tenant "" = any (reconcile, node admin).
Result<SandboxRow> get_sandbox(Db& db, std::string_view tenant, std::string_view id);
struct SandboxFilter {
  std::string tenant;                                       // "" = any
  std::vector<std::string> states;                          // empty = all but deleted
  std::vector<std::pair<std::string, std::string>> labels;  // all must match
  std::string name = {};                                    // "" = any
  std::string after;  // (created_ms, id) cursor, opaque text from the last page
  int limit = 100;
};
struct SandboxPage {
  std::vector<SandboxRow> rows;
  std::string next;  // "" = no more
};
Result<SandboxPage> list_sandboxes(Db& db, const SandboxFilter& filter);  // newest first, stable
// "name-generation" of every image that a sandbox which is not deleted was made from.
Result<std::vector<std::string>> images_in_use(Db& db);
Result<std::uint64_t> count_sandboxes(Db& db, std::string_view tenant,
                                      const std::vector<std::string>& states);

struct ExecRow {
  std::string id;  // px…
  std::string sandbox;
  std::string tenant;
  std::string state;      // running exited
  std::string spec_json;  // argv or command, user, cwd, limits (env names only, no values)
  std::int32_t pid = 0;
  std::string result_json;            // "" until it ended
  std::string certificate_json = {};  // the same
  std::int64_t started_ms = 0;
  std::optional<std::int64_t> ended_ms;
};
// An exec that has exited stays so: a `running` row that comes later changes nothing.
Result<> upsert_exec(Db& db, const ExecRow& row);
Result<ExecRow> get_exec(Db& db, std::string_view tenant, std::string_view sandbox,
                         std::string_view id);
struct ExecPage {
  std::vector<ExecRow> rows;
  std::string next;
};
Result<ExecPage> list_execs(Db& db, std::string_view tenant, std::string_view sandbox,
                            std::string_view after, int limit);  // newest first
Result<> set_exec_certificate(Db& db, std::string_view sandbox, std::string_view id,
                              std::string_view certificate_json);
// Of a deleted sandbox: what was asked for goes, result and certificate stay.
Result<> retire_execs_of(Db& db, std::string_view sandbox);
// Only the `keep` newest ended ones stay (decision 23). Returns how many went.
Result<std::int64_t> trim_execs_of(Db& db, std::string_view sandbox, int keep);

// Retention: at most `most` sandboxes that were deleted before `before_ms`, with their execs,
// certificates and deleted workspaces. Returns how many sandboxes went; below `most` = nothing is
// left to do.
Result<std::int64_t> expire_sandboxes(Db& db, std::int64_t before_ms, int most);

// A command that is kept running in a sandbox.
struct ServiceRow {
  std::string sandbox;
  std::string name;
  std::string tenant;
  std::string spec_json;  // what to run and when to start it again
  std::string state;      // running backoff stopped
  std::string exec;       // px… of its last start, written before that start; "" = none yet
  std::uint32_t restarts = 0;
  std::string last_json;  // how its last process ended, "" = none has
  std::int64_t created_ms = 0;
  std::int64_t updated_ms = 0;
};
Result<> upsert_service(Db& db, const ServiceRow& row);
Result<std::vector<ServiceRow>> list_services(Db& db, std::string_view sandbox);  // by name
Result<> delete_service(Db& db, std::string_view sandbox, std::string_view name);
Result<> delete_services_of(Db& db, std::string_view sandbox);

struct WorkspaceRow {
  std::string id;
  std::string tenant;
  std::string name;
  bool is_private = true;  // made with a sandbox and deleted with it
  std::uint32_t generation = 1;
  std::int64_t created_ms = 0;
  std::optional<std::int64_t> deleted_ms;
};
Result<> insert_workspace(Db& db, const WorkspaceRow& row);
Result<> update_workspace(Db& db, const WorkspaceRow& row);
Result<WorkspaceRow> get_workspace(Db& db, std::string_view tenant, std::string_view id);

struct EventRow {
  std::int64_t seq = 0;  // assigned by insert; the cursor
  std::string tenant;
  std::string sandbox;
  std::string type;  // "sandbox.created", "exec.exited", …
  std::string data_json;
  std::int64_t at_ms = 0;
};
Result<> insert_event(Db& db, const EventRow& row);
// At most `most` of the oldest that came before `before_ms`. Returns how many went.
Result<std::int64_t> expire_events(Db& db, std::int64_t before_ms, int most);
Result<std::vector<EventRow>> list_events(Db& db, std::string_view tenant, std::string_view sandbox,
                                          std::int64_t after_seq, int limit);

struct AuditRow {
  std::int64_t seq = 0;
  std::string tenant;
  std::string actor;    // key id, "unix:<uid>", "anonymous"
  std::string action;   // operation id of the route
  std::string target;   // sandbox or other id, "" if none
  std::string outcome;  // allowed | denied | failed
  int status = 0;       // HTTP status
  std::string request_id;
  std::string remote;
  std::int64_t at_ms = 0;
};
Result<> insert_audit(Db& db, const AuditRow& row);
Result<std::vector<AuditRow>> list_audit(Db& db, std::string_view tenant, std::int64_t after_seq,
                                         int limit);

struct IdempotencyRow {
  std::string tenant;
  std::string key;
  std::string route;         // operation id
  std::string request_hash;  // SHA-256 over method, path, query and body
  int status = 0;            // 0 = still being worked on
  std::string response;      // body; "" while status is 0
  std::string target;        // id that the request made
  std::int64_t created_ms = 0;
};
// Claims the key: nullopt = it is ours now; a row = it exists (replay it, or conflict when
// request_hash differs, or busy when status is 0).
Result<std::optional<IdempotencyRow>> claim_idempotency(Db& db, const IdempotencyRow& row);
Result<> finish_idempotency(Db& db, const IdempotencyRow& row);
Result<> drop_idempotency(Db& db, std::string_view tenant, std::string_view key);
Result<> expire_idempotency(Db& db, std::int64_t before_ms);

struct ImageRow {
  std::string name;
  std::uint32_t generation = 1;
  std::string info_json;
  std::int64_t created_ms = 0;
};
Result<> upsert_image(Db& db, const ImageRow& row);
Result<std::vector<ImageRow>> list_images(Db& db);

// Small settings: instance id, default tenant.
Result<std::optional<std::string>> get_setting(Db& db, std::string_view key);
Result<> set_setting(Db& db, std::string_view key, std::string_view value);

}  // namespace talon::store
