// The writer thread: groups, savepoints, order, races, and readers beside it.
#include <atomic>
#include <latch>
#include <thread>

#include "fixture.h"

using namespace talon;
using namespace talon::store;
using namespace store_test;

namespace {

// Holds the writer thread inside a closure until opened, so that a group piles up behind it.
struct Gate {
  std::latch entered{1};
  std::latch open{1};
  std::function<Result<>(Db&)> closure() {
    return [this](Db&) -> Result<> {
      entered.count_down();
      open.wait();
      return {};
    };
  }
};

}  // namespace

TEST_CASE_METHOD(Fixture, "writes of many threads share commits and all are there") {
  constexpr int kThreads = 16;
  constexpr int kEach = 40;
  std::atomic<int> failed{0};
  const auto before = store->commits();
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kEach; ++i) {
          const std::string key = std::to_string(t) + "." + std::to_string(i);
          if (!store->write([&](Db& db) { return set_setting(db, key, key); })) {
            ++failed;
          }
        }
      });
    }
  }
  CHECK(failed == 0);
  CHECK(scalar("SELECT count(*) FROM settings") == kThreads * kEach);
  const auto commits = store->commits() - before;
  CHECK(commits > 0);
  CHECK(commits < kThreads * kEach / 2);
}

TEST_CASE_METHOD(Fixture, "a group is at most 256 writes") {
  Gate gate;
  store->write_behind(gate.closure());
  gate.entered.wait();
  const auto before = store->commits();
  for (int i = 0; i < 600; ++i) {
    store->write_behind([i](Db& db) { return set_setting(db, std::to_string(i), "x"); });
  }
  gate.open.count_down();
  store->flush();
  // The gate's own group, then 256 + 256 + 88 (+ the flush, which is in the last group).
  CHECK(store->commits() - before == 4);
  CHECK(scalar("SELECT count(*) FROM settings") == 600);
}

TEST_CASE_METHOD(Fixture, "an error undoes its own closure and no other of the group") {
  Gate gate;
  store->write_behind(gate.closure());
  gate.entered.wait();
  const auto before = store->commits();
  std::atomic<int> done{0};
  std::vector<Result<>> results(3);
  const auto add = [&](std::size_t slot, std::function<Result<>(Db&)> work) {
    store->write_then(std::move(work), [&, slot](Result<> result) {
      results[slot] = std::move(result);
      ++done;
    });
  };
  add(0, [](Db& db) { return set_setting(db, "a", "1"); });
  add(1, [](Db& db) -> Result<> {
    TALON_CHECK(set_setting(db, "a", "overwritten"));
    TALON_CHECK(set_setting(db, "b", "2"));
    return fail(Code::wrong_state, "changed my mind");
  });
  add(2, [](Db& db) { return set_setting(db, "c", "3"); });
  gate.open.count_down();
  store->flush();
  CHECK(done == 3);
  CHECK(results[0].has_value());
  CHECK(results[1].error().code == Code::wrong_state);
  CHECK(results[1].error().message == "changed my mind");
  CHECK(results[2].has_value());
  CHECK(store->commits() - before == 2);
  CHECK(*read([](Db& db) { return get_setting(db, "a"); }) == "1");
  CHECK_FALSE(read([](Db& db) { return get_setting(db, "b"); })->has_value());
  CHECK(*read([](Db& db) { return get_setting(db, "c"); }) == "3");
}

TEST_CASE_METHOD(Fixture, "a constraint inside a group is the writer's own conflict") {
  Gate gate;
  store->write_behind(gate.closure());
  gate.entered.wait();
  std::vector<Code> codes;
  for (int i = 0; i < 3; ++i) {
    store->write_then([](Db& db) { return insert_tenant(db, {"tn1", "same", 1}); },
                      [&](const Result<>& result) {
                        codes.push_back(result ? Code::internal : result.error().code);
                      });
  }
  gate.open.count_down();
  store->flush();
  // internal stands for "no error" here: the first one won.
  CHECK(codes == std::vector{Code::internal, Code::conflict, Code::conflict});
  CHECK(scalar("SELECT count(*) FROM tenants") == 1);
}

TEST_CASE_METHOD(Fixture, "an answer comes after the commit: a reader sees the row at once") {
  for (int i = 0; i < 50; ++i) {
    const std::string value = std::to_string(i);
    REQUIRE(store->write([&](Db& db) { return set_setting(db, "k", value); }).has_value());
    CHECK(*read([](Db& db) { return get_setting(db, "k"); }) == value);
  }
}

TEST_CASE_METHOD(Fixture, "exactly one of many threads claims an idempotency key") {
  constexpr int kThreads = 16;
  for (int round = 0; round < 10; ++round) {
    std::atomic<int> claimed{0};
    std::atomic<int> refused{0};
    std::latch start{kThreads};
    {
      std::vector<std::jthread> threads;
      for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&] {
          const IdempotencyRow row{.tenant = "tn1",
                                   .key = "k" + std::to_string(round),
                                   .route = "r",
                                   .request_hash = "h",
                                   .status = 0,
                                   .response = "",
                                   .target = "",
                                   .created_ms = 1};
          start.arrive_and_wait();
          bool ours = false;
          const auto done = store->write([&](Db& db) -> Result<> {
            TALON_TRY(present, claim_idempotency(db, row));
            ours = !present.has_value();
            return {};
          });
          ++(done && ours ? claimed : refused);
        });
      }
    }
    CHECK(claimed == 1);
    CHECK(refused == kThreads - 1);
  }
}

TEST_CASE_METHOD(Fixture, "errors of writes behind are counted and told to the hook") {
  std::vector<std::string> told;
  store->on_behind_error([&](const Error& error) { told.push_back(error.message); });
  store->write_behind([](Db&) -> Result<> { return fail(Code::internal, "no"); });
  store->write_behind([](Db& db) { return set_setting(db, "k", "v"); });
  store->flush();
  CHECK(store->behind_errors() == 1);
  CHECK(told == std::vector<std::string>{"no"});
  CHECK(*read([](Db& db) { return get_setting(db, "k"); }) == "v");
}

TEST_CASE_METHOD(Fixture, "closing the store writes what is queued") {
  for (int i = 0; i < 300; ++i) {
    store->write_behind([i](Db& db) { return set_setting(db, std::to_string(i), "x"); });
  }
  store.reset();
  CHECK(std::filesystem::exists(dir.db()));
  // The last connection's close leaves one file: the log was checkpointed into it.
  CHECK_FALSE(std::filesystem::exists(dir.db() + "-wal"));
  store = open();
  CHECK(scalar("SELECT count(*) FROM settings") == 300);
}

TEST_CASE_METHOD(Fixture, "an exception in a closure is an error and the writer lives on") {
  const auto thrown = store->write([](Db&) -> Result<> { throw std::bad_alloc(); });
  CHECK(thrown.error().code == Code::internal);
  CHECK(store->write([](Db& db) { return set_setting(db, "k", "v"); }).has_value());
}

TEST_CASE_METHOD(Fixture, "readers cannot write and see one snapshot per call") {
  CHECK_FALSE(read([](Db& db) { return set_setting(db, "k", "v"); }).has_value());
  REQUIRE(store->write([](Db& db) { return set_setting(db, "k", "old"); }).has_value());
  std::string first;
  std::string second;
  REQUIRE(store
              ->read([&](Db& db) -> Result<> {
                TALON_TRY(before, get_setting(db, "k"));
                first = before.value_or("");
                TALON_CHECK(store->write([](Db& w) { return set_setting(w, "k", "new"); }));
                TALON_TRY(after, get_setting(db, "k"));
                second = after.value_or("");
                return {};
              })
              .has_value());
  CHECK(first == "old");
  CHECK(second == "old");
  CHECK(*read([](Db& db) { return get_setting(db, "k"); }) == "new");
}

TEST_CASE_METHOD(Fixture, "readers run beside each other and beside the writer") {
  Gate gate;
  store->write_behind(gate.closure());  // the write transaction is open
  gate.entered.wait();
  std::latch all_inside{8};
  std::atomic<int> good{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&] {
        const auto done = store->read([&](Db& db) -> Result<> {
          TALON_CHECK(get_setting(db, "k"));
          all_inside.arrive_and_wait();  // passes only if all eight are in at the same time
          return {};
        });
        good += done.has_value() ? 1 : 0;
      });
    }
  }
  gate.open.count_down();
  store->flush();
  CHECK(good == 8);
}

TEST_CASE_METHOD(Fixture, "a statement is prepared once") {
  REQUIRE(store
              ->write([](Db& db) -> Result<> {
                TALON_CHECK(set_setting(db, "a", "1"));
                const std::size_t before = db.cached_statements();
                for (int i = 0; i < 100; ++i) {
                  TALON_CHECK(set_setting(db, "a", std::to_string(i)));
                }
                return db.cached_statements() == before ? Result<>{}
                                                        : fail(Code::internal, "prepared again");
              })
              .has_value());
}
