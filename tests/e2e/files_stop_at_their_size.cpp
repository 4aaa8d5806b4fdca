// Decision 32: resources.disk and workspace.size hold, are reported, live as long as the sandbox
// whoever is killed, and leave nothing.
#include <catch2/catch.hpp>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "support/daemon.h"
#include "support/machine.h"

using namespace talon::test;
namespace fs = std::filesystem;
namespace json = boost::json;

namespace {

constexpr std::int64_t kMiB = 1 << 20;

// Of images below `dir` that are on loop devices now.
std::size_t loops_below(const std::string& dir) {
  std::size_t found = 0;
  for (const auto& name : machine::entries("/sys/block")) {
    found += machine::read_file("/sys/block/" + name + "/loop/backing_file").starts_with(dir);
  }
  return found;
}

std::int64_t bytes_of_file(const Client& client, const std::string& id, const std::string& path) {
  return std::atoll(run_in(client, id, "stat -c %s " + path).text("stdout").c_str());
}

}  // namespace

#define TALON_NEED_IMAGES()                                                     \
  if (!fs::exists("/dev/loop-control") || !fs::exists("/usr/sbin/mkfs.ext4")) { \
    WARN("SKIP: no loop devices, or mkfs.ext4 is not installed");               \
    return;                                                                     \
  }

TEST_CASE("files stop at their size") {
  TALON_NEED_IMAGES();
  Daemon daemon;
  auto client = daemon.client();
  const auto before = daemon.snapshot();
  const json::object body = {{"resources", json::object{{"disk", "64MiB"}}},
                             {"workspace", json::object{{"new", json::object{{"size", "32MiB"}}}}}};
  const auto id = make_sandbox(client, body);
  const auto made = client.get("/v1/sandboxes/" + id);
  INFO(made.body);
  const json::value disk = made.at("limits").at("disk");
  CHECK(disk.at("value").to_number<std::int64_t>() == 64 * kMiB);
  CHECK(disk.at("enforced").as_bool());
  const std::string method(disk.at("method").get_string());
  CHECK((method == "loop_image" || method == "project_quota"));
  CHECK(made.at("limits").at("workspace").at("value").to_number<std::int64_t>() == 32 * kMiB);
  CHECK(made.at("workspace").at("size").to_number<std::int64_t>() == 32 * kMiB);
  CHECK(made.at("resources").at("disk").to_number<std::int64_t>() == 64 * kMiB);

  const auto filled = run_in(client, id, "dd if=/dev/zero of=/root/fill bs=4k");
  INFO(filled.body);
  CHECK(exit_code(filled) != 0);
  CHECK(filled.text("stderr").find("No space left") != std::string::npos);
  CHECK(bytes_of_file(client, id, "/root/fill") > 55 * kMiB);
  CHECK(bytes_of_file(client, id, "/root/fill") <= 64 * kMiB);
  const auto full = run_in(client, id, "dd if=/dev/zero of=/workspace/fill bs=64k");
  CHECK(full.text("stderr").find("No space left") != std::string::npos);
  CHECK(bytes_of_file(client, id, "/workspace/fill") > 24 * kMiB);
  CHECK(bytes_of_file(client, id, "/workspace/fill") <= 32 * kMiB);

  const auto used = [&client, &id] { return client.get("/v1/sandboxes/" + id + "/stats"); };
  auto stats = used();
  INFO(stats.body);
  CHECK(stats.at("disk").at("used_bytes").to_number<std::int64_t>() > 55 * kMiB);
  CHECK(stats.at("disk").at("size_bytes").to_number<std::int64_t>() <= 64 * kMiB);
  CHECK(stats.at("workspace").at("used_bytes").to_number<std::int64_t>() > 24 * kMiB);

  // A daemon that is killed loses neither the limit nor the knowledge of it.
  daemon.kill_hard();
  CHECK(loops_below(daemon.data()) == (method == "loop_image" ? 2 : 0));
  daemon.start();
  client = daemon.client();
  CHECK(client.get("/v1/sandboxes/" + id).at("limits").at("disk").at("method").get_string() ==
        method);
  stats = used();
  INFO(stats.body);
  CHECK(stats.at("disk").at("used_bytes").to_number<std::int64_t>() > 55 * kMiB);
  CHECK(exit_code(run_in(client, id, "echo x > /root/more")) != 0);

  // Full to the brim it stops and starts.
  CHECK(client.post("/v1/sandboxes/" + id + "/stop", json::object()).status == 200);
  const auto started = client.post("/v1/sandboxes/" + id + "/start", json::object());
  INFO(started.body);
  REQUIRE(started.status == 200);
  CHECK(exit_code(run_in(client, id, "echo x > /root/more")) != 0);
  CHECK(run_in(client, id, "rm /root/fill /root/more; echo y > /root/y; cat /root/y")
            .text("stdout") == "y\n");
  CHECK(client.del("/v1/sandboxes/" + id).status == 204);
  CHECK(eventually(Seconds(30), [&] { return loops_below(daemon.data()) == 0; }));
  CHECK(daemon.settled(before, Seconds(30)).empty());
}

TEST_CASE("a daemon that is killed while it makes an image leaves nothing") {
  TALON_NEED_IMAGES();
  const json::object body = {{"resources", json::object{{"disk", "64MiB"}}}};
  Daemon daemon;
  {
    const auto client = daemon.client();  // once whole, so that all is there that stays
    CHECK(client.del("/v1/sandboxes/" + make_sandbox(client, body)).status == 204);
  }
  const auto before = daemon.snapshot();
  for (const char* point : {"disk.image", "disk.loop", "tree", "clone", "create.made"}) {
    INFO(point);
    CHECK(daemon.stop() == 0);
    daemon.set_env("TALON_TEST_FAULT", std::string("stop:") + point);
    daemon.start();
    CHECK(daemon.client().post("/v1/sandboxes?wait=running", body).status == 0);
    CHECK(daemon.wait(Seconds(20)) == 128 + SIGKILL);
    daemon.set_env("TALON_TEST_FAULT", "");
    daemon.start();
    const auto client = daemon.client();
    for (const auto& item : client.get("/v1/sandboxes").at("items").get_array()) {
      const std::string id(item.at("id").get_string());
      CHECK(client.del("/v1/sandboxes/" + id).status == 204);
    }
    CHECK(eventually(Seconds(30), [&] { return loops_below(daemon.data()) == 0; }));
    const auto left = daemon.settled(before, Seconds(30));
    INFO((left.empty() ? "" : left.front()));
    CHECK(left.empty());
  }
}

TEST_CASE("root changes in memory stop at resources.disk") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id =
      make_sandbox(client, {{"storage", "memory"}, {"resources", json::object{{"disk", "16MiB"}}}});
  const auto made = client.get("/v1/sandboxes/" + id);
  INFO(made.body);
  CHECK(made.at("limits").at("disk").at("method").get_string() == "tmpfs");
  const auto filled = run_in(client, id, "dd if=/dev/zero of=/root/fill bs=4k");
  CHECK(filled.text("stderr").find("No space left") != std::string::npos);
  CHECK(bytes_of_file(client, id, "/root/fill") > 15 * kMiB);
  CHECK(bytes_of_file(client, id, "/root/fill") <= 16 * kMiB);
  CHECK(client.get("/v1/sandboxes/" + id + "/stats")
            .at("disk")
            .at("size_bytes")
            .to_number<std::int64_t>() == 16 * kMiB);
  CHECK(client.del("/v1/sandboxes/" + id).status == 204);
}
