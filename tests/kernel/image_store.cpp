// Generations, removal and what is left when a maker dies.
#include <sys/file.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>

#include "image_support.h"
#include "isolate/image/image.h"
#include "isolate/image/maker.h"

using namespace talon;
using namespace talon::isolate;
using namespace talon::test;

namespace {

ImageStore open_store(const TempDir& tmp) {
  auto store = ImageStore::open(tmp / "data");
  REQUIRE(store);
  return std::move(*store);
}

std::string tar_of(const TempDir& tmp, const std::string& text) {
  put(tmp / "a.tar", Tar{}.file("version", text).whole());
  return tmp / "a.tar";
}

bool root_here() {
  if (geteuid() != 0) {
    WARN("SKIP: needs root (owners)");
    return false;
  }
  return true;
}

}  // namespace

TEST_CASE("images: generations, newest first by default", "[image]") {
  if (!root_here()) {
    return;
  }
  TempDir tmp;
  ImageStore store = open_store(tmp);
  CHECK(look(AT_FDCWD, tmp / "data/images").st_mode == (S_IFDIR | 0700));
  REQUIRE(store.import("img", tar_of(tmp, "one"))->generation == 1);
  REQUIRE(store.import("img", tar_of(tmp, "two"))->generation == 2);
  REQUIRE(store.import("img-2", tar_of(tmp, "other"))->generation == 1);
  CHECK(slurp(store.get("img")->root.get(), "version") == "two");
  CHECK(slurp(store.get("img", 1)->root.get(), "version") == "one");
  CHECK(slurp(store.get("img-2")->root.get(), "version") == "other");
  const auto all = store.list();
  REQUIRE(all);
  REQUIRE(all->size() == 3);
  CHECK((*all)[1].name == "img");
  CHECK((*all)[1].generation == 2);
  CHECK((*all)[1].source == tmp / "a.tar");
  CHECK((*all)[1].files == 1);
  CHECK((*all)[1].bytes == 3);
  CHECK((*all)[1].created_at.size() == 24);

  const auto none = store.get("nope");
  REQUIRE_FALSE(none);
  CHECK(none.error().code == Code::not_found);
  CHECK(none.error().message == "no image nope; there are img, img-2");
  CHECK(store.get("img", 9).error().code == Code::not_found);
  CHECK(store.get("../img").error().code == Code::invalid_request);
}

TEST_CASE("images: removal spares what is in use", "[image]") {
  if (!root_here()) {
    return;
  }
  TempDir tmp;
  ImageStore store = open_store(tmp);
  REQUIRE(store.import("img", tar_of(tmp, "one")));
  REQUIRE(store.import("img", tar_of(tmp, "two")));
  REQUIRE(store.remove("img", {"img-1"}));
  CHECK(slurp(store.get("img")->root.get(), "version") == "one");
  const auto busy = store.remove("img", {"img-1"});
  REQUIRE_FALSE(busy);
  CHECK(busy.error().code == Code::busy);
  REQUIRE(store.remove("img", {}));
  CHECK(store.remove("img", {}).error().code == Code::not_found);
  CHECK(names(tmp / "data/images") == std::vector<std::string>{".lock"});
}

TEST_CASE("images: a broken one is listed as broken and not given out", "[image]") {
  if (!root_here()) {
    return;
  }
  TempDir tmp;
  ImageStore store = open_store(tmp);
  REQUIRE(store.import("img", tar_of(tmp, "one")));
  put(tmp / "data/images/img-1/manifest.json", "{\"name\": \"img\"");
  CHECK(store.list()->at(0).kind == "broken");
  CHECK(store.get("img").error().code == Code::internal);
  put(tmp / "data/images/img-1/manifest.json",
      R"({"name": "host", "kind": "host", "generation": 1})");
  CHECK(store.get("img").error().code == Code::internal);
}

TEST_CASE("images: a killed maker leaves no image, and the next one cleans up", "[image]") {
  if (!root_here()) {
    return;
  }
  TempDir tmp;
  ImageStore store = open_store(tmp);
  int ready[2];
  REQUIRE(pipe2(ready, O_CLOEXEC) == 0);
  const pid_t child = fork();
  if (child == 0) {
    auto maker = image::Maker::begin(tmp / "data/images");
    put(tmp / "data/half", "");
    (void)!write(ready[1], maker ? "1" : "0", 1);
    pause();
    _exit(0);
  }
  char byte = 0;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  REQUIRE(byte == '1');
  // While it lives, its directory is its own …
  REQUIRE(store.import("img", tar_of(tmp, "one")));
  CHECK(names(tmp / "data/images").size() == 3);  // .lock, .tmp-…, img-1
  REQUIRE(kill(child, SIGKILL) == 0);
  REQUIRE(waitpid(child, nullptr, 0) == child);
  close(ready[0]);
  close(ready[1]);
  CHECK(store.list()->size() == 1);
  // … and afterwards a leftover.
  REQUIRE(store.import("img", tar_of(tmp, "two")));
  CHECK(names(tmp / "data/images").size() == 3);  // .lock, img-1, img-2
}

TEST_CASE("images: a directory that others may write to is refused", "[image]") {
  if (!root_here()) {
    return;
  }
  TempDir tmp;
  make_dir(tmp / "data");
  make_dir(tmp / "data/images", 0777);
  auto store = ImageStore::open(tmp / "data");
  REQUIRE_FALSE(store);
  CHECK_THAT(store.error().message, Catch::Contains("chmod 0700"));
}

TEST_CASE("tree: removal of a tree deeper than any path", "[image]") {
  TempDir tmp;
  make_dir(tmp / "deep");
  UniqueFd dir{open((tmp / "deep").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  const std::string name(200, 'd');
  for (int i = 0; i < 600; ++i) {  // 120 000 bytes of path
    REQUIRE(mkdirat(dir.get(), name.c_str(), 0755) == 0);
    dir = UniqueFd{openat(dir.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    REQUIRE(dir);
  }
  put(tmp / "outside", "tweet");
  REQUIRE(symlinkat((tmp / "outside").c_str(), dir.get(), "link") == 0);
  dir.reset();
  const auto removed = image::remove_tree(AT_FDCWD, tmp / "deep");
  INFO((removed ? "" : removed.error().message));
  CHECK(removed);
  CHECK_FALSE(exists(tmp / "deep"));
  CHECK(slurp(tmp / "outside") == "tweet");
}
