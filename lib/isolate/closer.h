#pragma once
// Closes what is dear to close off the caller's path: the last descriptor of a sandbox's tree
// unmounts its overlay, which syncs the upper layer's file system (a millisecond and more).

#include <sys/types.h>

#include <condition_variable>
#include <deque>
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
  Closer() = default;
  ~Closer();  // after all of it is closed
  Closer(const Closer&) = delete;
  Closer& operator=(const Closer&) = delete;

  // `name`: the sandbox whose tree it was.
  void close(std::string name, UniqueFd fd);
  // Returns when nothing of `name` is open here: an upper layer must not be mounted twice
  // (decision 28).
  void settle(const std::string& name);
  // Returns when everything given so far is closed.
  void drain();

 private:
  void start();  // the thread, when there is something to do; under mutex_
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<std::string, UniqueFd>> queue_;
  std::string at_work_;  // whose mount is being closed
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace talon::isolate
