// What lies under <data>: user look-up in an image, and trash that a hostile tree cannot stop.
#include "server/node/dirs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

using namespace talon;
using namespace talon::server::node;
namespace fs = std::filesystem;

namespace {

struct Scratch {
  Scratch() {
    std::string pattern = (fs::temp_directory_path() / "talon-dirs-XXXXXX").string();
    path = ::mkdtemp(pattern.data());
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  std::string path;
};

}  // namespace

TEST_CASE("a user is looked up in the image's own files, without following links") {
  Scratch scratch;
  fs::create_directories(scratch.path + "/etc");
  std::ofstream(scratch.path + "/etc/passwd")
      << "root:x:0:0::/:/bin/sh\nme:x:12:34::/:/bin/sh\nbad:x:x:y\n";
  std::ofstream(scratch.path + "/etc/group") << "root:x:0:\nstaff:x:50:me\n";
  auto root = open_at(AT_FDCWD, scratch.path, O_RDONLY | O_DIRECTORY);
  REQUIRE(root);
  const auto ids = [&](const char* user) {
    auto found = lookup_user(*root, user);
    return found ? std::to_string(found->uid) + ":" + std::to_string(found->gid)
                 : found.error().field;
  };
  CHECK(ids("") == "0:0");
  CHECK(ids("me") == "12:34");
  CHECK(ids("12") == "12:34");
  CHECK(ids("777") == "777:777");
  CHECK(ids("me:staff") == "12:50");
  CHECK(ids("5:6") == "5:6");
  CHECK(ids("bad") == "user");
  CHECK(ids("nobody") == "user");
  CHECK(ids("65536") == "user");
  CHECK(ids("-1") == "user");
  CHECK(ids("me:") == "user");
  CHECK(ids(":root") == "user");

  // The host's passwd through a link would name users that the image does not have.
  fs::remove(scratch.path + "/etc/passwd");
  std::ofstream(scratch.path + "/outside") << "evil:x:1:1::/:/bin/sh\n";
  fs::create_symlink(scratch.path + "/outside", scratch.path + "/etc/passwd");
  CHECK(ids("evil") == "user");
  fs::remove(scratch.path + "/etc/passwd");
  REQUIRE(::mkfifo((scratch.path + "/etc/passwd").c_str(), 0600) == 0);
  CHECK(ids("me") == "user");  // and does not hang
}

TEST_CASE("trash is emptied in slices, whatever shape the tree has") {
  Scratch scratch;
  const std::string data_path = scratch.path + "/data";
  auto data = DataDir::open(data_path);
  REQUIRE(data);
  REQUIRE(data->make_sandbox("sb1"));
  // Deeper than PATH_MAX and than any descriptor limit we would like to spend.
  auto at = open_at(AT_FDCWD, data_path + "/sandboxes/sb1/upper", O_RDONLY | O_DIRECTORY);
  REQUIRE(at);
  for (int i = 0; i < 3000; ++i) {
    REQUIRE(::mkdirat(at->get(), "deep", 0000) == 0);
    at = open_at(at->get(), "deep", O_RDONLY | O_DIRECTORY);
    REQUIRE(at);
  }
  at = UniqueFd();
  const std::string keep = scratch.path + "/keep";
  std::ofstream(keep) << "keep";
  fs::create_directory(scratch.path + "/kept");
  std::ofstream(scratch.path + "/kept/file") << "keep";
  fs::create_symlink(keep, data_path + "/sandboxes/sb1/upper/link");
  fs::create_directory_symlink(scratch.path + "/kept", data_path + "/sandboxes/sb1/upper/dirlink");
  for (int i = 0; i < 700; ++i) {
    std::ofstream(data_path + "/sandboxes/sb1/logs/px" + std::to_string(i)) << i;
  }
  REQUIRE(data->trash_sandbox("sb1"));
  REQUIRE(data->trash_sandbox("sb1"));  // missing = done
  CHECK_FALSE(fs::exists(data_path + "/sandboxes/sb1"));
  CHECK(data->open_logs("sb1").error().code == Code::not_found);
  int slices = 0;
  for (bool empty = false; !empty && slices < 1000; ++slices) {
    const auto done = data->empty_trash(100);
    REQUIRE(done);
    empty = *done;
  }
  CHECK(slices > 30);
  CHECK(slices < 1000);
  CHECK(fs::is_empty(data_path + "/trash"));
  CHECK(fs::exists(keep));
  CHECK(fs::exists(scratch.path + "/kept/file"));
}

TEST_CASE("a workspace belongs to its user; the reserve takes its space") {
  Scratch scratch;
  auto data = DataDir::open(scratch.path + "/data");
  REQUIRE(data);
  REQUIRE(data->make_workspace("ws1", 2, {.uid = 1000, .gid = 1001}));
  struct stat st{};
  REQUIRE(::stat((scratch.path + "/data/workspaces/ws1/g2").c_str(), &st) == 0);
  CHECK(st.st_uid == 1000);
  CHECK(st.st_gid == 1001);
  CHECK_FALSE(data->reserve_present());
  REQUIRE(data->make_reserve());
  CHECK(data->reserve_present());
  REQUIRE(::stat((scratch.path + "/data/reserve").c_str(), &st) == 0);
  CHECK(st.st_blocks * 512 >= 16 << 20);
  data->give_up_reserve();
  CHECK_FALSE(data->reserve_present());
}
