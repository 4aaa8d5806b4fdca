#include "isolate/pool.h"

#include <signal.h>
#include <sys/resource.h>

#include <algorithm>

namespace talon::isolate {

using namespace std::chrono_literals;

namespace {

// A burst of creates is served before its pools are filled again …
constexpr auto kQuiet = 10ms;
// … but under steady load a set that stays below its mark is filled between two creates.
constexpr auto kPatience = 100ms;
constexpr auto kAfterFailure = 1s;
constexpr auto kLookAtDead = 10s;

}  // namespace

Pool::Pool(Launcher& launcher, PoolHome home, Config config)
    : launcher_(launcher), home_(std::move(home)) {
  const auto add = [this](Kind kind, Ahead stage, PoolMarks marks) {
    Set& set = sets_.emplace_back();
    set.kind = kind;
    set.stage = stage;
    set.marks = marks;
  };
  add(Kind::parts, Ahead::parts, config.parts);
  add(Kind::tree, Ahead::tree, config.trees);
  add(Kind::last, Ahead::warm, config.last);
  for (const char* name : {"parts", "tree", "last", "warm"}) {
    counts_.push_back({.pool = name});
  }
}

Pool::~Pool() {
  {
    const std::lock_guard guard{mutex_};
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
  std::unique_lock lock{mutex_};
  for (Set& set : sets_) {
    retire(set);
  }
  destroy_retired(lock);
}

void Pool::start() {
  // The daemon's signals are for threads that wait for them.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread{[this] { run(); }};
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// ---- taking

std::unique_ptr<PoolEntry> Pool::take(SandboxSpec spec, const PoolImage& image) {
  const std::lock_guard guard{mutex_};
  last_take_ = Clock::now();
  std::unique_ptr<PoolEntry> taken;
  for (Set& set : sets_) {
    if (set.kind == Kind::warm && set.marks.high != 0 && set.image.name == image.name &&
        image.root != nullptr) {
      if (set.image.generation < image.generation) {
        follow(set, set.spec, image);  // the image was refreshed
      }
      const bool fits = set.image.same(image) && same_shape(set.stage, set.spec, spec);
      taken = fits ? take_from(set) : nullptr;
      ++(taken ? count(set).hits : count(set).misses);
      break;
    }
  }
  auto set = std::next(sets_.begin(), static_cast<int>(Kind::last));
  if (!taken) {
    taken = take_following(*set, spec, image);
  }
  if (!taken) {
    taken = take_following(*--set, spec, image);
  }
  Set& parts = sets_.front();
  if (!taken && parts.marks.high != 0) {
    taken = take_from(parts);
    ++(taken ? count(parts).hits : count(parts).misses);
  }
  changed_.notify_all();
  return taken;
}

std::unique_ptr<PoolEntry> Pool::take_following(Set& set, const SandboxSpec& spec,
                                                const PoolImage& image) {
  if (set.marks.high == 0 || image.root == nullptr) {
    return nullptr;
  }
  if (!set.image.same(image) || !same_shape(set.stage, set.spec, spec)) {
    follow(set, spec, image);
  }
  auto taken = take_from(set);
  ++(taken ? count(set).hits : count(set).misses);
  return taken;
}

// From here on the set is of another image or shape: what it holds fits nobody.
void Pool::follow(Set& set, const SandboxSpec& spec, const PoolImage& image) {
  retire(set);
  set.image = image;
  set.spec = spec;
  set.spec.limits = {};
}

std::unique_ptr<PoolEntry> Pool::take_from(Set& set) {
  while (!set.ready.empty()) {
    auto entry = std::move(set.ready.front());
    set.ready.pop_front();
    if (!entry->prepared->dead()) {
      return entry;
    }
    retired_.push_back(std::move(entry));
  }
  return nullptr;
}

void Pool::retire(Set& set) {
  std::ranges::move(set.ready, std::back_inserter(retired_));
  set.ready.clear();
}

void Pool::destroy(PoolEntry& entry) {
  entry.prepared.reset();  // its mounts first
  home_.discard(entry.place);
}

void Pool::keep_warm(const PoolImage& image, SandboxSpec spec, std::size_t size) {
  const std::lock_guard guard{mutex_};
  const auto found = std::ranges::find_if(sets_, [&](const Set& set) {
    return set.kind == Kind::warm && set.image.name == image.name;
  });
  if (found == sets_.end() && size == 0) {
    return;
  }
  Set& set = found != sets_.end() ? *found : sets_.emplace_back();
  if (!set.image.same(image) || !same_shape(Ahead::warm, set.spec, spec)) {
    follow(set, spec, image);
  }
  set.marks = {.low = size, .high = size};
  while (set.ready.size() > size) {
    retired_.push_back(std::move(set.ready.back()));
    set.ready.pop_back();
  }
  set.problem.clear();
  set.not_before = {};
  changed_.notify_all();
}

// ---- filling

Pool::Set* Pool::next_to_fill(Clock::time_point now) {
  Set* next = nullptr;
  for (Set& set : sets_) {
    const std::size_t ready = set.ready.size();
    if (!set.filling && ready < set.marks.low) {
      set.filling = true;
      set.wanting_since = now;
    } else if (ready >= set.marks.high) {
      set.filling = false;
    }
    const bool known = set.kind == Kind::parts || set.image.root != nullptr;
    // The emptiest first.
    if (set.filling && known && now >= set.not_before &&
        (next == nullptr || ready < next->ready.size())) {
      next = &set;
    }
  }
  return next;
}

bool Pool::may_fill(const Set& set, Clock::time_point now) const {
  return !launcher_.busy() &&
         (now - last_take_ >= kQuiet ||
          (set.ready.size() < set.marks.low && now - set.wanting_since >= kPatience));
}

void Pool::run() {
  // Requests first. (The calling thread's only: PRIO_PROCESS with 0, see setpriority(2).)
  setpriority(PRIO_PROCESS, 0, 10);
  std::unique_lock lock{mutex_};
  while (!stop_) {
    const auto now = Clock::now();
    Set* set = next_to_fill(now);
    const bool quiet = now - last_take_ >= kQuiet && !launcher_.busy();
    if (set != nullptr && may_fill(*set, now)) {
      fill_one(lock, *set);
    } else if (!retired_.empty() && quiet) {
      destroy_retired(lock);
    } else if (set != nullptr || !retired_.empty()) {
      changed_.wait_for(lock, kQuiet);
    } else {
      std::erase_if(sets_, [](const Set& s) { return s.kind == Kind::warm && s.marks.high == 0; });
      const bool failing = std::ranges::any_of(sets_, [](const Set& s) { return s.filling; });
      changed_.wait_for(lock, failing ? kAfterFailure : std::chrono::seconds{kLookAtDead});
      for (Set& each : sets_) {
        std::erase_if(each.ready, [this](std::unique_ptr<PoolEntry>& entry) {
          const bool dead = entry->prepared->dead();
          if (dead) {
            retired_.push_back(std::move(entry));
          }
          return dead;
        });
      }
    }
  }
}

Result<std::unique_ptr<PoolEntry>> Pool::make(Ahead stage, const PoolImage& image,
                                              SandboxSpec spec) {
  TALON_TRY(place, home_.make());
  auto entry = std::make_unique<PoolEntry>();
  entry->place = std::move(place);
  spec.id = entry->place.id;
  auto prepared = launcher_.prepare(
      stage, spec,
      {.image = image.root.get(),
       .root = &entry->place.root,
       .workspace = entry->place.workspace_root ? &entry->place.workspace_root : nullptr,
       .workspace_image = entry->place.workspace_image});
  if (!prepared) {
    home_.discard(entry->place);
    return std::unexpected(std::move(prepared).error());
  }
  entry->prepared.emplace(std::move(*prepared));
  return entry;
}

void Pool::fill_one(std::unique_lock<std::mutex>& lock, Set& set) {
  const Ahead stage = set.stage;
  const PoolImage image = set.image;
  const SandboxSpec spec = set.spec;
  const auto began = Clock::now();
  lock.unlock();
  auto made = make(stage, image, spec);
  lock.lock();
  if (!made) {
    set.problem = made.error().message;
    set.not_before = Clock::now() + kAfterFailure;
    return;
  }
  set.problem.clear();
  Count& counted = count(set);
  ++counted.made;
  counted.making_seconds += std::chrono::duration<double>(Clock::now() - began).count();
  // It may have been told otherwise meanwhile.
  if (set.ready.size() < set.marks.high && set.image.same(image) &&
      same_shape(stage, set.spec, spec)) {
    set.ready.push_back(std::move(*made));
  } else {
    retired_.push_back(std::move(*made));
  }
}

void Pool::destroy_retired(std::unique_lock<std::mutex>& lock) {
  while (!retired_.empty()) {
    auto entry = std::move(retired_.front());
    retired_.pop_front();
    lock.unlock();
    destroy(*entry);
    entry.reset();
    lock.lock();
  }
}

// ---- looking

std::vector<Pool::Count> Pool::counts() const {
  const std::lock_guard guard{mutex_};
  auto out = counts_;
  for (const Set& set : sets_) {
    out[static_cast<std::size_t>(set.kind)].ready += set.ready.size();
  }
  return out;
}

std::vector<Pool::Warm> Pool::warm() const {
  const std::lock_guard guard{mutex_};
  std::vector<Warm> out;
  for (const Set& set : sets_) {
    if (set.kind == Kind::warm && set.marks.high != 0) {
      out.push_back({.image = set.image.name,
                     .generation = set.image.generation,
                     .size = set.marks.high,
                     .ready = set.ready.size(),
                     .problem = set.problem});
    }
  }
  return out;
}

}  // namespace talon::isolate
