#pragma once
// Sandboxes made ahead of their creates (docs/adr/0014), in sets: parts that fit any sandbox, root
// trees and whole sandboxes of the shape that was asked for last, warm ones of chosen images. One
// thread fills a set from its low to its high mark when no create is under way. An entry carries
// the id of the sandbox it will be; it is given out once, or destroyed, never both.
//
// Thread-safe. take() never waits for the kernel.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "isolate/launch.h"

namespace talon::isolate {

struct PoolImage {
  std::string name;
  std::uint32_t generation = 0;
  std::shared_ptr<const DirFd> root;
  bool same(const PoolImage& other) const {
    return name == other.name && generation == other.generation;
  }
};

// The directories of one sandbox, made ahead with it.
struct PoolPlace {
  std::string id;         // of the sandbox, drawn for it
  std::string workspace;  // the owner's name of the workspace
  DirFd root;
  DirFd workspace_root;
  std::string workspace_image{};  // its name, should the workspace be of a size
};

// Who owns the directories. Called by the pool's thread, discard() also by whoever destroys.
struct PoolHome {
  std::function<Result<PoolPlace>()> make;
  std::function<void(const PoolPlace&)> discard;
};

struct PoolMarks {
  std::size_t low = 0;   // filled when fewer are ready …
  std::size_t high = 0;  // … up to this many; 0 = no such pool
};

struct PoolEntry {
  PoolPlace place;
  std::optional<Prepared> prepared;
};

class Pool {
 public:
  struct Config {
    PoolMarks parts;
    PoolMarks trees;
    PoolMarks last;  // whole ones, as trees are: of the last shape
  };
  // Nothing is made before start().
  Pool(Launcher& launcher, PoolHome home, Config config);
  ~Pool();  // destroys what nobody took
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  void start();

  // What is furthest made and fits a sandbox of `spec` (its id is not looked at) from `image`, or
  // null. An image without a root is yet to be made: parts fit it. The caller creates the sandbox
  // of the entry's id, or gives the entry to destroy().
  std::unique_ptr<PoolEntry> take(SandboxSpec spec, const PoolImage& image);
  void destroy(PoolEntry& entry);

  // Keeps `size` warm sandboxes of `spec` from `image`, instead of what was kept from an image of
  // that name; 0 = none any more.
  void keep_warm(const PoolImage& image, SandboxSpec spec, std::size_t size);

  struct Count {
    std::string_view pool;  // "parts", "tree", "last", "warm"
    std::size_t ready = 0;
    std::uint64_t hits = 0;
    std::uint64_t misses = 0;
    std::uint64_t made = 0;
    double making_seconds = 0;
  };
  std::vector<Count> counts() const;

  struct Warm {
    std::string image;
    std::uint32_t generation = 0;
    std::size_t size = 0;
    std::size_t ready = 0;
    std::string problem;  // why the last one could not be made, "" = it could
  };
  std::vector<Warm> warm() const;

 private:
  using Clock = std::chrono::steady_clock;
  enum class Kind : std::uint8_t { parts, tree, last, warm };
  struct Set {
    Kind kind = Kind::warm;
    Ahead stage = Ahead::warm;
    PoolImage image;
    SandboxSpec spec;
    PoolMarks marks;
    std::deque<std::unique_ptr<PoolEntry>> ready;
    bool filling = false;
    Clock::time_point wanting_since{};
    Clock::time_point not_before{};
    std::string problem;
  };

  void run();
  Set* next_to_fill(Clock::time_point now);
  bool may_fill(const Set& set, Clock::time_point now) const;
  void fill_one(std::unique_lock<std::mutex>& lock, Set& set);
  void destroy_retired(std::unique_lock<std::mutex>& lock);
  Result<std::unique_ptr<PoolEntry>> make(Ahead stage, const PoolImage& image, SandboxSpec spec);
  void follow(Set& set, const SandboxSpec& spec, const PoolImage& image);
  std::unique_ptr<PoolEntry> take_following(Set& set, const SandboxSpec& spec,
                                            const PoolImage& image);
  std::unique_ptr<PoolEntry> take_from(Set& set);
  void retire(Set& set);
  Count& count(const Set& set) { return counts_[static_cast<std::size_t>(set.kind)]; }

  Launcher& launcher_;
  PoolHome home_;
  mutable std::mutex mutex_;  // all below
  std::condition_variable changed_;
  std::list<Set> sets_;  // by kind; a set's address stays while it is filled
  std::vector<Count> counts_;
  std::deque<std::unique_ptr<PoolEntry>> retired_;  // to be destroyed by the thread
  Clock::time_point last_take_{};
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace talon::isolate
