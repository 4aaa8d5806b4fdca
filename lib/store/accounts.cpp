// Tenants, API keys, settings.
#include "store/db.h"
#include "store/tables.h"

namespace talon::store {

namespace {

constexpr std::string_view kKeyColumns =
    "id, tenant, name, role, hash, hint, sandbox, created_ms, expires_ms, revoked_ms, "
    "last_used_ms";

ApiKeyRow key_of(const Row& row) {
  return {.id = row.text(0),
          .tenant = row.text(1),
          .name = row.text(2),
          .role = row.text(3),
          .hash = row.text(4),
          .hint = row.text(5),
          .sandbox = row.maybe_text(6),
          .created_ms = row.integer(7),
          .expires_ms = row.maybe_integer(8),
          .revoked_ms = row.maybe_integer(9),
          .last_used_ms = row.maybe_integer(10)};
}

std::string select_keys(std::string_view where) {
  return "SELECT " + std::string{kKeyColumns} + " FROM api_keys WHERE " + std::string{where};
}

}  // namespace

Result<> insert_tenant(Db& db, const TenantRow& row) {
  auto done = db.run("INSERT INTO tenants (id, name, created_ms) VALUES (?, ?, ?)", row.id,
                     row.name, row.created_ms);
  if (!done && done.error().code == Code::conflict) {
    return fail(Code::conflict, "a tenant named \"" + row.name + "\" exists already");
  }
  TALON_CHECK(std::move(done));
  return {};
}

Result<std::optional<TenantRow>> find_tenant_by_name(Db& db, std::string_view name) {
  std::optional<TenantRow> found;
  TALON_CHECK(db.each(
      "SELECT id, name, created_ms FROM tenants WHERE name = ?",
      [&](const Row& row) {
        found = TenantRow{.id = row.text(0), .name = row.text(1), .created_ms = row.integer(2)};
      },
      name));
  return found;
}

Result<> insert_key(Db& db, const ApiKeyRow& row) {
  static const std::string sql = "INSERT INTO api_keys (" + std::string{kKeyColumns} +
                                 ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
  TALON_CHECK(db.run(sql, row.id, row.tenant, row.name, row.role, row.hash, row.hint, row.sandbox,
                     row.created_ms, row.expires_ms, row.revoked_ms, row.last_used_ms));
  return {};
}

Result<std::optional<ApiKeyRow>> find_key_by_hash(Db& db, std::string_view hash) {
  static const std::string sql = select_keys("hash = ?");
  std::optional<ApiKeyRow> found;
  TALON_CHECK(db.each(sql, [&](const Row& row) { found = key_of(row); }, hash));
  return found;
}

Result<ApiKeyRow> get_key(Db& db, std::string_view tenant, std::string_view id) {
  static const std::string sql = select_keys("tenant = ? AND id = ?");
  std::optional<ApiKeyRow> found;
  TALON_CHECK(db.each(sql, [&](const Row& row) { found = key_of(row); }, tenant, id));
  if (!found) {
    return fail(Code::not_found, "no API key " + std::string{id});
  }
  return *std::move(found);
}

Result<std::vector<ApiKeyRow>> list_keys(Db& db, std::string_view tenant, std::string_view after,
                                         int limit) {
  static const std::string sql = select_keys("tenant = ? AND id > ? ORDER BY id LIMIT ?");
  std::vector<ApiKeyRow> rows;
  TALON_CHECK(db.each(
      sql, [&](const Row& row) { rows.push_back(key_of(row)); }, tenant, after, page_limit(limit)));
  return rows;
}

Result<> revoke_key(Db& db, std::string_view tenant, std::string_view id, std::int64_t now_ms) {
  // The first revocation's time stays.
  TALON_TRY(changed, db.run("UPDATE api_keys SET revoked_ms = coalesce(revoked_ms, ?) "
                            "WHERE id = ? AND tenant = ?",
                            now_ms, id, tenant));
  if (changed == 0) {
    return fail(Code::not_found, "no API key " + std::string{id});
  }
  return {};
}

Result<> touch_key(Db& db, std::string_view id, std::int64_t now_ms) {
  TALON_CHECK(db.run("UPDATE api_keys SET last_used_ms = ? WHERE id = ?", now_ms, id));
  return {};
}

Result<std::optional<std::string>> get_setting(Db& db, std::string_view key) {
  std::optional<std::string> value;
  TALON_CHECK(db.each(
      "SELECT value FROM settings WHERE key = ?", [&](const Row& row) { value = row.text(0); },
      key));
  return value;
}

Result<> set_setting(Db& db, std::string_view key, std::string_view value) {
  TALON_CHECK(
      db.run("INSERT INTO settings (key, value) VALUES (?, ?) "
             "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
             key, value));
  return {};
}

}  // namespace talon::store
