// Lists of sandboxes and execs: filters, and pages that stay put while rows come and go.
#include <algorithm>
#include <set>

#include "fixture.h"

using namespace talon;
using namespace talon::store;
using namespace store_test;

namespace {

std::vector<std::string> ids(const SandboxPage& page) {
  std::vector<std::string> out;
  for (const auto& row : page.rows) {
    out.push_back(row.id);
  }
  return out;
}

using Ids = std::vector<std::string>;

}  // namespace

TEST_CASE_METHOD(Fixture, "pages run newest first and are stable under inserts and deletes") {
  for (int i = 0; i < 10; ++i) {
    // Two rows share each millisecond: the id decides between them.
    REQUIRE(write([&](Db& db) {
              return insert_sandbox(db, sandbox("sb" + std::to_string(i), "tn1", 100 + i / 2));
            }).has_value());
  }
  SandboxFilter filter;
  filter.tenant = "tn1";
  filter.limit = 4;
  const auto first = *read([&](Db& db) { return list_sandboxes(db, filter); });
  CHECK(ids(first) == Ids{"sb9", "sb8", "sb7", "sb6"});
  REQUIRE_FALSE(first.next.empty());

  // Newer rows and the row of the cursor itself change between two pages.
  REQUIRE(
      write([](Db& db) { return insert_sandbox(db, sandbox("sbnew", "tn1", 500)); }).has_value());
  SandboxRow gone = sandbox("sb6", "tn1", 103);
  gone.state = "deleted";
  REQUIRE(write([&](Db& db) { return update_sandbox(db, gone); }).has_value());

  filter.after = first.next;
  const auto second = *read([&](Db& db) { return list_sandboxes(db, filter); });
  CHECK(ids(second) == Ids{"sb5", "sb4", "sb3", "sb2"});
  filter.after = second.next;
  const auto third = *read([&](Db& db) { return list_sandboxes(db, filter); });
  CHECK(ids(third) == Ids{"sb1", "sb0"});
  CHECK(third.next.empty());
}

TEST_CASE_METHOD(Fixture, "an exact last page has no next cursor") {
  for (int i = 0; i < 4; ++i) {
    REQUIRE(write([&](Db& db) {
              return insert_sandbox(db, sandbox("sb" + std::to_string(i), "tn1", i));
            }).has_value());
  }
  SandboxFilter filter;
  filter.limit = 4;
  CHECK(read([&](Db& db) { return list_sandboxes(db, filter); })->next.empty());
  filter.limit = 0;  // clamped to 1
  CHECK(read([&](Db& db) { return list_sandboxes(db, filter); })->rows.size() == 1);
}

TEST_CASE_METHOD(Fixture, "a cursor that no list answered is invalid_request") {
  for (const char* bad : {"x", "5", "5.", ".sb1", "sb1.5", "99999999999999999999.sb1", "5 .a"}) {
    CAPTURE(bad);
    SandboxFilter filter;
    filter.after = bad;
    const auto page = read([&](Db& db) { return list_sandboxes(db, filter); });
    REQUIRE_FALSE(page.has_value());
    CHECK(page.error().code == Code::invalid_request);
    CHECK(page.error().field == "cursor");
    CHECK(read([&](Db& db) { return list_execs(db, "tn1", "sb1", bad, 5); }).error().field ==
          "cursor");
  }
}

TEST_CASE_METHOD(Fixture, "lists filter by tenant, state and all labels") {
  const auto add = [&](std::string id, std::string tenant, std::string state, std::string labels) {
    SandboxRow row = sandbox(std::move(id), std::move(tenant));
    row.state = std::move(state);
    row.labels_json = std::move(labels);
    REQUIRE(write([&](Db& db) { return insert_sandbox(db, row); }).has_value());
  };
  add("sb1", "tn1", "running", R"({"a":"1","b":"2"})");
  add("sb2", "tn1", "paused", R"({"a":"1"})");
  add("sb3", "tn1", "deleted", R"({"a":"1"})");
  add("sb4", "tn2", "running", R"({"a":"1"})");
  add("sb5", "tn1", "failed", "");
  add("sb6", "tn1", "running", R"({"q\"uote":"v'al","a":"10"})");
  using Labels = std::vector<std::pair<std::string, std::string>>;
  const auto list = [&](std::string tenant, Ids states, Labels labels) {
    SandboxFilter filter;
    filter.tenant = std::move(tenant);
    filter.states = std::move(states);
    filter.labels = std::move(labels);
    auto page = read([&](Db& db) { return list_sandboxes(db, filter); });
    REQUIRE(page.has_value());
    auto out = ids(*page);
    std::ranges::sort(out);
    return out;
  };
  CHECK(list("tn1", {}, {}) == Ids{"sb1", "sb2", "sb5", "sb6"});
  CHECK(list("", {}, {}) == Ids{"sb1", "sb2", "sb4", "sb5", "sb6"});
  CHECK(list("tn1", {"deleted"}, {}) == Ids{"sb3"});
  CHECK(list("tn1", {"running", "failed"}, {}) == Ids{"sb1", "sb5", "sb6"});
  CHECK(list("tn1", {}, {{"a", "1"}}) == Ids{"sb1", "sb2"});
  CHECK(list("tn1", {}, {{"a", "1"}, {"b", "2"}}) == Ids{"sb1"});
  CHECK(list("tn1", {}, {{"a", "1"}, {"b", "3"}}).empty());
  CHECK(list("tn1", {}, {{"q\"uote", "v'al"}}) == Ids{"sb6"});
  CHECK(list("tn1", {"x' OR 1=1 --"}, {}).empty());

  const auto count = [&](std::string tenant, std::vector<std::string> states) {
    return *read([&](Db& db) { return count_sandboxes(db, tenant, states); });
  };
  CHECK(count("tn1", {}) == 4);
  CHECK(count("", {}) == 5);
  CHECK(count("tn1", {"running"}) == 2);
  CHECK(count("", {"running", "deleted"}) == 4);
}

TEST_CASE_METHOD(Fixture, "the pages of a tenant's list use an index, not a sort") {
  const auto plan = *read([](Db& db) -> Result<std::string> {
    std::string text;
    TALON_CHECK(db.each(
        "EXPLAIN QUERY PLAN SELECT id FROM sandboxes WHERE tenant = ?1 AND state <> 'deleted' "
        "AND (created_ms, id) < (?2, ?3) ORDER BY created_ms DESC, id DESC LIMIT 5",
        [&](const Row& row) { text += row.text(3) + "\n"; }, "tn1", 5, "sb1"));
    return text;
  });
  CHECK(plan.find("USING INDEX sandboxes_of_tenant") != std::string::npos);
  CHECK(plan.find("TEMP B-TREE") == std::string::npos);
}

TEST_CASE_METHOD(Fixture, "execs of a sandbox page newest first") {
  for (int i = 0; i < 7; ++i) {
    const ExecRow row{.id = "px" + std::to_string(i),
                      .sandbox = i == 6 ? "sb2" : "sb1",
                      .tenant = "tn1",
                      .state = "running",
                      .spec_json = "{}",
                      .pid = i,
                      .result_json = "",
                      .started_ms = 50,
                      .ended_ms = {}};
    REQUIRE(write([&](Db& db) { return upsert_exec(db, row); }).has_value());
  }
  std::set<std::string> seen;
  std::string after;
  std::size_t pages = 0;
  do {
    const auto page = *read([&](Db& db) { return list_execs(db, "tn1", "sb1", after, 4); });
    for (const auto& row : page.rows) {
      CHECK(seen.insert(row.id).second);
    }
    after = page.next;
    ++pages;
  } while (!after.empty());
  CHECK(pages == 2);
  CHECK(seen.size() == 6);
  CHECK(read([](Db& db) { return list_execs(db, "tn2", "sb1", "", 4); })->rows.empty());
}

TEST_CASE_METHOD(Fixture, "an image is in use until the last sandbox made from it is deleted") {
  SandboxRow row = sandbox("sb1", "tn1");
  row.image_generation = 3;
  REQUIRE(write([&](Db& db) { return insert_sandbox(db, row); }).has_value());
  row.id = "sb2";
  REQUIRE(write([&](Db& db) { return insert_sandbox(db, row); }).has_value());
  const auto used = [&] { return *read([](Db& db) { return images_in_use(db); }); };
  CHECK(used() == Ids{"host-3"});
  row.state = "deleted";
  REQUIRE(write([&](Db& db) { return update_sandbox(db, row); }).has_value());
  CHECK(used() == Ids{"host-3"});
  row.id = "sb1";
  REQUIRE(write([&](Db& db) { return update_sandbox(db, row); }).has_value());
  CHECK(used().empty());
}

TEST_CASE_METHOD(Fixture, "a name finds the one sandbox alive that has it") {
  const auto add = [&](const char* id, const char* tenant, const char* name, const char* state) {
    auto row = sandbox(id, tenant, 100);
    row.name = name;
    row.state = state;
    REQUIRE(write([&](Db& db) { return insert_sandbox(db, row); }).has_value());
  };
  add("sb1", "tn1", "web", "deleted");
  add("sb2", "tn1", "web", "running");
  add("sb3", "tn1", "", "running");
  add("sb4", "tn2", "web", "running");
  SandboxFilter filter;
  filter.tenant = "tn1";
  filter.name = "web";
  CHECK(ids(*read([&](Db& db) { return list_sandboxes(db, filter); })) == Ids{"sb2"});
  filter.states = {"stopped"};
  CHECK(read([&](Db& db) { return list_sandboxes(db, filter); })->rows.empty());
  filter.states.clear();
  filter.name = "we";
  CHECK(read([&](Db& db) { return list_sandboxes(db, filter); })->rows.empty());
}
