#include "store/db.h"

#include <fcntl.h>
#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>

#include "base/fd.h"

namespace talon::store {

namespace {

constexpr int kBusyTimeoutMs = 5000;

Result<> configure(Db& db, Db::Mode mode) {
  // trusted_schema off: a file that someone prepared must not run functions from its schema.
  if (mode == Db::Mode::reader) {
    return db.script("PRAGMA query_only=ON; PRAGMA trusted_schema=OFF; PRAGMA cache_size=-256;");
  }
  return db.script(
      "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA trusted_schema=OFF;"
      "PRAGMA temp_store=MEMORY; PRAGMA journal_size_limit=16777216; PRAGMA cache_size=-512;");
}

}  // namespace

bool Row::null(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }

std::int64_t Row::integer(int column) const { return sqlite3_column_int64(statement_, column); }

std::string Row::text(int column) const {
  const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  const int size = sqlite3_column_bytes(statement_, column);
  return data == nullptr ? std::string{} : std::string(data, static_cast<std::size_t>(size));
}

Result<std::unique_ptr<Db>> Db::open(const std::string& path, Mode mode) {
  if (mode == Mode::writer) {
    // Made here and not by SQLite: 0600 whatever the umask is; -wal and -shm copy the mode. Only
    // if missing: closing a descriptor of a file drops this process's locks on it (fcntl(2)).
    const auto made = open_at(AT_FDCWD, path, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (!made && made.error().sys != EEXIST) {
      return std::unexpected(made.error());
    }
  }
  const int access = mode == Mode::writer ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY;
  sqlite3* handle = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &handle, access | SQLITE_OPEN_NOMUTEX, nullptr);
  std::unique_ptr<Db> db{new Db(handle)};
  if (code != SQLITE_OK) {
    return db->error(code, "open " + path);
  }
  sqlite3_extended_result_codes(handle, 1);
  sqlite3_busy_timeout(handle, kBusyTimeoutMs);
  if (auto done = configure(*db, mode); !done) {
    return std::unexpected(std::move(done).error().in("open " + path));
  }
  return db;
}

Db::~Db() {
  for (const auto& [sql, statement] : cache_) {
    sqlite3_finalize(statement);
  }
  sqlite3_close(handle_);
}

Result<> Db::script(const std::string& sql) {
  const int code = sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) {
    return error(code, "store");
  }
  return {};
}

bool Db::in_transaction() const { return sqlite3_get_autocommit(handle_) == 0; }

std::int64_t Db::changes() const { return sqlite3_changes64(handle_); }

Db::Running::~Running() {
  sqlite3_reset(statement);
  sqlite3_clear_bindings(statement);
}

Result<sqlite3_stmt*> Db::start(std::string_view sql) {
  const auto found = cache_.find(sql);
  if (found != cache_.end()) {
    // A callback of each() that runs the same text again would disturb the outer loop.
    TALON_ASSERT(sqlite3_stmt_busy(found->second) == 0);
    return found->second;
  }
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v3(handle_, sql.data(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (code != SQLITE_OK) {
    return error(code, "store");
  }
  cache_.emplace(sql, statement);
  return statement;
}

Result<bool> Db::step(sqlite3_stmt* statement) {
  const int code = sqlite3_step(statement);
  if (code == SQLITE_ROW) {
    return true;
  }
  if (code == SQLITE_DONE) {
    return false;
  }
  return error(code, "store");
}

std::unexpected<Error> Db::error(int code, std::string_view what) const {
  const int sys = handle_ != nullptr ? sqlite3_system_errno(handle_) : 0;
  const char* text = handle_ != nullptr ? sqlite3_errmsg(handle_) : "out of memory";
  std::string message = std::string{what} + ": " + text;
  const int primary = code & 0xff;
  if (primary == SQLITE_FULL || (primary == SQLITE_IOERR && (sys == ENOSPC || sys == EDQUOT))) {
    return std::unexpected(
        Error{.code = Code::disk_full, .sys = ENOSPC, .message = std::move(message), .field = {}});
  }
  if (code == SQLITE_CONSTRAINT_UNIQUE || code == SQLITE_CONSTRAINT_PRIMARYKEY) {
    return fail(Code::conflict, std::move(message));
  }
  if (primary == SQLITE_BUSY || primary == SQLITE_LOCKED) {
    return fail(Code::unavailable, std::move(message));
  }
  if (primary == SQLITE_TOOBIG) {
    return fail(Code::too_large, std::move(message));
  }
  if (primary == SQLITE_IOERR || primary == SQLITE_CANTOPEN || primary == SQLITE_CORRUPT ||
      primary == SQLITE_NOTADB || primary == SQLITE_READONLY) {
    return std::unexpected(
        Error{.code = Code::io, .sys = sys, .message = std::move(message), .field = {}});
  }
  return fail(Code::internal, std::move(message));
}

void Db::bind(sqlite3_stmt* statement, int index, std::int64_t value) {
  sqlite3_bind_int64(statement, index, value);
}

void Db::bind(sqlite3_stmt* statement, int index, std::string_view value) {
  // A null pointer would bind NULL; an empty text is a text.
  const char* data = value.data() != nullptr ? value.data() : "";
  sqlite3_bind_text64(statement, index, data, value.size(), SQLITE_STATIC, SQLITE_UTF8);
}

void Db::bind_null(sqlite3_stmt* statement, int index) { sqlite3_bind_null(statement, index); }

int page_limit(int limit) { return std::clamp(limit, 1, 1000); }

std::string to_text(const PageCursor& cursor) {
  return std::to_string(cursor.time) + "." + cursor.id;
}

Result<PageCursor> parse_page_cursor(std::string_view text) {
  PageCursor cursor;
  const char* const last = text.data() + text.size();
  const auto [end, code] = std::from_chars(text.data(), last, cursor.time);
  if (code != std::errc{} || end == last || *end != '.' || end + 1 == last) {
    return bad_field("cursor", "cursor is not one that a list answered");
  }
  cursor.id.assign(end + 1, last);
  return cursor;
}

}  // namespace talon::store
