#include "isolate/lease.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <limits>

namespace talon::isolate {

Result<std::unique_ptr<LeasePool>> LeasePool::open(const std::string& dir, std::uint32_t base,
                                                   std::uint32_t count) {
  constexpr std::uint64_t kLast = std::numeric_limits<std::uint32_t>::max() - 1ull;
  if (count == 0 || base == 0 || base + std::uint64_t{count} * limits::kIdRange > kLast) {
    return bad_field("ids",
                     fmt::format("{} leases from id {} do not fit in 32-bit ids", count, base));
  }
  std::error_code error;
  const bool made = std::filesystem::create_directories(dir, error);
  if (error) {
    return fail_sys(error.value(), "make " + dir);
  }
  if (made) {
    std::filesystem::permissions(dir, std::filesystem::perms::owner_all, error);
  }
  std::unique_ptr<LeasePool> pool{new LeasePool};
  TALON_TRY(fd, open_at(AT_FDCWD, dir, O_RDONLY | O_DIRECTORY));
  pool->dir_ = std::move(fd);
  pool->base_ = base;
  pool->count_ = count;
  return pool;
}

Result<IdLease> LeasePool::take() {
  const std::lock_guard guard{mutex_};
  for (std::uint32_t tried = 0; tried < count_; ++tried) {
    // Round robin: a range just given back rests longest.
    const std::uint32_t number = next_;
    next_ = (next_ + 1) % count_;
    if (held_.contains(number)) {
      continue;
    }
    TALON_TRY(file,
              open_at(dir_.get(), std::to_string(number), O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
    struct flock lock{};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    if (fcntl(file.get(), F_OFD_SETLK, &lock) != 0) {
      if (errno == EAGAIN || errno == EACCES) {
        continue;  // another daemon's, or `talond run`
      }
      return fail_sys(errno, "lock an id lease");
    }
    held_.insert(number);
    return IdLease{.number = number, .base = base_of(number), .lock = std::move(file)};
  }
  return fail(Code::too_many, fmt::format("all {} id leases are taken", count_));
}

void LeasePool::release(std::uint32_t number) {
  const std::lock_guard guard{mutex_};
  held_.erase(number);
}

void LeasePool::adopt(std::uint32_t number) {
  const std::lock_guard guard{mutex_};
  held_.insert(number);
}

}  // namespace talon::isolate
