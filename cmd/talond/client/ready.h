#pragma once
// Waits on descriptors that belong to the caller (its terminal, a pipe it shares with others)
// without making them non-blocking, which everybody who shares them would notice.

#include <string_view>

#include "base/fd.h"
#include "server/async/task.h"

namespace talon::client {

class Ready {
 public:
  enum class For { reading, writing };
  Ready(server::Executor executor, int fd, For what);

  // Returns when a read or write of `fd` would not block; at once for a file. Errors: unavailable
  // when the task is cancelled.
  server::Task<> wait();
  bool now() const;
  bool file() const { return !epoll_; }
  void cancel() { watch_.cancel(); }  // ends a wait in progress

 private:
  int fd_;
  short events_;
  UniqueFd epoll_;  // watches `fd`, and is watched in its place; none for a file
  server::FdWatch watch_;
};

}  // namespace talon::client
