#include <array>
#include <string>
#include <string_view>

#include "base/fault.h"
#include "store/db.h"

namespace talon::store {

namespace {

// "TALN": tells our files from other programs' (PRAGMA application_id).
constexpr std::int64_t kApplicationId = 0x54414C4E;

constexpr char kInitial[] = {
#embed "sql/0001_initial.sql"
};
constexpr char kCertificates[] = {
#embed "sql/0002_certificates.sql"
};
constexpr char kServices[] = {
#embed "sql/0003_services.sql"
};

// Step n brings schema n to n + 1. Only ever appended to: files in the field have run the old
// ones.
constexpr std::array<std::string_view, 3> kSteps{
    std::string_view{kInitial, sizeof kInitial},
    std::string_view{kCertificates, sizeof kCertificates},
    std::string_view{kServices, sizeof kServices},
};

Result<std::int64_t> pragma(Db& db, const char* sql) {
  std::int64_t value = 0;
  TALON_CHECK(db.each(sql, [&](const Row& row) { value = row.integer(0); }));
  return value;
}

Result<> take_step(Db& db, std::size_t step) {
  TALON_CHECK(fault::point("migrate.begin"));
  TALON_CHECK(db.script("BEGIN IMMEDIATE"));
  // user_version and application_id lie in the file's header: they roll back with the rest.
  auto done = db.script(std::string{kSteps[step]});
  if (done) {
    done = fault::point("migrate.commit");
  }
  if (done) {
    done = db.script("PRAGMA application_id=" + std::to_string(kApplicationId) +
                     "; PRAGMA user_version=" + std::to_string(step + 1) + "; COMMIT");
  }
  fault::stop("migrate.committed");
  if (!done && db.in_transaction()) {
    // The first error is the one to report.
    if (auto undone = db.script("ROLLBACK"); !undone) {
      return std::unexpected(std::move(undone).error().in(done.error().message));
    }
  }
  return done;
}

}  // namespace

int latest_schema() { return static_cast<int>(kSteps.size()); }

Result<> migrate(Db& db, const std::string& path) {
  TALON_TRY(application, pragma(db, "PRAGMA application_id"));
  TALON_TRY(version, pragma(db, "PRAGMA user_version"));
  TALON_TRY(tables, pragma(db, "SELECT count(*) FROM sqlite_schema"));
  const bool fresh = application == 0 && version == 0 && tables == 0;
  if (!fresh && application != kApplicationId) {
    return fail(Code::wrong_state, path +
                                       " is a database of another program; give talond a "
                                       "data directory of its own (--data-dir)");
  }
  if (version > latest_schema()) {
    return fail(Code::wrong_state,
                path + " was written by a newer talond (schema " + std::to_string(version) +
                    ", this one knows " + std::to_string(latest_schema()) +
                    "); start that version, or restore a backup made before the upgrade");
  }
  for (auto step = static_cast<std::size_t>(version); step < kSteps.size(); ++step) {
    if (auto done = take_step(db, step); !done) {
      return std::unexpected(
          std::move(done).error().in("migrate " + path + " to schema " + std::to_string(step + 1)));
    }
  }
  return {};
}

}  // namespace talon::store
