// The pool: what is in it is given out once, fits who takes it, and goes with the pool.

#include <catch2/catch.hpp>

#include <fcntl.h>

#include <filesystem>
#include <functional>
#include <mutex>
#include <set>
#include <thread>

#include "base/id.h"
#include "isolate/pool.h"
#include "kernel/sandbox_support.h"

using namespace talon;
using namespace talon::testing;
using namespace std::chrono_literals;
using isolate::Pool;
namespace fs = std::filesystem;

namespace {

class PoolLab {
 public:
  explicit PoolLab(Pool::Config config) : pool(lab.launcher(), home(), config) { pool.start(); }

  isolate::PoolHome home() {
    return {
        .make = [this]() -> Result<isolate::PoolPlace> {
          isolate::PoolPlace place{
              .id = new_id(IdKind::sandbox), .workspace = "w", .root = {}, .workspace_root = {}};
          fs::create_directories(lab.root_of(place.id) / "workspace");
          TALON_TRY(root, open_at(AT_FDCWD, lab.root_of(place.id), O_RDONLY | O_DIRECTORY));
          TALON_TRY(space, open_at(root.get(), "workspace", O_RDONLY | O_DIRECTORY));
          place.root = std::move(root);
          place.workspace_root = std::move(space);
          return place;
        },
        .discard =
            [this](const isolate::PoolPlace& place) {
              fs::remove_all(lab.root_of(place.id));
              const std::lock_guard guard{mutex};
              discarded.insert(place.id);
            }};
  }
  isolate::PoolImage image(std::uint32_t generation = 1) {
    return {.name = "small",
            .generation = generation,
            .root = std::make_shared<const DirFd>(
                open_at(AT_FDCWD, lab.image(), O_RDONLY | O_DIRECTORY).value())};
  }
  isolate::SandboxSpec shape() {
    auto spec = lab.spec();
    spec.id.clear();
    return spec;
  }
  // Filling is an event of another thread without a descriptor: looked at until it is there.
  bool until(const std::function<bool()>& there) {
    const auto end = std::chrono::steady_clock::now() + 30s;
    while (!there() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(2ms);
    }
    return there();
  }
  Pool::Count count(std::string_view name) {
    for (const auto& c : pool.counts()) {
      if (c.pool == name) {
        return c;
      }
    }
    return {};
  }
  Result<std::unique_ptr<isolate::Sandbox>> create(isolate::PoolEntry& entry,
                                                   isolate::SandboxSpec spec,
                                                   const isolate::PoolImage& from) {
    spec.id = entry.place.id;
    return lab.launcher().create(spec,
                                 {.image = from.root.get(),
                                  .root = &entry.place.root,
                                  .workspace = &entry.place.workspace_root},
                                 std::move(*entry.prepared));
  }
  static void end(isolate::Sandbox& sandbox) {
    CHECK(sandbox.kill(10s).has_value());
    CHECK(sandbox.remove().has_value());
  }

  Lab lab;
  std::mutex mutex;
  std::set<std::string> discarded;
  Pool pool;
};

}  // namespace

TEST_CASE("fifty parallel creates never get the same one twice") {
  TALON_NEED_SANDBOXES();
  PoolLab t{{.parts = {.low = 4, .high = 16}, .trees = {.low = 4, .high = 16}, .last = {}}};
  const auto image = t.image();
  const auto shape = t.shape();
  t.pool.keep_warm(image, shape, 16);
  REQUIRE(t.until([&] { return t.count("warm").ready == 16 && t.count("parts").ready == 16; }));
  std::mutex mutex;
  std::vector<std::unique_ptr<isolate::Sandbox>> made;
  std::multiset<std::string> ids;
  std::multiset<std::uint32_t> leases;
  std::vector<std::string> errors;
  std::size_t missed = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 50; ++i) {
      threads.emplace_back([&] {
        auto entry = t.pool.take(shape, image);
        auto box = entry ? t.create(*entry, shape, image)
                         : Result<std::unique_ptr<isolate::Sandbox>>{nullptr};
        const std::lock_guard guard{mutex};
        if (!entry) {
          ++missed;
        } else if (!box) {
          errors.push_back(box.error().message);
        } else {
          ids.insert((*box)->identity().id);
          leases.insert((*box)->identity().lease);
          made.push_back(std::move(*box));
        }
      });
    }
  }
  CHECK(errors == std::vector<std::string>{});
  CHECK(made.size() >= 32);  // what was ready at the start at least
  CHECK(made.size() + missed == 50);
  CHECK(std::set(ids.begin(), ids.end()).size() == made.size());
  CHECK(std::set(leases.begin(), leases.end()).size() == made.size());
  const auto warm = t.count("warm");
  CHECK(warm.hits >= 16);
  CHECK(warm.hits + warm.misses == 50);
  for (auto& sandbox : made) {
    t.end(*sandbox);
  }
  for (const auto& id : ids) {
    CHECK_FALSE(t.discarded.contains(id));
  }
}

TEST_CASE("an entry of an image that was refreshed since is destroyed, not used") {
  TALON_NEED_SANDBOXES();
  PoolLab t{{.parts = {}, .trees = {.low = 2, .high = 2}, .last = {}}};
  const auto shape = t.shape();
  t.pool.keep_warm(t.image(1), shape, 2);
  (void)t.pool.take(shape, {.name = "none", .generation = 1, .root = t.image().root});
  REQUIRE(t.until([&] { return t.count("warm").ready == 2 && t.count("tree").ready == 2; }));
  // Generation 2: nothing of 1 is given, and the pools follow.
  CHECK(t.pool.take(shape, t.image(2)) == nullptr);
  CHECK(t.count("warm").misses == 1);
  REQUIRE(t.until([&] {
    const std::lock_guard guard{t.mutex};
    return t.discarded.size() == 4;
  }));
  REQUIRE(t.until([&] { return t.count("warm").ready == 2; }));
  REQUIRE(t.pool.warm().size() == 1);
  CHECK(t.pool.warm()[0].generation == 2);
  auto entry = t.pool.take(shape, t.image(2));
  REQUIRE(entry != nullptr);
  CHECK(t.count("warm").hits == 1);
  t.pool.destroy(*entry);
}

TEST_CASE("a warm sandbox whose init was killed is not given out") {
  TALON_NEED_SANDBOXES();
  PoolLab t{{.parts = {}, .trees = {}, .last = {}}};
  const auto image = t.image();
  t.pool.keep_warm(image, t.shape(), 1);
  REQUIRE(t.until([&] { return t.count("warm").ready == 1; }));
  for (const auto& entry : fs::directory_iterator{t.lab.launcher().cgroup_path()}) {
    if (entry.is_directory()) {
      const DirFd group = open_at(AT_FDCWD, entry.path(), O_RDONLY | O_DIRECTORY).value();
      REQUIRE(write_file_at(group.get(), "cgroup.kill", "1").has_value());
      const auto gone = [&] {
        return read_file_at(group.get(), "cgroup.events", 256).value_or("").contains("populated 0");
      };
      REQUIRE(t.until(gone));
    }
  }
  CHECK(t.pool.take(t.shape(), image) == nullptr);
  REQUIRE(t.until([&] { return t.count("warm").ready == 1; }));  // another one
  auto entry = t.pool.take(t.shape(), image);
  REQUIRE(entry != nullptr);
  auto box = t.create(*entry, t.shape(), image);
  REQUIRE(box.has_value());
  t.end(**box);
}

TEST_CASE("another shape takes the furthest that fits it") {
  TALON_NEED_SANDBOXES();
  PoolLab t{{.parts = {.low = 1, .high = 1}, .trees = {.low = 1, .high = 1}, .last = {}}};
  const auto image = t.image();
  t.pool.keep_warm(image, t.shape(), 1);
  (void)t.pool.take(t.shape(), {.name = "none", .generation = 1, .root = image.root});
  auto named = t.shape();
  named.hostname = "named";
  {
    auto spare = t.pool.take(named, image);  // the trees follow this image from now on
    if (spare) {
      t.pool.destroy(*spare);
    }
  }
  const auto full = [&] {
    return t.count("warm").ready == 1 && t.count("tree").ready == 1 && t.count("parts").ready == 1;
  };
  REQUIRE(t.until(full));
  const auto before = t.count("tree").hits;
  auto entry = t.pool.take(named, image);  // a warm one has its name already
  REQUIRE(entry != nullptr);
  CHECK(t.count("tree").hits == before + 1);
  auto box = t.create(*entry, named, image);
  REQUIRE(box.has_value());
  CHECK((*box)->identity().id == entry->place.id);
  t.end(**box);
}

TEST_CASE("whole sandboxes of the last shape are ready, and those of another one are destroyed") {
  TALON_NEED_SANDBOXES();
  PoolLab t{{.parts = {}, .trees = {}, .last = {.low = 2, .high = 2}}};
  const auto image = t.image();
  auto named = t.shape();
  named.hostname = "named";
  CHECK(t.pool.take(named, image) == nullptr);
  REQUIRE(t.until([&] { return t.count("last").ready == 2; }));
  auto entry = t.pool.take(named, image);
  REQUIRE(entry != nullptr);
  CHECK(t.count("last").hits == 1);
  CHECK(t.pool.warm().empty());  // nobody asked for them by name
  auto box = t.create(*entry, named, image);
  REQUIRE(box.has_value());
  t.end(**box);
  CHECK(t.pool.take(t.shape(), image) == nullptr);  // its host name differs
  REQUIRE(t.until([&] {
    const std::lock_guard guard{t.mutex};
    return !t.discarded.empty();
  }));
  REQUIRE(t.until([&] { return t.count("last").ready == 2; }));
  auto other = t.pool.take(t.shape(), image);
  REQUIRE(other != nullptr);
  t.pool.destroy(*other);
}

TEST_CASE("the pool ends with all that is in it") {
  TALON_NEED_SANDBOXES();
  std::optional<PoolLab> t;
  t.emplace(
      Pool::Config{.parts = {.low = 2, .high = 2}, .trees = {.low = 2, .high = 2}, .last = {}});
  t->pool.keep_warm(t->image(), t->shape(), 2);
  REQUIRE(t->until([&] { return t->count("warm").ready == 2 && t->count("parts").ready == 2; }));
  const fs::path dir = t->lab.dir();
  const std::string group = t->lab.launcher().cgroup_path();
  t.reset();
  CHECK_FALSE(fs::exists(dir));
  CHECK_FALSE(fs::exists(group));
}
