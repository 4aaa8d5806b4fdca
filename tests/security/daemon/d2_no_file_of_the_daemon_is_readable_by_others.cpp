// D2: after use nothing in the data and run directories can be read, written or entered by anyone
// but root. Below a sandbox's or an image's root the modes are the image's own; the directories
// above them are closed.

#include <catch2/catch.hpp>

#include <sys/stat.h>

#include <filesystem>

#include "support/daemon.h"
#include "support/machine.h"

using namespace talon::test;
namespace fs = std::filesystem;

namespace {

unsigned mode_of(const fs::path& path) {
  struct stat st{};
  CHECK(lstat(path.c_str(), &st) == 0);
  return S_ISLNK(st.st_mode) ? 0 : st.st_mode & 077;
}

// Whether a tree with modes of its own begins here.
bool is_tree(const fs::path& path) {
  const std::string name = path.filename();
  return name == "upper" || name == "work" || name == "workspace" || name == "root" ||
         path.parent_path().filename() == "images" ||
         path.parent_path().parent_path().filename() == "workspaces";
}

std::vector<std::string> open_files(const fs::path& root) {
  std::vector<std::string> out;
  const auto look = [&](const fs::path& path) {
    if (const unsigned mode = mode_of(path); mode != 0) {
      out.push_back(path.string() + " is open to others");
    }
  };
  look(root);
  for (fs::recursive_directory_iterator it{root}, end; it != end; ++it) {
    if (is_tree(it->path())) {
      it.disable_recursion_pending();
    } else {
      look(it->path());
    }
  }
  return out;
}

}  // namespace

TEST_CASE("D2: no file of the data and run directories is readable by others") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client, {{"name", "seen"}});
  run_in(client, id, "echo secret; echo more >&2; echo x > /workspace/x; echo y > /etc/y");
  spawn_in(client, id, {{"command", "echo secret; sleep 1000"}});
  const auto second = make_sandbox(client, {{"storage", "memory"}});
  CHECK(client.post("/v1/sandboxes/" + second + "/stop", boost::json::object()).status == 200);
  for (const fs::path root : {daemon.data(), daemon.run()}) {
    for (const std::string& line : open_files(root)) {
      INFO(line);
      CHECK(line.empty());
    }
  }
  for (const auto& sandbox : {id, second}) {
    CHECK(client.del("/v1/sandboxes/" + sandbox).status == 204);
  }
}
