// Many creates at once: one spawner, sixteen under way, every one its own ids.

#include <catch2/catch.hpp>

#include <fcntl.h>

#include <filesystem>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "kernel/sandbox_support.h"

using namespace talon;
using namespace talon::testing;

TEST_CASE("forty creates in parallel give forty sandboxes with ids of their own") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  constexpr int kCount = 40;
  std::mutex mutex;
  std::vector<Box> boxes;
  std::vector<std::string> errors;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kCount; ++i) {
      threads.emplace_back([&] {
        auto box = lab.try_create(lab.spec());
        const std::lock_guard guard{mutex};
        if (box) {
          boxes.push_back(std::move(*box));
        } else {
          errors.push_back(box.error().message);
        }
      });
    }
  }
  CHECK(errors == std::vector<std::string>{});
  REQUIRE(boxes.size() == kCount);
  std::set<std::uint32_t> leases;
  for (Box& box : boxes) {
    leases.insert(box->identity().lease);
    CHECK(lab.run(box, {"/bin/hostname"}).out == "sandbox\n");
  }
  CHECK(leases.size() == kCount);
  for (Box& box : boxes) {
    lab.destroy(box);
  }
  CHECK(std::filesystem::is_empty(lab.dir() / "run"));
}

TEST_CASE("the daemon's files clone shows root and workspace, also when init is gone") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  Box box = lab.create();
  CHECK(lab.sh(box, "echo w > /workspace/w; echo r > /etc/r").code == 0);
  REQUIRE(box->kill(std::chrono::seconds{10}).has_value());
  // Written through it after the last process has ended, it is in the workspace (decision 31).
  const DirFd dir = open_at(box->files_fd(), "workspace", O_RDONLY | O_DIRECTORY).value();
  CHECK(read_file_at(dir.get(), "w").value() == "w\n");
  CHECK(read_file_at(box->files_fd(), "etc/r").value() == "r\n");
  CHECK(std::filesystem::exists(lab.root_of(box->identity().id) / "workspace/w"));
  CHECK(box->remove().has_value());
  CHECK(box->files_fd() == -1);
}
