// The file: its modes, its schema version, a full disk, and kill -9 in the middle.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "base/fd.h"
#include "fixture.h"

using namespace talon;
using namespace talon::store;
using namespace store_test;

namespace {

unsigned mode_of(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 ? info.st_mode & 07777U : 0;
}

// Runs `work` in a forked child and returns its exit code; 200 + n when a signal ended it.
int in_child(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(work());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 200 + WTERMSIG(status);
}

}  // namespace

TEST_CASE_METHOD(Fixture, "the files are the owner's alone, whatever the umask is") {
  store.reset();
  std::filesystem::remove(dir.db());
  const mode_t before = ::umask(0);
  store = open();
  REQUIRE(store->write([](Db& db) { return set_setting(db, "k", "v"); }).has_value());
  ::umask(before);
  CHECK(mode_of(dir.db()) == 0600);
  CHECK(mode_of(dir.db() + "-wal") == 0600);
  CHECK(mode_of(dir.db() + "-shm") == 0600);
}

TEST_CASE_METHOD(Fixture, "the writer runs in WAL mode with synchronous FULL") {
  std::string journal;
  std::int64_t synchronous = 0;
  const auto done = store->write([&](Db& db) -> Result<> {
    TALON_CHECK(db.each("PRAGMA journal_mode", [&](const Row& r) { journal = r.text(0); }));
    TALON_CHECK(db.each("PRAGMA synchronous", [&](const Row& r) { synchronous = r.integer(0); }));
    return {};
  });
  REQUIRE(done.has_value());
  CHECK(journal == "wal");
  CHECK(synchronous == 2);
}

TEST_CASE_METHOD(Fixture, "opening again changes nothing and keeps the rows") {
  REQUIRE(store->write([](Db& db) { return set_setting(db, "k", "v"); }).has_value());
  CHECK(scalar("PRAGMA user_version") == latest_schema());
  store.reset();
  store = open();
  CHECK(scalar("PRAGMA user_version") == latest_schema());
  CHECK(*read([](Db& db) { return get_setting(db, "k"); }) == "v");
}

TEST_CASE("a file of a newer talond is refused and left alone") {
  const TempDir dir;
  REQUIRE(Store::open(dir.db()).has_value());
  {
    auto db = Db::open(dir.db(), Db::Mode::writer);
    REQUIRE(db.has_value());
    REQUIRE((*db)->script("PRAGMA user_version=1000; CREATE TABLE future (x)").has_value());
  }
  const auto opened = Store::open(dir.db());
  REQUIRE_FALSE(opened.has_value());
  CHECK(opened.error().code == Code::wrong_state);
  CHECK(opened.error().message.find("newer talond (schema 1000") != std::string::npos);
  auto db = Db::open(dir.db(), Db::Mode::reader);
  REQUIRE(db.has_value());
  std::int64_t version = 0;
  REQUIRE((*db)
              ->each("PRAGMA user_version", [&](const Row& r) { version = r.integer(0); })
              .has_value());
  CHECK(version == 1000);
}

TEST_CASE("a database of another program and a file that is none are refused") {
  const TempDir dir;
  {
    auto db = Db::open(dir.db(), Db::Mode::writer);
    REQUIRE(db.has_value());
    REQUIRE((*db)->script("CREATE TABLE mine (x)").has_value());
  }
  const auto foreign = Store::open(dir.db());
  REQUIRE_FALSE(foreign.has_value());
  CHECK(foreign.error().code == Code::wrong_state);
  CHECK(foreign.error().message.find("another program") != std::string::npos);

  const std::string text = dir.path + "/text";
  std::ofstream{text} << std::string(5000, 'x');
  const auto garbage = Store::open(text);
  REQUIRE_FALSE(garbage.has_value());
  CHECK(garbage.error().code == Code::io);
  CHECK(garbage.error().message.find(text) != std::string::npos);
  CHECK(std::filesystem::file_size(text) == 5000);
  CHECK_FALSE(Store::open(dir.path + "/missing/talon.db").has_value());
}

TEST_CASE_METHOD(Fixture, "a page limit fails the whole group with disk_full and undoes it") {
  REQUIRE(store
              ->write([](Db& db) -> Result<> {
                TALON_CHECK(set_setting(db, "before", "1"));
                TALON_CHECK(db.script("PRAGMA max_page_count=60"));
                return {};
              })
              .has_value());
  std::vector<Result<>> results(3);
  std::size_t next = 0;
  const auto keep = [&](Result<> result) { results[next++] = std::move(result); };
  // One closure that waits keeps the next three in one group.
  std::atomic<bool> go{false};
  store->write_behind([&](Db&) -> Result<> {
    go.wait(false);
    return {};
  });
  store->write_then([](Db& db) { return set_setting(db, "small", "1"); }, keep);
  store->write_then([](Db& db) { return set_setting(db, "big", std::string(4 << 20, 'x')); }, keep);
  store->write_then([](Db& db) { return set_setting(db, "later", "1"); }, keep);
  go = true;
  go.notify_all();
  store->flush();
  REQUIRE(next == 3);
  for (const auto& result : results) {
    REQUIRE_FALSE(result.has_value());
    CHECK(result.error().code == Code::disk_full);
  }
  CHECK(scalar("SELECT count(*) FROM settings") == 1);
  // The writer works on as soon as there is room.
  REQUIRE(store->write([](Db& db) { return set_setting(db, "small", "1"); }).has_value());
  CHECK(scalar("SELECT count(*) FROM settings") == 2);
}

TEST_CASE("a full file system answers disk_full, loses nothing and recovers") {
  if (::geteuid() != 0) {
    WARN("SKIP: needs root to mount a small tmpfs in a private namespace");
    return;
  }
  const TempDir dir;
  const int code = in_child([&]() -> int {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", dir.path.c_str(), "tmpfs", 0, "size=1m") != 0) {
      return 100;
    }
    auto store = Store::open(dir.db());
    if (!store) {
      return 101;
    }
    const std::string value(8000, 'x');
    int written = 0;
    Code last = Code::internal;
    for (; written < 1000; ++written) {
      const auto key = std::to_string(written);
      const auto done = (*store)->write([&](Db& db) { return set_setting(db, key, value); });
      if (!done) {
        last = done.error().code;
        break;
      }
    }
    if (written == 1000 || last != Code::disk_full) {
      return 102;
    }
    const auto count = [&] {
      std::int64_t rows = -1;
      const auto done = (*store)->read([&](Db& db) -> Result<> {
        TALON_CHECK(
            db.each("SELECT count(*) FROM settings", [&](const Row& r) { rows = r.integer(0); }));
        return {};
      });
      return done ? rows : -1;
    };
    if (count() != written) {
      return 103;
    }
    // More room, as when the reserve is given up: the same store goes on.
    if (::mount("tmpfs", dir.path.c_str(), "tmpfs", MS_REMOUNT, "size=8m") != 0) {
      return 104;
    }
    if (!(*store)->write([&](Db& db) { return set_setting(db, "more", value); })) {
      return 105;
    }
    return count() == written + 1 ? 0 : 106;
  });
  if (code == 100) {
    WARN("SKIP: this host does not let root mount a tmpfs in a private namespace");
    return;
  }
  CHECK(code == 0);
}

TEST_CASE("kill -9 while writing loses no acknowledged row and damages nothing") {
  const TempDir dir;
  std::int64_t acknowledged = 0;
  for (int round = 0; round < 5; ++round) {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    const UniqueFd reader{ends[0]};
    UniqueFd writer{ends[1]};
    const pid_t child = ::fork();
    if (child == 0) {
      auto store = Store::open(dir.db());
      if (!store) {
        ::_exit(1);
      }
      for (std::int64_t i = acknowledged;; ++i) {
        const auto key = std::to_string(i);
        if (!(*store)->write([&](Db& db) { return set_setting(db, key, "x"); })) {
          ::_exit(1);
        }
        if (::write(ends[1], &i, sizeof i) != sizeof i) {
          ::_exit(1);
        }
      }
    }
    writer.reset();
    std::int64_t last = -1;
    for (int i = 0; i < 30 + round * 7; ++i) {
      REQUIRE(::read(reader.get(), &last, sizeof last) == sizeof last);
    }
    ::kill(child, SIGKILL);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    while (::read(reader.get(), &last, sizeof last) == sizeof last) {
    }
    acknowledged = last + 1;

    auto store = Store::open(dir.db());
    REQUIRE(store.has_value());
    std::string integrity;
    std::int64_t rows = 0;
    REQUIRE((*store)
                ->read([&](Db& db) -> Result<> {
                  TALON_CHECK(db.each("PRAGMA integrity_check",
                                      [&](const Row& r) { integrity = r.text(0); }));
                  TALON_CHECK(db.each("SELECT count(*) FROM settings",
                                      [&](const Row& r) { rows = r.integer(0); }));
                  return {};
                })
                .has_value());
    CHECK(integrity == "ok");
    CHECK(rows >= acknowledged);
    CHECK(rows <= acknowledged + 1);  // the one that was under way
  }
}
