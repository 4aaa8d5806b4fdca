// What is only ever appended (events, audit) and the idempotency keys.
#include "store/db.h"
#include "store/tables.h"

namespace talon::store {

Result<> insert_event(Db& db, const EventRow& row) {
  TALON_CHECK(
      db.run("INSERT INTO events (tenant, sandbox, type, data_json, at_ms) VALUES (?, ?, ?, ?, ?)",
             row.tenant, row.sandbox, row.type, row.data_json, row.at_ms));
  return {};
}

Result<std::int64_t> expire_events(Db& db, std::int64_t before_ms, int most) {
  // They are numbered in the order of their times: the first that is young enough ends the search.
  return db.run(
      "DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE seq < coalesce("
      "(SELECT seq FROM events WHERE at_ms >= ?1 ORDER BY seq LIMIT 1), 9223372036854775807) "
      "ORDER BY seq LIMIT ?2)",
      before_ms, most);
}

Result<std::vector<EventRow>> list_events(Db& db, std::string_view tenant, std::string_view sandbox,
                                          std::int64_t after_seq, int limit) {
  static const std::string select =
      "SELECT seq, tenant, sandbox, type, data_json, at_ms FROM events WHERE ";
  static const std::string order = " AND seq > ?3 ORDER BY seq LIMIT ?4";
  static const std::string of_sandbox = select + "sandbox = ?1 AND ?2 IN ('', tenant)" + order;
  static const std::string of_tenant = select + "?1 = '' AND tenant = ?2" + order;
  static const std::string of_all = select + "?1 = '' AND ?2 = ''" + order;
  const std::string& sql = !sandbox.empty() ? of_sandbox : !tenant.empty() ? of_tenant : of_all;
  std::vector<EventRow> rows;
  TALON_CHECK(db.each(
      sql,
      [&](const Row& row) {
        rows.push_back({.seq = row.integer(0),
                        .tenant = row.text(1),
                        .sandbox = row.text(2),
                        .type = row.text(3),
                        .data_json = row.text(4),
                        .at_ms = row.integer(5)});
      },
      sandbox, tenant, after_seq, page_limit(limit)));
  return rows;
}

Result<> insert_audit(Db& db, const AuditRow& row) {
  TALON_CHECK(db.run(
      "INSERT INTO audit (tenant, actor, action, target, outcome, status, request_id, remote, "
      "at_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
      row.tenant, row.actor, row.action, row.target, row.outcome, row.status, row.request_id,
      row.remote, row.at_ms));
  return {};
}

Result<std::vector<AuditRow>> list_audit(Db& db, std::string_view tenant, std::int64_t after_seq,
                                         int limit) {
  static const std::string select =
      "SELECT seq, tenant, actor, action, target, outcome, status, request_id, remote, at_ms "
      "FROM audit WHERE ";
  static const std::string of_tenant = select + "tenant = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3";
  static const std::string of_all = select + "?1 = '' AND seq > ?2 ORDER BY seq LIMIT ?3";
  std::vector<AuditRow> rows;
  TALON_CHECK(db.each(
      tenant.empty() ? of_all : of_tenant,
      [&](const Row& row) {
        rows.push_back({.seq = row.integer(0),
                        .tenant = row.text(1),
                        .actor = row.text(2),
                        .action = row.text(3),
                        .target = row.text(4),
                        .outcome = row.text(5),
                        .status = static_cast<int>(row.integer(6)),
                        .request_id = row.text(7),
                        .remote = row.text(8),
                        .at_ms = row.integer(9)});
      },
      tenant, after_seq, page_limit(limit)));
  return rows;
}

Result<std::optional<IdempotencyRow>> claim_idempotency(Db& db, const IdempotencyRow& row) {
  TALON_TRY(inserted,
            db.run("INSERT INTO idempotency (tenant, key, route, request_hash, status, response, "
                   "target, created_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
                   "ON CONFLICT (tenant, key) DO NOTHING",
                   row.tenant, row.key, row.route, row.request_hash, row.status, row.response,
                   row.target, row.created_ms));
  std::optional<IdempotencyRow> found;
  if (inserted != 0) {
    return found;
  }
  TALON_CHECK(db.each(
      "SELECT tenant, key, route, request_hash, status, response, target, created_ms "
      "FROM idempotency WHERE tenant = ? AND key = ?",
      [&](const Row& present) {
        found = IdempotencyRow{.tenant = present.text(0),
                               .key = present.text(1),
                               .route = present.text(2),
                               .request_hash = present.text(3),
                               .status = static_cast<int>(present.integer(4)),
                               .response = present.text(5),
                               .target = present.text(6),
                               .created_ms = present.integer(7)};
      },
      row.tenant, row.key));
  return found;
}

Result<> finish_idempotency(Db& db, const IdempotencyRow& row) {
  TALON_TRY(changed, db.run("UPDATE idempotency SET status = ?, response = ?, target = ? "
                            "WHERE tenant = ? AND key = ?",
                            row.status, row.response, row.target, row.tenant, row.key));
  if (changed == 0) {
    return fail(Code::not_found, "no idempotency key " + row.key);
  }
  return {};
}

Result<> drop_idempotency(Db& db, std::string_view tenant, std::string_view key) {
  TALON_CHECK(db.run("DELETE FROM idempotency WHERE tenant = ? AND key = ?", tenant, key));
  return {};
}

Result<> expire_idempotency(Db& db, std::int64_t before_ms) {
  TALON_CHECK(db.run("DELETE FROM idempotency WHERE created_ms < ?", before_ms));
  return {};
}

}  // namespace talon::store
