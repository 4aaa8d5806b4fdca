#include "base/log.h"
#include "store/db.h"
#include "store/tables.h"

namespace talon::store {

namespace {

constexpr std::string_view kColumns =
    "id, tenant, name, state, operation, image, image_generation, spec_json, labels_json, "
    "identity_json, applied_json, certificate_json, workspace, created_by, created_ms, "
    "updated_ms, expires_ms, ended_ms, version";

SandboxRow sandbox_of(const Row& row) {
  return {.id = row.text(0),
          .tenant = row.text(1),
          .name = row.text(2),
          .state = row.text(3),
          .operation = row.text(4),
          .image = row.text(5),
          .image_generation = static_cast<std::uint32_t>(row.integer(6)),
          .spec_json = row.text(7),
          .labels_json = row.text(8),
          .identity_json = row.text(9),
          .applied_json = row.text(10),
          .certificate_json = row.text(11),
          .workspace = row.text(12),
          .created_by = row.text(13),
          .created_ms = row.integer(14),
          .updated_ms = row.integer(15),
          .expires_ms = row.maybe_integer(16),
          .ended_ms = row.maybe_integer(17),
          .version = static_cast<std::uint64_t>(row.integer(18))};
}

std::unexpected<Error> named(Error error, const SandboxRow& row) {
  if (error.code == Code::conflict) {
    return fail(Code::conflict, "the name \"" + row.name + "\" is taken by another sandbox");
  }
  return std::unexpected(std::move(error).in("sandbox " + row.id));
}

// Lists travel as one JSON parameter, so that the number of statements stays small.
std::string json_array(const std::vector<std::string>& items) {
  std::string out = "[";
  for (const std::string& item : items) {
    out += out.size() > 1 ? "," : "";
    append_json_string(out, item);
  }
  return out + "]";
}

std::string json_pairs(const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::string out = "[";
  for (const auto& [key, value] : pairs) {
    out += out.size() > 1 ? ",[" : "[";
    append_json_string(out, key);
    out += ',';
    append_json_string(out, value);
    out += ']';
  }
  return out + "]";
}

constexpr std::string_view kLabelsMatch =
    " AND NOT EXISTS (SELECT 1 FROM json_each(?4) AS want WHERE NOT EXISTS ("
    "SELECT 1 FROM json_each(iif(labels_json = '', '{}', labels_json)) AS has "
    "WHERE has.key = json_extract(want.value, '$[0]') "
    "AND has.value = json_extract(want.value, '$[1]')))";

// A statement per shape of filter (at most 32), so that each has the index it needs.
// ?1 tenant, ?2 states, ?3 limit, ?4 labels, ?5 and ?6 the cursor, ?7 name.
std::string list_sql(const SandboxFilter& filter) {
  std::string sql = "SELECT " + std::string{kColumns} + " FROM sandboxes WHERE ";
  sql += filter.tenant.empty() ? "?1 = ''" : "tenant = ?1";
  sql += filter.states.empty() ? " AND ?2 = '[]' AND state <> 'deleted'"
                               : " AND state IN (SELECT value FROM json_each(?2))";
  sql += filter.labels.empty() ? " AND ?4 = '[]'" : kLabelsMatch;
  sql += filter.after.empty() ? " AND ?5 = 0 AND ?6 = ''" : " AND (created_ms, id) < (?5, ?6)";
  sql += filter.name.empty() ? " AND ?7 = ''" : " AND name = ?7 AND name <> ''";
  return sql + " ORDER BY created_ms DESC, id DESC LIMIT ?3";
}

}  // namespace

Result<> insert_sandbox(Db& db, const SandboxRow& row) {
  static const std::string sql = "INSERT INTO sandboxes (" + std::string{kColumns} +
                                 ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
                                 "?, ?)";
  auto done = db.run(sql, row.id, row.tenant, row.name, row.state, row.operation, row.image,
                     row.image_generation, row.spec_json, row.labels_json, row.identity_json,
                     row.applied_json, row.certificate_json, row.workspace, row.created_by,
                     row.created_ms, row.updated_ms, row.expires_ms, row.ended_ms, row.version);
  if (!done) {
    return named(std::move(done).error(), row);
  }
  return {};
}

Result<> update_sandbox(Db& db, const SandboxRow& row) {
  auto done = db.run(
      "UPDATE sandboxes SET name = ?, state = ?, operation = ?, image = ?, "
      "image_generation = ?, spec_json = ?, labels_json = ?, identity_json = ?, "
      "applied_json = ?, certificate_json = ?, workspace = ?, created_by = ?, created_ms = ?, "
      "updated_ms = ?, expires_ms = ?, ended_ms = ?, version = version + 1 "
      "WHERE id = ? AND tenant = ?",
      row.name, row.state, row.operation, row.image, row.image_generation, row.spec_json,
      row.labels_json, row.identity_json, row.applied_json, row.certificate_json, row.workspace,
      row.created_by, row.created_ms, row.updated_ms, row.expires_ms, row.ended_ms, row.id,
      row.tenant);
  if (!done) {
    return named(std::move(done).error(), row);
  }
  if (*done == 0) {
    return fail(Code::not_found, "no sandbox " + row.id);
  }
  return {};
}

Result<SandboxRow> get_sandbox(Db& db, std::string_view tenant, std::string_view id) {
  static const std::string sql =
      "SELECT " + std::string{kColumns} + " FROM sandboxes WHERE id = ?1 AND ?2 IN ('', tenant)";
  std::optional<SandboxRow> found;
  TALON_CHECK(db.each(sql, [&](const Row& row) { found = sandbox_of(row); }, id, tenant));
  if (!found) {
    return fail(Code::not_found, "no sandbox " + std::string{id});
  }
  return std::move(*found);
}

Result<SandboxPage> list_sandboxes(Db& db, const SandboxFilter& filter) {
  PageCursor cursor;
  if (!filter.after.empty()) {
    TALON_TRY(parsed, parse_page_cursor(filter.after));
    cursor = std::move(parsed);
  }
  const auto limit = static_cast<std::size_t>(page_limit(filter.limit));
  SandboxPage page;
  // One row more than asked for says whether there is a next page.
  TALON_CHECK(db.each(
      list_sql(filter), [&](const Row& row) { page.rows.push_back(sandbox_of(row)); },
      filter.tenant, json_array(filter.states), limit + 1, json_pairs(filter.labels), cursor.time,
      cursor.id, filter.name));
  if (page.rows.size() > limit) {
    page.rows.resize(limit);
    page.next = to_text({.time = page.rows.back().created_ms, .id = page.rows.back().id});
  }
  return page;
}

Result<std::int64_t> expire_sandboxes(Db& db, std::int64_t before_ms, int most) {
  struct Old {
    std::string id;
    std::string workspace;
  };
  std::vector<Old> old;
  TALON_CHECK(db.each(
      "SELECT id, workspace FROM sandboxes WHERE state = 'deleted' AND ended_ms < ? "
      "ORDER BY ended_ms LIMIT ?",
      [&](const Row& row) { old.push_back({row.text(0), row.text(1)}); }, before_ms, most));
  for (const Old& one : old) {
    TALON_CHECK(db.run("DELETE FROM execs WHERE sandbox = ?", one.id));
    TALON_CHECK(
        db.run("DELETE FROM workspaces WHERE id = ? AND deleted_ms IS NOT NULL", one.workspace));
    TALON_CHECK(db.run("DELETE FROM sandboxes WHERE id = ?", one.id));
  }
  return static_cast<std::int64_t>(old.size());
}

Result<std::vector<std::string>> images_in_use(Db& db) {
  std::vector<std::string> names;
  TALON_CHECK(db.each(
      "SELECT DISTINCT image || '-' || image_generation FROM sandboxes WHERE state <> 'deleted' "
      "ORDER BY 1",
      [&](const Row& row) { names.push_back(row.text(0)); }));
  return names;
}

Result<std::uint64_t> count_sandboxes(Db& db, std::string_view tenant,
                                      const std::vector<std::string>& states) {
  std::string sql = "SELECT count(*) FROM sandboxes WHERE ";
  sql += tenant.empty() ? "?1 = ''" : "tenant = ?1";
  sql += states.empty() ? " AND ?2 = '[]' AND state <> 'deleted'"
                        : " AND state IN (SELECT value FROM json_each(?2))";
  std::int64_t count = 0;
  TALON_CHECK(
      db.each(sql, [&](const Row& row) { count = row.integer(0); }, tenant, json_array(states)));
  return static_cast<std::uint64_t>(count);
}

}  // namespace talon::store
