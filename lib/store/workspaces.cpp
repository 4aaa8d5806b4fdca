// Workspaces and images: what lies in folders of the data directory.
#include "store/db.h"
#include "store/tables.h"

namespace talon::store {

namespace {

std::unexpected<Error> named(Error error, const WorkspaceRow& row) {
  if (error.code == Code::conflict) {
    return fail(Code::conflict, "the name \"" + row.name + "\" is taken by another workspace");
  }
  return std::unexpected(std::move(error).in("workspace " + row.id));
}

}  // namespace

Result<> insert_workspace(Db& db, const WorkspaceRow& row) {
  auto done = db.run(
      "INSERT INTO workspaces (id, tenant, name, is_private, generation, created_ms, deleted_ms) "
      "VALUES (?, ?, ?, ?, ?, ?, ?)",
      row.id, row.tenant, row.name, row.is_private, row.generation, row.created_ms, row.deleted_ms);
  if (!done) {
    return named(std::move(done).error(), row);
  }
  return {};
}

Result<> update_workspace(Db& db, const WorkspaceRow& row) {
  auto done = db.run(
      "UPDATE workspaces SET name = ?, is_private = ?, generation = ?, created_ms = ?, "
      "deleted_ms = ? WHERE id = ? AND tenant = ?",
      row.name, row.is_private, row.generation, row.created_ms, row.deleted_ms, row.id, row.tenant);
  if (!done) {
    return named(std::move(done).error(), row);
  }
  if (*done == 0) {
    return fail(Code::not_found, "no workspace " + row.id);
  }
  return {};
}

Result<WorkspaceRow> get_workspace(Db& db, std::string_view tenant, std::string_view id) {
  std::optional<WorkspaceRow> found;
  TALON_CHECK(db.each(
      "SELECT id, tenant, name, is_private, generation, created_ms, deleted_ms FROM workspaces "
      "WHERE id = ?1 AND ?2 IN ('', tenant)",
      [&](const Row& row) {
        found = WorkspaceRow{.id = row.text(0),
                             .tenant = row.text(1),
                             .name = row.text(2),
                             .is_private = row.integer(3) != 0,
                             .generation = static_cast<std::uint32_t>(row.integer(4)),
                             .created_ms = row.integer(5),
                             .deleted_ms = row.maybe_integer(6)};
      },
      id, tenant));
  if (!found) {
    return fail(Code::not_found, "no workspace " + std::string{id});
  }
  return std::move(*found);
}

Result<> upsert_image(Db& db, const ImageRow& row) {
  TALON_CHECK(
      db.run("INSERT INTO images (name, generation, info_json, created_ms) "
             "VALUES (?, ?, ?, ?) ON CONFLICT (name, generation) DO UPDATE SET "
             "info_json = excluded.info_json, created_ms = excluded.created_ms",
             row.name, row.generation, row.info_json, row.created_ms));
  return {};
}

Result<std::vector<ImageRow>> list_images(Db& db) {
  std::vector<ImageRow> rows;
  TALON_CHECK(db.each(
      "SELECT name, generation, info_json, created_ms FROM images ORDER BY name, generation",
      [&](const Row& row) {
        rows.push_back({.name = row.text(0),
                        .generation = static_cast<std::uint32_t>(row.integer(1)),
                        .info_json = row.text(2),
                        .created_ms = row.integer(3)});
      }));
  return rows;
}

}  // namespace talon::store
