#pragma once
// Metadata in SQLite (WAL, synchronous=FULL). One writer thread commits in groups: write()
// returns when the row is on disk, however many callers wait together. Readers have their own
// read-only connections. Synchronous; servers call it through offload. Every row carries its
// tenant. Migrations are forward only, by PRAGMA user_version; a newer file is refused.
//
// Rows and their functions: tables.h (one .cpp per table family). A write is a closure over the
// writer's connection; a full disk fails every write of its group with disk_full and leaves
// nothing half done.

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>

#include "base/error.h"

struct sqlite3;

namespace talon::store {

class Db;  // a connection with its prepared statements (db.h)

class Store {
 public:
  // Opens or creates `path` (0600). The data directory's lock is the caller's (app.cpp).
  static Result<std::unique_ptr<Store>> open(const std::string& path);
  ~Store();  // drains the queue, checkpoints (TRUNCATE), closes

  // Runs `work` on the writer thread inside the current group's transaction (under a savepoint
  // of its own: its error undoes only it), waits until the group has been committed.
  Result<> write(std::function<Result<>(Db&)> work);
  // The same for callers that must not block: `done` gets the result on the writer thread, after
  // the commit; it must be quick and must not call write() or flush().
  void write_then(std::function<Result<>(Db&)> work, std::function<void(Result<>)> done);
  // The same without an answer (exec rows: decision 25). Errors are counted and given to the
  // hook; when tens of thousands of writes wait, more are dropped and counted too.
  void write_behind(std::function<Result<>(Db&)> work);
  // `work` on a reader connection; many at a time.
  Result<> read(const std::function<Result<>(Db&)>& work) const;

  std::uint64_t commits() const;
  std::uint64_t behind_errors() const;
  // Called for each error of write_behind, from any thread. Set before the first write.
  void on_behind_error(std::function<void(const Error&)> hook);
  // Returns when everything queued before the call is on disk.
  void flush();

 private:
  struct Impl;
  explicit Store(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace talon::store
