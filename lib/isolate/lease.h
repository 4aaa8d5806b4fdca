#pragma once
// Id leases (decisions 1, 2): lease n is the host ids [base + n·65537, … + 65536]. It is an OFD
// lock on <dir>/<n>; the descriptor is handed to init, so the lock lives as long as the sandbox,
// across daemons and `talond run`. Thread-safe.

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "base/error.h"
#include "base/fd.h"
#include "base/limits.h"

namespace talon::isolate {

struct IdLease {
  std::uint32_t number = 0;
  std::uint32_t base = 0;  // host id of 0 inside
  UniqueFd lock;           // an open file description that init shares
  std::uint32_t init_id() const { return base + limits::kIdRange - 1; }
};

class LeasePool {
 public:
  // Makes `dir` (0700) with its parents.
  static Result<std::unique_ptr<LeasePool>> open(const std::string& dir, std::uint32_t base,
                                                 std::uint32_t count);

  // too_many when all are taken.
  Result<IdLease> take();
  // The kernel drops init's lock before it has killed init's children, so a range is free only
  // once its sandbox's end was seen here: release() is called after that.
  void release(std::uint32_t number);
  // A sandbox of an earlier daemon holds it.
  void adopt(std::uint32_t number);
  std::uint32_t base_of(std::uint32_t number) const { return base_ + number * limits::kIdRange; }
  std::uint32_t count() const { return count_; }

 private:
  LeasePool() = default;
  DirFd dir_;
  std::uint32_t base_ = 0;
  std::uint32_t count_ = 0;
  std::mutex mutex_;
  std::set<std::uint32_t> held_;
  std::uint32_t next_ = 0;
};

}  // namespace talon::isolate
