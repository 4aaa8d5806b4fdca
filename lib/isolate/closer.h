#pragma once
// What ends a sandbox off the caller's path, in a thread of its own: the last descriptor of its
// tree unmounts the overlay, which syncs the upper layer's file system (a millisecond and more);
// groups and directories are removed.

#include <sys/types.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"

namespace talon::isolate {

// What a sandbox's init would unmount while it ends: its mount namespace and the directories it
// holds. Each would keep whoever waits for that end through an RCU grace period, so who kills it
// takes these first and gives them to the closer afterwards. Empty if init is gone.
std::vector<UniqueFd> hold_mounts(int pidfd, pid_t pid);

class Closer {
 public:
  using Job = std::move_only_function<void()>;

  Closer() = default;
  ~Closer();  // after all of it is done
  Closer(const Closer&) = delete;
  Closer& operator=(const Closer&) = delete;

  // `name`: the sandbox whose it is; jobs are done in order. Waits while kMost are due: descriptors
  // and ids that only wait for their end must not grow without bound.
  void later(std::string name, Job job);
  void close(std::string name, UniqueFd fd);
  // Returns when nothing of `name` is due: an upper layer must not be mounted twice (decision 28),
  // and a second life makes groups and directories of the same names.
  void settle(const std::string& name);
  // Returns when everything given so far is done.
  void drain();

  static constexpr std::size_t kMost = 256;

 private:
  void start();  // the thread, when there is something to do; under mutex_
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<std::string, Job>> queue_;
  std::string at_work_;  // whose job is being done
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace talon::isolate
