#include "isolate/closer.h"

#include <signal.h>

#include <algorithm>

#include "isolate/kernel/pidfd.h"
#include "isolate/wire/plan_format.h"

namespace talon::isolate {

std::vector<UniqueFd> hold_mounts(int pidfd, pid_t pid) {
  std::vector<UniqueFd> held;
  const auto add = [&held](Result<UniqueFd> fd) {
    if (fd) {
      held.push_back(std::move(*fd));
    }
  };
  add(kernel::mount_namespace(pidfd, pid));
  for (const auto slot : {wire::Slot::logs, wire::Slot::execs}) {
    add(kernel::copy_descriptor(pidfd, wire::kFdBase + static_cast<int>(slot)));
  }
  return held;
}

void Closer::start() {
  // The daemon's signals are for threads that wait for them.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread{[this] { run(); }};
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Closer::~Closer() {
  {
    const std::lock_guard guard{mutex_};
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void Closer::later(std::string name, Job job) {
  {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [this] { return queue_.size() < kMost; });
    queue_.emplace_back(std::move(name), std::move(job));
    if (!thread_.joinable()) {
      start();
    }
  }
  changed_.notify_all();
}

void Closer::close(std::string name, UniqueFd fd) {
  later(std::move(name), [held = std::move(fd)]() mutable { held.reset(); });
}

void Closer::settle(const std::string& name) {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [&] {
    return at_work_ != name &&
           std::ranges::none_of(queue_, [&](const auto& entry) { return entry.first == name; });
  });
}

void Closer::drain() {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [this] { return at_work_.empty() && queue_.empty(); });
}

void Closer::run() {
  std::unique_lock lock{mutex_};
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) {
      return;
    }
    auto [name, job] = std::move(queue_.front());
    queue_.pop_front();
    at_work_ = std::move(name);
    lock.unlock();
    job();
    job = {};
    lock.lock();
    at_work_.clear();
    changed_.notify_all();
  }
}

}  // namespace talon::isolate
