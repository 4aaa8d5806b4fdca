#include "store/db.h"
#include "store/tables.h"

namespace talon::store {

namespace {

constexpr std::string_view kColumns =
    "id, sandbox, tenant, state, spec_json, pid, result_json, certificate_json, started_ms, "
    "ended_ms";

ExecRow exec_of(const Row& row) {
  return {.id = row.text(0),
          .sandbox = row.text(1),
          .tenant = row.text(2),
          .state = row.text(3),
          .spec_json = row.text(4),
          .pid = static_cast<std::int32_t>(row.integer(5)),
          .result_json = row.text(6),
          .certificate_json = row.text(7),
          .started_ms = row.integer(8),
          .ended_ms = row.maybe_integer(9)};
}

}  // namespace

Result<> upsert_exec(Db& db, const ExecRow& row) {
  // An exec that has ended stays ended: a `running` row that comes late changes nothing. An id
  // never moves to another sandbox or tenant.
  static const std::string sql =
      "INSERT INTO execs (" + std::string{kColumns} +
      ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
      "state = excluded.state, spec_json = excluded.spec_json, pid = excluded.pid, "
      "result_json = excluded.result_json, certificate_json = excluded.certificate_json, "
      "started_ms = excluded.started_ms, ended_ms = excluded.ended_ms "
      "WHERE execs.sandbox = excluded.sandbox AND execs.tenant = excluded.tenant "
      "AND (execs.state <> 'exited' OR excluded.state = 'exited')";
  TALON_CHECK(db.run(sql, row.id, row.sandbox, row.tenant, row.state, row.spec_json, row.pid,
                     row.result_json, row.certificate_json, row.started_ms, row.ended_ms));
  return {};
}

Result<ExecRow> get_exec(Db& db, std::string_view tenant, std::string_view sandbox,
                         std::string_view id) {
  static const std::string sql = "SELECT " + std::string{kColumns} +
                                 " FROM execs WHERE id = ?1 AND sandbox = ?2 "
                                 "AND ?3 IN ('', tenant)";
  std::optional<ExecRow> found;
  TALON_CHECK(db.each(sql, [&](const Row& row) { found = exec_of(row); }, id, sandbox, tenant));
  if (!found) {
    return fail(Code::not_found, "no process " + std::string{id});
  }
  return std::move(*found);
}

Result<ExecPage> list_execs(Db& db, std::string_view tenant, std::string_view sandbox,
                            std::string_view after, int limit) {
  static const std::string select =
      "SELECT " + std::string{kColumns} + " FROM execs WHERE sandbox = ?1 AND ?2 IN ('', tenant)";
  static const std::string order = " ORDER BY started_ms DESC, id DESC LIMIT ?3";
  static const std::string first = select + order;
  static const std::string next = select + " AND (started_ms, id) < (?4, ?5)" + order;
  const auto wanted = static_cast<std::size_t>(page_limit(limit));
  ExecPage page;
  const auto take = [&](const Row& row) { page.rows.push_back(exec_of(row)); };
  if (after.empty()) {
    TALON_CHECK(db.each(first, take, sandbox, tenant, wanted + 1));
  } else {
    TALON_TRY(cursor, parse_page_cursor(after));
    TALON_CHECK(db.each(next, take, sandbox, tenant, wanted + 1, cursor.time, cursor.id));
  }
  if (page.rows.size() > wanted) {
    page.rows.resize(wanted);
    page.next = to_text({.time = page.rows.back().started_ms, .id = page.rows.back().id});
  }
  return page;
}

Result<> set_exec_certificate(Db& db, std::string_view sandbox, std::string_view id,
                              std::string_view certificate_json) {
  TALON_CHECK(db.run("UPDATE execs SET certificate_json = ? WHERE id = ? AND sandbox = ?",
                     certificate_json, id, sandbox));
  return {};
}

Result<> retire_execs_of(Db& db, std::string_view sandbox) {
  TALON_CHECK(db.run("UPDATE execs SET spec_json = '{}' WHERE sandbox = ?", sandbox));
  return {};
}

Result<std::int64_t> trim_execs_of(Db& db, std::string_view sandbox, int keep) {
  return db.run(
      "DELETE FROM execs WHERE sandbox = ?1 AND state = 'exited' AND (started_ms, id) <= ("
      "SELECT started_ms, id FROM execs WHERE sandbox = ?1 AND state = 'exited' "
      "ORDER BY started_ms DESC, id DESC LIMIT 1 OFFSET ?2)",
      sandbox, keep);
}

}  // namespace talon::store
