#pragma once
// One SQLite connection and its prepared statements. Statements are prepared once per text and
// kept; values are bound by position. SQL errors come back as Error:
//   unique or primary key violated  conflict
//   SQLITE_FULL, ENOSPC, EDQUOT     disk_full
//   busy past the timeout           unavailable
//   not a database, damaged         io
//   anything else                   internal
// Used by one thread at a time. Private to lib/store and its tests.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "base/error.h"

struct sqlite3;
struct sqlite3_stmt;

namespace talon::store {

// The present row of a running statement; valid inside the callback of Db::each only.
class Row {
 public:
  explicit Row(sqlite3_stmt* statement) : statement_(statement) {}
  bool null(int column) const;
  std::int64_t integer(int column) const;
  std::string text(int column) const;
  std::optional<std::int64_t> maybe_integer(int column) const {
    return null(column) ? std::nullopt : std::optional{integer(column)};
  }
  std::optional<std::string> maybe_text(int column) const {
    return null(column) ? std::nullopt : std::optional{text(column)};
  }

 private:
  sqlite3_stmt* statement_;
};

class Db {
 public:
  enum class Mode { writer, reader };
  // Writer: made if missing, WAL, synchronous=FULL. Reader: read-only.
  static Result<std::unique_ptr<Db>> open(const std::string& path, Mode mode);
  ~Db();
  Db(const Db&) = delete;
  Db& operator=(const Db&) = delete;

  // A script without parameters (migrations, pragmas); rows are thrown away.
  Result<> script(const std::string& sql);

  // One statement with its values; returns the number of rows it changed.
  template <class... Args>
  Result<std::int64_t> run(std::string_view sql, const Args&... args) {
    return each(sql, [](const Row&) {}, args...);
  }

  // Calls `row(const Row&)` for every row. The callback may copy values out, nothing else: the
  // statement is running.
  template <class Fn, class... Args>
  Result<std::int64_t> each(std::string_view sql, Fn&& row, const Args&... args) {
    TALON_TRY(statement, start(sql));
    const Running guard{statement};
    int index = 0;
    (bind(statement, ++index, args), ...);
    for (;;) {
      TALON_TRY(more, step(statement));
      if (!more) {
        return changes();
      }
      row(Row{statement});
    }
  }

  // False once an error (SQLITE_FULL, IOERR) has rolled the whole transaction back.
  bool in_transaction() const;
  std::size_t cached_statements() const { return cache_.size(); }

 private:
  explicit Db(sqlite3* handle) : handle_(handle) {}
  // Resets the statement when the work on it is over, so that it holds no lock and no pointer
  // to bound text.
  struct Running {
    sqlite3_stmt* statement;
    ~Running();
  };

  Result<sqlite3_stmt*> start(std::string_view sql);
  Result<bool> step(sqlite3_stmt* statement);
  std::int64_t changes() const;
  std::unexpected<Error> error(int code, std::string_view what) const;

  // Bound text is not copied: it outlives the statement's run.
  static void bind(sqlite3_stmt* statement, int index, std::int64_t value);
  static void bind(sqlite3_stmt* statement, int index, std::string_view value);
  static void bind_null(sqlite3_stmt* statement, int index);
  template <class T>
    requires(std::is_integral_v<T> && !std::is_same_v<T, std::int64_t>)
  static void bind(sqlite3_stmt* statement, int index, T value) {
    bind(statement, index, static_cast<std::int64_t>(value));
  }
  template <class T>
  static void bind(sqlite3_stmt* statement, int index, const std::optional<T>& value) {
    if (value) {
      bind(statement, index, *value);
    } else {
      bind_null(statement, index);
    }
  }
  static void bind(sqlite3_stmt* statement, int index, const std::string& value) {
    bind(statement, index, std::string_view{value});
  }
  static void bind(sqlite3_stmt* statement, int index, const char* value) {
    bind(statement, index, std::string_view{value});
  }

  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>{}(text);
    }
  };
  sqlite3* handle_;
  std::unordered_map<std::string, sqlite3_stmt*, Hash, std::equal_to<>> cache_;
};

// Brings the file to the newest schema, one transaction a step (PRAGMA user_version). A file of
// a newer talond, or of another program, is refused with wrong_state and left as it is.
Result<> migrate(Db& db, const std::string& path);
int latest_schema();

// Number of rows a page may hold: `limit` clamped to 1..1000.
int page_limit(int limit);

// Cursor of pages that run newest first: "<time>.<id>".
struct PageCursor {
  std::int64_t time = 0;
  std::string id;
};
std::string to_text(const PageCursor& cursor);
Result<PageCursor> parse_page_cursor(std::string_view text);  // bad_field("cursor", …)

}  // namespace talon::store
