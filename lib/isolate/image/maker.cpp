#include "isolate/image/maker.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "base/clock.h"
#include "base/fault.h"
#include "base/id.h"
#include "isolate/image/tree.h"

namespace talon::isolate::image {

namespace {

constexpr std::string_view kTmp = ".tmp-";
constexpr const char* kLock = ".lock";

bool try_flock(int fd) {
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

// Leftovers of makers that are gone. With images/.lock held, so none is between mkdir and flock.
void sweep(int images) {
  auto entries = list_dir(images);
  if (!entries) {
    return;
  }
  for (const Entry& e : *entries) {
    if (!e.name.starts_with(kTmp)) {
      continue;
    }
    auto fd = open_subdir(images, e.name);
    if (fd && try_flock(fd->get())) {
      (void)remove_tree(images, e.name);  // tried again by the next maker
    }
  }
}

}  // namespace

Result<UniqueFd> lock_file(int images, const std::string& name) {
  TALON_TRY(fd, open_at(images, name, O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
  while (flock(fd.get(), LOCK_EX) != 0) {
    if (errno != EINTR) {
      return fail_sys(errno, "lock images/" + name);
    }
  }
  return fd;
}

bool split_dir_name(std::string_view dir, std::string& name, std::uint32_t& generation) {
  const std::size_t dash = dir.rfind('-');
  if (dash == std::string_view::npos || dash == 0 || dir.starts_with('.')) {
    return false;
  }
  const std::string_view digits = dir.substr(dash + 1);
  const auto [end, bad] = std::from_chars(digits.data(), digits.data() + digits.size(), generation);
  if (bad != std::errc{} || end != digits.data() + digits.size() || digits.starts_with('0')) {
    return false;
  }
  name = dir.substr(0, dash);
  return true;
}

Result<std::vector<std::uint32_t>> generations(int images, std::string_view name) {
  TALON_TRY(entries, list_dir(images));
  std::vector<std::uint32_t> found;
  for (const Entry& e : entries) {
    std::string base;
    std::uint32_t generation = 0;
    if (split_dir_name(e.name, base, generation) && base == name) {
      found.push_back(generation);
    }
  }
  std::ranges::sort(found);
  return found;
}

Result<Maker> Maker::begin(const std::string& images) {
  Maker maker;
  TALON_TRY(dir, open_at(AT_FDCWD, images, O_RDONLY | O_DIRECTORY));
  maker.images_ = std::move(dir);
  TALON_TRY(lock, lock_file(maker.images_.get(), kLock));
  sweep(maker.images_.get());
  const std::string tmp = std::string{kTmp} + random_hex(8);
  if (mkdirat(maker.images_.get(), tmp.c_str(), 0700) != 0) {
    return fail_sys(errno, "make images/" + tmp);
  }
  maker.tmp_ = tmp;
  TALON_TRY(made, open_subdir(maker.images_.get(), tmp));
  maker.dir_ = std::move(made);
  if (!try_flock(maker.dir_.get())) {
    return fail_sys(errno, "lock images/" + tmp);
  }
  if (mkdirat(maker.dir_.get(), "root", 0755) != 0) {
    return fail_sys(errno, "make root");
  }
  TALON_TRY(root, open_subdir(maker.dir_.get(), "root"));
  if (fchmod(root.get(), 0755) != 0) {  // whatever the umask says
    return fail_sys(errno, "mode of root");
  }
  maker.root_ = std::move(root);
  return maker;
}

Maker::~Maker() {
  if (!tmp_.empty() && images_) {
    (void)remove_tree(images_.get(), tmp_);
  }
}

Result<ImageInfo> Maker::publish(Manifest manifest) {
  // Everything first, the name last: after a power cut there is no image with cut files.
  if (syncfs(root_.get()) != 0) {
    return fail_sys(errno, "sync");
  }
  TALON_TRY(lock, lock_file(images_.get(), kLock));
  TALON_TRY(existing, generations(images_.get(), manifest.info.name));
  manifest.info.generation = existing.empty() ? 1 : existing.back() + 1;
  manifest.info.created_at = rfc3339(system_clock().wall_ms());
  TALON_CHECK(replace_file_at(dir_.get(), "manifest.json", to_json(manifest), 0600));
  const std::string name = manifest.info.name + "-" + std::to_string(manifest.info.generation);
  TALON_CHECK(fault::point("image.rename"));
  if (renameat2(images_.get(), tmp_.c_str(), images_.get(), name.c_str(), RENAME_NOREPLACE) != 0) {
    return fail_sys(errno, "rename to images/" + name);
  }
  tmp_.clear();
  TALON_CHECK(fault::point("image.fsync"));
  if (fsync(images_.get()) != 0) {
    return fail_sys(errno, "sync images");
  }
  return manifest.info;
}

Result<> discard(int images, const std::string& name) {
  const std::string tmp = std::string{kTmp} + random_hex(8);
  UniqueFd held;
  {
    TALON_TRY(lock, lock_file(images, kLock));
    TALON_TRY(fd, open_subdir(images, name));
    if (renameat2(images, name.c_str(), images, tmp.c_str(), RENAME_NOREPLACE) != 0) {
      return fail_sys(errno, "remove images/" + name);
    }
    held = std::move(fd);
    (void)try_flock(held.get());
  }
  return remove_tree(images, tmp);
}

}  // namespace talon::isolate::image
