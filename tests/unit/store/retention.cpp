// What is taken away after its time, and what is not.
#include <fstream>

#include "fixture.h"

using namespace talon;
using namespace talon::store;
using namespace store_test;

namespace {

ExecRow exec(const std::string& id, const std::string& sandbox, const std::string& state,
             std::int64_t started_ms) {
  return {.id = id,
          .sandbox = sandbox,
          .tenant = "tn1",
          .state = state,
          .spec_json = "{}",
          .pid = 1,
          .result_json = "",
          .certificate_json = "why",
          .started_ms = started_ms,
          .ended_ms = {}};
}

SandboxRow deleted(const std::string& id, std::int64_t ended_ms) {
  SandboxRow row = sandbox(id, "tn1");
  row.state = "deleted";
  row.workspace = "ws" + id;
  row.ended_ms = ended_ms;
  return row;
}

}  // namespace

TEST_CASE_METHOD(Fixture, "execs: the newest ended ones stay, and every running one") {
  REQUIRE(write([](Db& db) -> Result<> {
            for (int i = 0; i < 10; ++i) {
              TALON_CHECK(upsert_exec(db, exec("px" + std::to_string(i), "sb1", "exited", i)));
            }
            TALON_CHECK(upsert_exec(db, exec("pxold", "sb1", "running", 0)));
            return upsert_exec(db, exec("pxother", "sb2", "exited", 0));
          }).has_value());
  CHECK(*write([](Db& db) { return trim_execs_of(db, "sb1", 10); }) == 0);
  CHECK(*write([](Db& db) { return trim_execs_of(db, "sb1", 4); }) == 6);
  CHECK(scalar("SELECT count(*) FROM execs WHERE sandbox = 'sb1' AND state = 'exited'") == 4);
  CHECK(scalar("SELECT min(started_ms) FROM execs WHERE sandbox = 'sb1' AND state = 'exited'") ==
        6);
  CHECK(scalar("SELECT count(*) FROM execs WHERE id IN ('pxold', 'pxother')") == 2);
}

TEST_CASE_METHOD(Fixture, "deleted sandboxes go after their time, with all that was kept of them") {
  REQUIRE(write([](Db& db) -> Result<> {
            for (const auto& [id, ended] : {std::pair{"sb1", 100}, {"sb2", 200}, {"sb3", 300}}) {
              TALON_CHECK(insert_sandbox(db, deleted(id, ended)));
              TALON_CHECK(upsert_exec(db, exec(std::string{"px"} + id, id, "exited", 1)));
              TALON_CHECK(insert_workspace(db, {.id = std::string{"ws"} + id,
                                                .tenant = "tn1",
                                                .name = "",
                                                .is_private = true,
                                                .generation = 1,
                                                .created_ms = 1,
                                                .deleted_ms = ended}));
            }
            SandboxRow stopped = sandbox("sb4", "tn1");
            stopped.state = "stopped";
            stopped.ended_ms = 50;
            return insert_sandbox(db, stopped);
          }).has_value());
  CHECK(*write([](Db& db) { return expire_sandboxes(db, 300, 1); }) == 1);
  CHECK(scalar("SELECT count(*) FROM sandboxes WHERE id = 'sb1'") == 0);  // the oldest first
  CHECK(*write([](Db& db) { return expire_sandboxes(db, 300, 10); }) == 1);
  CHECK(*write([](Db& db) { return expire_sandboxes(db, 300, 10); }) == 0);
  CHECK(scalar("SELECT count(*) FROM execs") == 1);
  CHECK(scalar("SELECT count(*) FROM workspaces") == 1);
  CHECK(scalar("SELECT count(*) FROM sandboxes WHERE id IN ('sb3', 'sb4')") == 2);
}

TEST_CASE_METHOD(Fixture, "events go after their time, oldest first, and their numbers stay used") {
  REQUIRE(write([](Db& db) -> Result<> {
            for (std::int64_t at = 1; at <= 6; ++at) {
              TALON_CHECK(insert_event(db, {0, "tn1", "sb1", "sandbox.changed", "{}", at * 100}));
            }
            return {};
          }).has_value());
  CHECK(*write([](Db& db) { return expire_events(db, 50, 10); }) == 0);
  CHECK(*write([](Db& db) { return expire_events(db, 400, 2); }) == 2);
  CHECK(scalar("SELECT min(at_ms) FROM events") == 300);
  CHECK(*write([](Db& db) { return expire_events(db, 400, 10); }) == 1);
  CHECK(scalar("SELECT min(at_ms) FROM events") == 400);
  CHECK(*write([](Db& db) { return expire_events(db, 9000, 10); }) == 3);
  REQUIRE(write([](Db& db) {
            return insert_event(db, {0, "tn1", "sb1", "sandbox.changed", "{}", 700});
          }).has_value());
  CHECK(scalar("SELECT seq FROM events") == 7);
}

TEST_CASE_METHOD(Fixture, "a database of schema 1 keeps its execs and gets their new column") {
  store.reset();
  std::filesystem::remove_all(dir.path);
  std::filesystem::create_directory(dir.path);
  {
    std::ifstream in{TALON_SOURCE_DIR "/lib/store/sql/0001_initial.sql"};
    const std::string schema{std::istreambuf_iterator<char>{in}, {}};
    auto db = Db::open(dir.db(), Db::Mode::writer);
    REQUIRE(db.has_value());
    REQUIRE((*db)
                ->script(schema +
                         "INSERT INTO execs VALUES ('px1', 'sb1', 'tn1', 'exited', '{}', 1, '', 1, "
                         "2); PRAGMA application_id=0x54414C4E; PRAGMA user_version=1")
                .has_value());
  }
  store = open();
  CHECK(scalar("PRAGMA user_version") == latest_schema());
  const auto row = *read([](Db& db) { return get_exec(db, "tn1", "sb1", "px1"); });
  CHECK(row.state == "exited");
  CHECK(row.certificate_json.empty());
}
