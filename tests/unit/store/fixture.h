#pragma once
// A store in a directory of its own, removed at the end.

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <string>

#include "store/db.h"
#include "store/store.h"
#include "store/tables.h"

namespace store_test {

struct TempDir {
  TempDir() {
    std::string name = "/tmp/talon-store-XXXXXX";
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~TempDir() { std::filesystem::remove_all(path); }
  std::string db() const { return path + "/talon.db"; }
  std::string path;
};

struct Fixture {
  TempDir dir;
  std::unique_ptr<talon::store::Store> store = open();

  std::unique_ptr<talon::store::Store> open() const {
    auto opened = talon::store::Store::open(dir.db());
    if (!opened) {
      FAIL(opened.error().message);
    }
    return std::move(*opened);
  }

  // Runs `work(Db&)` and gives its value out of the closure; the error fails the case.
  template <class Work>
  auto write(Work work) {
    using Value = decltype(work(std::declval<talon::store::Db&>()));
    Value value{};
    const auto done = store->write([&](talon::store::Db& db) -> talon::Result<> {
      value = work(db);
      if (!value) {
        return std::unexpected(value.error());
      }
      return {};
    });
    if (value && !done) {
      value = std::unexpected(done.error());
    }
    return value;
  }
  template <class Work>
  auto read(Work work) const {
    using Value = decltype(work(std::declval<talon::store::Db&>()));
    Value value{};
    const auto done = store->read([&](talon::store::Db& db) -> talon::Result<> {
      value = work(db);
      if (!value) {
        return std::unexpected(value.error());
      }
      return {};
    });
    if (value && !done) {
      value = std::unexpected(done.error());
    }
    return value;
  }

  std::int64_t scalar(const std::string& sql) const {
    const auto value = read([&](talon::store::Db& db) -> talon::Result<std::int64_t> {
      std::int64_t out = -1;
      TALON_CHECK(db.each(sql, [&](const talon::store::Row& row) { out = row.integer(0); }));
      return out;
    });
    if (!value) {
      FAIL(value.error().message);
    }
    return *value;
  }
};

inline talon::store::SandboxRow sandbox(std::string id, std::string tenant,
                                        std::int64_t created_ms = 1000) {
  talon::store::SandboxRow row;
  row.id = std::move(id);
  row.tenant = std::move(tenant);
  row.state = "running";
  row.image = "host";
  row.spec_json = "{}";
  row.labels_json = "{}";
  row.created_ms = created_ms;
  row.updated_ms = created_ms;
  return row;
}

}  // namespace store_test
