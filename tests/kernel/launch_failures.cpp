// R4 and "all or nothing": a create that fails at any step leaves nothing, and says which step.

#include <catch2/catch.hpp>

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "base/fd.h"
#include "kernel/sandbox_support.h"

using namespace talon;
using namespace talon::testing;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

std::size_t children_of(const std::string& path) {
  std::size_t count = 0;
  for (const auto& entry : fs::directory_iterator{path}) {
    count += entry.is_directory() ? 1 : 0;
  }
  return count;
}

// Runs try_create, expects an error whose message has `text`, and nothing left.
void must_fail(Lab& lab, const isolate::SandboxSpec& spec, Code code, const std::string& text) {
  lab.launcher().drain();
  const std::size_t fds = count_own_fds();
  const std::size_t mounts = count_own_mounts();
  {
    auto made = lab.try_create(spec);
    REQUIRE_FALSE(made.has_value());
    INFO(made.error().message);
    CHECK(made.error().code == code);
    CHECK(made.error().message.find(text) != std::string::npos);
  }
  CHECK(count_own_fds() == fds);
  CHECK(count_own_mounts() == mounts);
  CHECK(children_of(lab.launcher().cgroup_path()) == 0);
  CHECK(fs::is_empty(lab.dir() / "run"));
}

pid_t spawner_of_this_process() {
  for (const auto& entry : fs::directory_iterator{"/proc/self/task/" + std::to_string(getpid())}) {
    if (entry.path().filename() != "children") {
      continue;
    }
    std::ifstream in{entry.path()};
    for (pid_t pid = 0; in >> pid;) {
      std::ifstream comm{"/proc/" + std::to_string(pid) + "/comm"};
      std::string name;
      std::getline(comm, name);
      if (name == "talon-spawner") {
        return pid;
      }
    }
  }
  return -1;
}

}  // namespace

TEST_CASE("R4: a mount point of the image that is a link or a file fails the create") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  for (const char* name : {"dev", "proc", "sys", "tmp", "workspace"}) {
    const fs::path at = lab.image() / name;
    fs::remove_all(at);
    fs::create_symlink("../../../../etc", at);
    must_fail(lab, lab.spec(), Code::invalid_request, std::string{"/"} + name);
    fs::remove(at);
    std::ofstream{at} << "file";
    must_fail(lab, lab.spec(), Code::invalid_request, std::string{"/"} + name);
    fs::remove(at);
    fs::create_directory(at);
  }
  // And the lab still works.
  Box box = lab.create();
  CHECK(lab.run(box, {"/bin/echo", "ok"}).out == "ok\n");
  lab.destroy(box);
}

TEST_CASE("R4: links in place of /dev/pts or /dev/null in the image are never met") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  fs::create_symlink("/etc", lab.image() / "dev/pts");
  fs::create_symlink("/etc/passwd", lab.image() / "dev/null");
  Box box = lab.create();
  CHECK(lab.run(box, {"/bin/ls", "/dev/pts"}).out == "ptmx\n");
  CHECK(lab.run(box, {"/bin/head", "-c", "4", "/dev/null"}).out == "");
  lab.destroy(box);
}

TEST_CASE("an image without mount points gets them, read-only ones too") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  for (const char* name : {"dev", "proc", "sys", "tmp", "workspace"}) {
    fs::remove_all(lab.image() / name);
  }
  for (const auto storage : {isolate::Storage::disk, isolate::Storage::readonly}) {
    auto spec = lab.spec();
    spec.storage = storage;
    Box box = lab.create(spec);
    CHECK(lab.sh(box, "echo t > /tmp/t && cat /tmp/t").out == "t\n");
    CHECK(lab.sh(box, "echo t > /workspace/t && cat /workspace/t").out == "t\n");
    lab.destroy(box);
  }
  CHECK_FALSE(fs::exists(lab.image() / "dev"));
}

TEST_CASE("bad specs are refused before anything is made") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  auto spec = lab.spec();
  spec.hostname = "bad host";
  must_fail(lab, spec, Code::invalid_request, "hostname");
  spec = lab.spec();
  spec.default_cwd = "relative";
  must_fail(lab, spec, Code::invalid_request, "directory");
  isolate::SandboxSpec path = lab.spec();
  path.id = "../x";
  Box none;
  CHECK(lab.launcher().create(path, {}).error().code == Code::invalid_request);
}

TEST_CASE("a limit without its controller is 422 and names it") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  if (lab.launcher().host().has_controller("memory")) {
    WARN("SKIP: this host has the memory controller");
    return;
  }
  auto spec = lab.spec();
  spec.limits.memory_bytes = 64 << 20;
  must_fail(lab, spec, Code::unenforceable, "'memory'");
  Box box = lab.create();
  CHECK(box->limits().pids.value == 4096);
  CHECK(box->limits().pids.enforced == lab.launcher().host().has_controller("pids"));
  CHECK_FALSE(box->limits().pids.asked);
  lab.destroy(box);
}

TEST_CASE("a broken upper layer fails the create and leaves nothing") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  const auto spec = lab.spec();
  fs::create_directories(lab.root_of(spec.id));
  std::ofstream{lab.root_of(spec.id) / "upper"} << "not a directory";
  must_fail(lab, spec, Code::io, "overlay");
}

TEST_CASE("the same id twice is a conflict, and the first goes on") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  const auto spec = lab.spec();
  Box box = lab.create(spec);
  CHECK_FALSE(lab.try_create(spec).has_value());
  CHECK(lab.run(box, {"/bin/echo", "ok"}).out == "ok\n");
  lab.destroy(box);
}

TEST_CASE("kill -9 of the spawner: its sandboxes live, the next create works") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  Box first = lab.create();
  const pid_t spawner = spawner_of_this_process();
  REQUIRE(spawner > 0);
  REQUIRE(kill(spawner, SIGKILL) == 0);
  CHECK(lab.run(first, {"/bin/echo", "still here"}).out == "still here\n");
  Box second = lab.create();
  CHECK(lab.run(second, {"/bin/echo", "new"}).out == "new\n");
  CHECK(lab.launcher().counters().spawner_starts == 2);
  lab.destroy(first);
  lab.destroy(second);
}

TEST_CASE("arguments above the limits are refused and named") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  Box box = lab.create();
  isolate::ExecSpec exec;
  exec.id = "px1";
  exec.argv = {"/bin/true", std::string(200'000, 'x')};
  auto refused = box->exec(exec);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code == Code::too_large);
  CHECK(refused.error().message.find("argv[1]") != std::string::npos);
  exec.argv = {"/bin/true"};
  for (int i = 0; i < 30; ++i) {
    exec.env.emplace_back("V" + std::to_string(i), std::string(100'000, 'v'));
  }
  CHECK(box->exec(exec).error().code == Code::too_large);
  exec.env.clear();
  exec.argv = {"/bin/true", std::string(limits::kArgBytes, 'x')};
  CHECK(box->exec(exec).has_value());
  lab.destroy(box);
}
