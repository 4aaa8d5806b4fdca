#include "store/store.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/fault.h"
#include "base/limits.h"
#include "store/db.h"

namespace talon::store {

namespace {

// More than this many queued writes means that the disk stands still; writes behind are then
// dropped and counted (the journal has what they would have said).
constexpr std::size_t kQueueMax = 65'536;
constexpr std::size_t kIdleReaders = 8;

struct Item {
  std::function<Result<>(Db&)> work;   // empty: a flush, nothing to do
  std::function<void(Result<>)> done;  // empty: written behind
  Result<> result{};
};

}  // namespace

struct Store::Impl {
  std::string path;
  std::unique_ptr<Db> writer;
  std::atomic<std::uint64_t> commits{0};
  std::atomic<std::uint64_t> behind_errors{0};
  std::function<void(const Error&)> behind_hook;

  std::mutex queue_mutex;
  std::condition_variable queue_filled;
  std::deque<Item> queue;
  bool stopping = false;

  mutable std::mutex readers_mutex;
  mutable std::vector<std::unique_ptr<Db>> idle_readers;

  std::thread thread;  // last: it uses everything above

  void push(Item item) {
    {
      const std::lock_guard lock{queue_mutex};
      queue.push_back(std::move(item));
    }
    queue_filled.notify_one();
  }

  // The next group, at most kGroupCommit items; empty when the store is closing and drained.
  std::vector<Item> take_group() {
    std::unique_lock lock{queue_mutex};
    queue_filled.wait(lock, [&] { return stopping || !queue.empty(); });
    std::vector<Item> group;
    const std::size_t size = std::min(queue.size(), limits::kGroupCommit);
    group.reserve(size);
    for (std::size_t i = 0; i < size; ++i) {
      group.push_back(std::move(queue.front()));
      queue.pop_front();
    }
    return group;
  }

  void loop() {
    for (;;) {
      std::vector<Item> group = take_group();
      if (group.empty()) {
        return;
      }
      if (const auto committed = commit(group); !committed) {
        // Nothing of the group is on disk, whatever its closures answered.
        for (Item& item : group) {
          item.result = std::unexpected(committed.error());
        }
      }
      for (Item& item : group) {
        complete(item);
      }
    }
  }

  void complete(Item& item) {
    if (item.done) {
      item.done(std::move(item.result));
    } else if (!item.result) {
      report_behind(item.result.error());
    }
  }

  void report_behind(const Error& error) {
    behind_errors.fetch_add(1, std::memory_order_relaxed);
    if (behind_hook) {
      behind_hook(error);
    }
  }

  // One transaction around the group. An error here undoes all of it.
  Result<> commit(std::vector<Item>& group) {
    if (std::ranges::none_of(group, [](const Item& item) { return bool(item.work); })) {
      return {};
    }
    TALON_CHECK(fault::point("store.begin"));
    TALON_CHECK(writer->run("BEGIN IMMEDIATE"));
    for (Item& item : group) {
      if (!item.work) {
        continue;
      }
      if (auto usable = run_one(item); !usable) {
        return roll_back(std::move(usable).error());
      }
    }
    if (auto before = fault::point("store.commit"); !before) {
      return roll_back(std::move(before).error());
    }
    if (auto committed = writer->run("COMMIT"); !committed) {
      return roll_back(std::move(committed).error());
    }
    fault::stop("store.committed");
    commits.fetch_add(1, std::memory_order_relaxed);
    return {};
  }

  // Runs one closure under a savepoint. Its own error stays in item.result; an error of the
  // transaction as a whole (disk full, i/o) is returned.
  Result<> run_one(Item& item) {
    TALON_CHECK(writer->run("SAVEPOINT one"));
    try {
      item.result = item.work(*writer);
    } catch (const std::exception& thrown) {
      // Only the standard library throws here (bad_alloc); the writer must live on.
      item.result = fail(Code::internal, std::string{"store: "} + thrown.what());
    }
    if (!writer->in_transaction()) {
      // SQLite itself rolled back (SQLITE_FULL, IOERR, NOMEM: lang_transaction.html §3).
      return item.result ? fail(Code::internal, "store: the transaction was ended by a closure")
                         : std::unexpected(item.result.error());
    }
    if (!item.result) {
      if (item.result.error().code == Code::disk_full) {
        return std::unexpected(item.result.error());
      }
      TALON_CHECK(writer->run("ROLLBACK TO one"));
    }
    TALON_CHECK(writer->run("RELEASE one"));
    return {};
  }

  Result<> roll_back(Error cause) {
    if (writer->in_transaction()) {
      if (auto undone = writer->run("ROLLBACK"); !undone) {
        cause.message += "; roll back: " + undone.error().message;
      }
    }
    return std::unexpected(std::move(cause));
  }

  Result<std::unique_ptr<Db>> take_reader() const {
    {
      const std::lock_guard lock{readers_mutex};
      if (!idle_readers.empty()) {
        auto reader = std::move(idle_readers.back());
        idle_readers.pop_back();
        return reader;
      }
    }
    return Db::open(path, Db::Mode::reader);
  }

  void give_back(std::unique_ptr<Db> reader) const {
    const std::lock_guard lock{readers_mutex};
    if (idle_readers.size() < kIdleReaders) {
      idle_readers.push_back(std::move(reader));
    }
  }
};

Store::Store(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {
  impl_->thread = std::thread{[impl = impl_.get()] { impl->loop(); }};
}

Result<std::unique_ptr<Store>> Store::open(const std::string& path) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  TALON_TRY(writer, Db::open(path, Db::Mode::writer));
  TALON_CHECK(migrate(*writer, path));
  impl->writer = std::move(writer);
  return std::unique_ptr<Store>{new Store(std::move(impl))};
}

Store::~Store() {
  {
    const std::lock_guard lock{impl_->queue_mutex};
    impl_->stopping = true;
  }
  impl_->queue_filled.notify_one();
  impl_->thread.join();
  // Readers first: a checkpoint cannot pass what an open reader may still look at.
  impl_->idle_readers.clear();
  fault::stop("store.checkpoint");
  // Only tidiness: what a failed checkpoint leaves in the -wal file is as durable as before.
  [[maybe_unused]] const auto done = impl_->writer->run("PRAGMA wal_checkpoint(TRUNCATE)");
}

Result<> Store::write(std::function<Result<>(Db&)> work) {
  TALON_ASSERT(std::this_thread::get_id() != impl_->thread.get_id());
  // Shared: set_value() may still touch the promise when get() has returned here.
  auto answer = std::make_shared<std::promise<Result<>>>();
  auto future = answer->get_future();
  write_then(std::move(work), [answer](Result<> result) { answer->set_value(std::move(result)); });
  return future.get();
}

void Store::write_then(std::function<Result<>(Db&)> work, std::function<void(Result<>)> done) {
  impl_->push({.work = std::move(work), .done = std::move(done)});
}

void Store::write_behind(std::function<Result<>(Db&)> work) {
  bool full = false;
  {
    const std::lock_guard lock{impl_->queue_mutex};
    full = impl_->queue.size() >= kQueueMax;
  }
  if (full) {
    impl_->report_behind(
        fail(Code::too_many, "store: the write queue is full, a row was dropped").error());
    return;
  }
  impl_->push({.work = std::move(work), .done = {}});
}

Result<> Store::read(const std::function<Result<>(Db&)>& work) const {
  TALON_TRY(reader, impl_->take_reader());
  // One snapshot for all statements of the closure.
  TALON_CHECK(reader->run("BEGIN"));
  auto result = work(*reader);
  if (auto ended = reader->run("COMMIT"); !ended) {
    return std::unexpected(std::move(ended).error());  // the connection is closed, not reused
  }
  impl_->give_back(std::move(reader));
  return result;
}

std::uint64_t Store::commits() const { return impl_->commits.load(std::memory_order_relaxed); }

std::uint64_t Store::behind_errors() const {
  return impl_->behind_errors.load(std::memory_order_relaxed);
}

void Store::on_behind_error(std::function<void(const Error&)> hook) {
  impl_->behind_hook = std::move(hook);
}

void Store::flush() {
  auto passed = std::make_shared<std::promise<void>>();
  auto future = passed->get_future();
  write_then({}, [passed](const Result<>&) { passed->set_value(); });
  future.get();
}

}  // namespace talon::store
