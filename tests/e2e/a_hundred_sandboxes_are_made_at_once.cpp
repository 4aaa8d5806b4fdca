#include <catch2/catch.hpp>

#include <atomic>
#include <set>
#include <thread>

#include "support/daemon.h"

using namespace talon::test;
namespace json = boost::json;

TEST_CASE("a hundred sandboxes are made at once") {
  constexpr int kCount = 100;
  constexpr int kThreads = 20;
  Daemon daemon;
  const auto client = daemon.client();
  client.del("/v1/sandboxes/" + make_sandbox(client));
  const auto before = daemon.snapshot();

  std::vector<Reply> made(kCount);
  std::vector<Reply> ran(kCount);
  std::vector<Reply> deleted(kCount);
  std::atomic<int> next = 0;
  auto worker = [&] {
    for (int i; (i = next++) < kCount;) {
      const auto n = static_cast<std::size_t>(i);
      made[n] = client.post("/v1/sandboxes?wait=running", json::object());
      const auto id = made[n].text("id");
      ran[n] = client.post("/v1/sandboxes/" + id + "/run",
                           json::object{{"command", "echo " + std::to_string(i) + "; hostname"}});
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back(worker);
  }
  for (auto& thread : threads) {
    thread.join();
  }
  threads.clear();

  std::set<std::string> ids;
  for (std::size_t i = 0; i < kCount; ++i) {
    INFO(i << ": " << made[i].status << " " << made[i].error << made[i].body << " run "
           << ran[i].status << ran[i].error << ran[i].body);
    REQUIRE(made[i].status == 201);
    REQUIRE(ran[i].status == 200);
    CHECK(ran[i].text("stdout").starts_with(std::to_string(i) + "\n"));
    ids.insert(made[i].text("id"));
  }
  CHECK(ids.size() == kCount);
  CHECK(daemon.processes("").size() >= kCount);  // one init each

  next = 0;
  auto ender = [&] {
    for (int i; (i = next++) < kCount;) {
      const auto n = static_cast<std::size_t>(i);
      deleted[n] = client.del("/v1/sandboxes/" + made[n].text("id"));
    }
  };
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back(ender);
  }
  for (auto& thread : threads) {
    thread.join();
  }
  for (const auto& reply : deleted) {
    CHECK(reply.status == 204);
  }
  CHECK(daemon.settled(before, Seconds(20)) == std::vector<std::string>());
}
