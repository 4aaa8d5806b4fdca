// ST-02, and the full disk of "bad input": what cannot be written is said with 507 or inside as
// ENOSPC, deletes work, and after them everything does.
#include <catch2/catch.hpp>

#include <filesystem>

#include "support/daemon.h"
#include "support/machine.h"

using namespace talon::test;
namespace fs = std::filesystem;
namespace json = boost::json;

namespace {

// A root tree with nothing but busybox.
std::string small_tree(const std::string& place) {
  const auto root = place + "/tree";
  fs::create_directories(root + "/bin");
  fs::copy_file("/bin/busybox", root + "/bin/busybox");
  for (const auto* name : {"sh", "cat", "true", "dd", "echo", "sleep", "rm", "yes", "head"}) {
    fs::create_symlink("busybox", root + "/bin/" + name);
  }
  return root;
}

}  // namespace

TEST_CASE("a full disk is said, and deletes still work") {
  if (!fs::exists("/bin/busybox")) {
    WARN("SKIP: busybox-static is not installed");
    return;
  }
  Daemon::Options options;
  options.image = false;
  options.small_disk_mib = 96;
  Daemon daemon(options);
  const auto client = daemon.client();
  const auto tree = small_tree(daemon.run());
  const auto import = Daemon::run_talond(
      {"image", "import", "--data-dir", daemon.data(), "small", tree}, Seconds(60), daemon.pid());
  INFO(import.output);
  REQUIRE(import.code == 0);
  machine::remove_tree(tree);

  const json::object body = {{"image", "small"}};
  const auto id = make_sandbox(client, body);
  const auto kept = make_sandbox(client, body);
  const auto filled = run_in(client, id, "dd if=/dev/zero of=/workspace/fill bs=1M count=500");
  INFO(filled.body);
  CHECK(exit_code(filled) != 0);
  CHECK(filled.text("stderr").find("No space left") != std::string::npos);

  // The daemon gives its reserve up and says 507 to what would need more; it never says 500, and
  // what it did take is a whole sandbox.
  bool said = false;
  for (int i = 0; i < 200 && !said; ++i) {
    const auto more = client.post(
        "/v1/sandboxes/" + id + "/run",
        json::object{{"command", "dd if=/dev/zero of=/workspace/more bs=4k count=10000"}});
    INFO("run: " << more.status << " " << more.body);
    REQUIRE((more.status == 200 || more.status == 507));  // 507: its log cannot be opened
    const auto reply = client.post("/v1/sandboxes?wait=running", body);
    INFO(i << ": " << reply.status << " " << reply.body);
    REQUIRE((reply.status == 201 || reply.status == 507));
    said = reply.status == 507;
    if (said) {
      CHECK(reply.text("code") == "disk_full");
      CHECK_FALSE(reply.header("retry-after").empty());
    }
  }
  CHECK(said);
  CHECK(daemon.local().get("/healthz").status == 200);
  CHECK(client.get("/v1/sandboxes/" + kept).text("state") == "running");

  const auto list = client.get("/v1/sandboxes?limit=1000");
  REQUIRE(list.status == 200);
  for (const auto& item : list.at("items").get_array()) {
    const std::string one(item.at("id").get_string());
    if (one != kept) {
      CHECK(client.del("/v1/sandboxes/" + one).status == 204);
    }
  }
  // The space comes back with the reaper, the reserve is made again, and creates work.
  Reply again;
  CHECK(eventually(Seconds(60), [&] {
    again = client.post("/v1/sandboxes?wait=running", body);
    return again.status == 201;
  }));
  INFO(again.body);
  CHECK(run_in(client, kept, "echo alive").text("stdout") == "alive\n");
  CHECK(client.get("/v1/sandboxes").at("items").get_array().size() == 2);
}

// The flood takes the reserve too, as soon as it is given up: there is no room for the row of the
// delete until the delete's own files are gone.
TEST_CASE("a sandbox whose logs filled the disk is deleted") {
  if (!fs::exists("/bin/busybox")) {
    WARN("SKIP: busybox-static is not installed");
    return;
  }
  Daemon::Options options;
  options.image = false;
  options.small_disk_mib = 64;
  Daemon daemon(options);
  const auto client = daemon.client();
  const auto tree = small_tree(daemon.run());
  const auto import = Daemon::run_talond(
      {"image", "import", "--data-dir", daemon.data(), "small", tree}, Seconds(60), daemon.pid());
  INFO(import.output);
  REQUIRE(import.code == 0);
  machine::remove_tree(tree);

  const json::object body = {{"image", "small"}};
  const auto id = make_sandbox(client, body);
  for (int i = 0; i < 4; ++i) {
    spawn_in(client, id, json::object{{"command", "yes"}});
  }
  // Until the daemon has noticed: it gives the reserve up, and says that it takes no creates.
  Reply ready;
  CHECK(eventually(Seconds(60), [&] {
    client.request("PATCH", "/v1/sandboxes/" + id, R"({"labels":{"a":"b"}})");
    client.post("/v1/sandboxes", body);
    ready = daemon.local().get("/readyz");
    return ready.status == 503;
  }));
  CHECK(ready.body.find("disk is full") != std::string::npos);
  const auto gone = client.del("/v1/sandboxes/" + id);
  INFO(gone.body);
  CHECK(gone.status == 204);
  CHECK(client.get("/v1/sandboxes/" + id).status == 410);
  CHECK(eventually(Seconds(60), [&] { return daemon.local().get("/readyz").status == 200; }));
}
