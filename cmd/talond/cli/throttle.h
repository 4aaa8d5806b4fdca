#pragma once
// Back-pressure for `talond run`: init never stops reading the command's pipes, so a command
// that writes faster than our reader reads is held by freezing its group while the log is far
// ahead (cgroup.freeze of x/: decision 15's mechanism, without the pause).

#include <string>

#include "base/fd.h"
#include "isolate/log_reader.h"

namespace talon::cli {

class Throttle {
 public:
  // `cgroup`: the sandbox's group; without one (or if it cannot be frozen) nothing is held.
  explicit Throttle(const std::string& cgroup);
  ~Throttle() { release(); }
  Throttle(const Throttle&) = delete;
  Throttle& operator=(const Throttle&) = delete;

  // Compares what is unread with the marks.
  void check(const isolate::LogReader& reader);
  bool held() const { return held_; }
  // Lets it run; for good, so that it can see a signal and end.
  void give_up();

 private:
  void set(bool held);
  void release() { set(false); }
  DirFd execs_;
  bool held_ = false;
  bool off_ = false;
};

}  // namespace talon::cli
