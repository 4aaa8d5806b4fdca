#include "store/db.h"
#include "store/tables.h"

namespace talon::store {

Result<> upsert_service(Db& db, const ServiceRow& row) {
  TALON_CHECK(db.run(
      "INSERT INTO services (sandbox, name, tenant, spec_json, state, exec, restarts, last_json, "
      "created_ms, updated_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (sandbox, name) "
      "DO UPDATE SET spec_json = excluded.spec_json, state = excluded.state, "
      "exec = excluded.exec, restarts = excluded.restarts, last_json = excluded.last_json, "
      "updated_ms = excluded.updated_ms",
      row.sandbox, row.name, row.tenant, row.spec_json, row.state, row.exec, row.restarts,
      row.last_json, row.created_ms, row.updated_ms));
  return {};
}

Result<std::vector<ServiceRow>> list_services(Db& db, std::string_view sandbox) {
  std::vector<ServiceRow> rows;
  TALON_CHECK(db.each(
      "SELECT sandbox, name, tenant, spec_json, state, exec, restarts, last_json, created_ms, "
      "updated_ms FROM services WHERE sandbox = ? ORDER BY name",
      [&](const Row& row) {
        rows.push_back({.sandbox = row.text(0),
                        .name = row.text(1),
                        .tenant = row.text(2),
                        .spec_json = row.text(3),
                        .state = row.text(4),
                        .exec = row.text(5),
                        .restarts = static_cast<std::uint32_t>(row.integer(6)),
                        .last_json = row.text(7),
                        .created_ms = row.integer(8),
                        .updated_ms = row.integer(9)});
      },
      sandbox));
  return rows;
}

Result<> delete_service(Db& db, std::string_view sandbox, std::string_view name) {
  TALON_CHECK(db.run("DELETE FROM services WHERE sandbox = ? AND name = ?", sandbox, name));
  return {};
}

Result<> delete_services_of(Db& db, std::string_view sandbox) {
  TALON_CHECK(db.run("DELETE FROM services WHERE sandbox = ?", sandbox));
  return {};
}

}  // namespace talon::store
