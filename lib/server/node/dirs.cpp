#include "server/node/dirs.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "base/fault.h"
#include "base/id.h"
#include "base/limits.h"

namespace talon::server::node {

namespace {

constexpr int kDirFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;

Result<> make_dir(int dir, const std::string& name, mode_t mode) {
  if (::mkdirat(dir, name.c_str(), mode) != 0 && errno != EEXIST) {
    return fail_sys(errno, "make directory " + name);
  }
  return {};
}

struct CloseDir {
  void operator()(DIR* dir) const { ::closedir(dir); }
};

// Takes `fd`. Entries without "." and "..".
Result<std::vector<std::string>> entries(UniqueFd fd, std::size_t limit) {
  std::unique_ptr<DIR, CloseDir> dir(::fdopendir(fd.get()));
  if (dir == nullptr) {
    return fail_sys(errno, "read directory");
  }
  static_cast<void>(fd.release());
  std::vector<std::string> out;
  while (out.size() < limit) {
    const dirent* entry = ::readdir(dir.get());
    if (entry == nullptr) {
      break;
    }
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") {
      out.emplace_back(name);
    }
  }
  return out;
}

// Deeper than this a directory is moved up to trash/ instead of being entered, so that a tree of
// any depth needs this many descriptors at most.
constexpr int kDepth = 32;

// Removes up to `budget` entries below `dir`; true when `dir` is empty.
Result<bool> clear(int trash, int dir, std::size_t& budget, int depth) {
  while (budget > 0) {
    TALON_TRY(fd, open_at(dir, ".", kDirFlags));
    TALON_TRY(list, entries(std::move(fd), 256));
    if (list.empty()) {
      return true;
    }
    for (const std::string& name : list) {
      if (budget == 0) {
        return false;
      }
      if (::unlinkat(dir, name.c_str(), 0) == 0 || errno == ENOENT) {
        --budget;
        continue;
      }
      if (errno != EISDIR && errno != EPERM) {
        return fail_sys(errno, "remove " + name);
      }
      if (::unlinkat(dir, name.c_str(), AT_REMOVEDIR) == 0) {
        --budget;
        continue;
      }
      if (errno != ENOTEMPTY && errno != EEXIST) {
        return fail_sys(errno, "remove directory " + name);
      }
      if (depth >= kDepth) {
        const std::string moved = random_hex(12);
        if (::renameat(dir, name.c_str(), trash, moved.c_str()) != 0) {
          return fail_sys(errno, "move " + name + " up");
        }
        --budget;
        continue;
      }
      TALON_TRY(child, open_at(dir, name, kDirFlags));
      TALON_TRY(empty, clear(trash, child.get(), budget, depth + 1));
      if (!empty) {
        return false;
      }
      if (::unlinkat(dir, name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) {
        return fail_sys(errno, "remove directory " + name);
      }
      budget -= budget > 0 ? 1 : 0;
    }
  }
  return false;
}

Result<> not_found_if_missing(Error error, const std::string& what) {
  if (error.sys == ENOENT) {
    return fail(Code::not_found, what + " is not there");
  }
  return std::unexpected(std::move(error).in(what));
}

// Field `index` of a passwd or group line.
std::string_view field(std::string_view line, int index) {
  for (; index > 0; --index) {
    const auto colon = line.find(':');
    if (colon == std::string_view::npos) {
      return {};
    }
    line.remove_prefix(colon + 1);
  }
  return line.substr(0, line.find(':'));
}

std::optional<std::uint32_t> id_number(std::string_view text) {
  if (text.empty() || text.size() > 5) {
    return std::nullopt;
  }
  std::uint32_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') {
      return std::nullopt;
    }
    value = value * 10 + static_cast<std::uint32_t>(c - '0');
  }
  return value <= 65535 ? std::optional{value} : std::nullopt;
}

// The line of `file` whose field `key` is `wanted`.
std::string find_line(const std::string& text, int key, std::string_view wanted) {
  std::string_view rest = text;
  while (!rest.empty()) {
    const auto end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    if (!line.empty() && field(line, key) == wanted) {
      return std::string{line};
    }
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return {};
}

std::string etc_file(const DirFd& root, const std::string& name) {
  auto etc = open_at(root.get(), "etc", kDirFlags);
  if (!etc) {
    return {};
  }
  auto file = open_at(etc->get(), name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  struct stat st{};
  if (!file || ::fstat(file->get(), &st) != 0 || !S_ISREG(st.st_mode)) {
    return {};
  }
  std::string text(static_cast<std::size_t>(std::min<off_t>(st.st_size, 1 << 20)), '\0');
  const ssize_t got = ::pread(file->get(), text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

}  // namespace

Result<DataDir> DataDir::open(const std::string& path) {
  TALON_CHECK(make_dir(AT_FDCWD, path, 0700));
  TALON_TRY(root, open_at(AT_FDCWD, path, O_RDONLY | O_DIRECTORY));
  for (const char* name : {"sandboxes", "workspaces", "trash"}) {
    TALON_CHECK(make_dir(root.get(), name, 0700));
  }
  return DataDir(path, std::move(root));
}

Result<DirFd> DataDir::make_sandbox(const std::string& id) const {
  const std::string base = "sandboxes/" + id;
  TALON_CHECK(fault::point("dirs.sandbox"));
  TALON_CHECK(make_dir(root_.get(), base, 0700));
  // The root inside is upper/, so its mode is what the workload sees of `/`.
  TALON_CHECK(make_dir(root_.get(), base + "/upper", 0755));
  TALON_CHECK(fault::point("dirs.work"));
  TALON_CHECK(make_dir(root_.get(), base + "/work", 0755));
  TALON_CHECK(fault::point("dirs.logs"));
  TALON_CHECK(make_dir(root_.get(), base + "/logs", 0700));
  return open_at(root_.get(), base, kDirFlags);
}

Result<DirFd> DataDir::open_sandbox(const std::string& id) const {
  auto dir = open_at(root_.get(), "sandboxes/" + id, kDirFlags);
  if (!dir) {
    TALON_CHECK(not_found_if_missing(std::move(dir).error(), "the directory of " + id));
  }
  return dir;
}

Result<DirFd> DataDir::open_logs(const std::string& id) const {
  auto dir = open_at(root_.get(), "sandboxes/" + id + "/logs", kDirFlags);
  if (!dir) {
    TALON_CHECK(not_found_if_missing(std::move(dir).error(), "the log directory of " + id));
  }
  return dir;
}

Result<DirFd> DataDir::make_workspace(const std::string& ws, std::uint32_t generation,
                                      HostIds owner) const {
  const std::string base = "workspaces/" + ws;
  const std::string tree = base + "/g" + std::to_string(generation);
  TALON_CHECK(make_dir(root_.get(), base, 0700));
  TALON_CHECK(fault::point("dirs.workspace"));
  TALON_CHECK(make_dir(root_.get(), tree, 0755));
  TALON_CHECK(fault::point("dirs.owner"));
  if (::fchownat(root_.get(), tree.c_str(), owner.uid, owner.gid, AT_SYMLINK_NOFOLLOW) != 0) {
    return fail_sys(errno, "give the workspace to its user");
  }
  return open_at(root_.get(), tree, kDirFlags);
}

Result<DirFd> DataDir::open_workspace(const std::string& ws, std::uint32_t generation) const {
  return open_at(root_.get(), "workspaces/" + ws + "/g" + std::to_string(generation), kDirFlags);
}

Result<> DataDir::trash(const std::string& folder, const std::string& name) const {
  const std::string from = folder + "/" + name;
  const std::string to = "trash/" + name + "." + random_hex(6);
  TALON_CHECK(fault::point("trash.rename"));
  if (::renameat(root_.get(), from.c_str(), root_.get(), to.c_str()) != 0 && errno != ENOENT) {
    return fail_sys(errno, "move " + from + " to trash");
  }
  return {};
}

Result<> DataDir::trash_sandbox(const std::string& id) const { return trash("sandboxes", id); }
Result<> DataDir::trash_workspace(const std::string& ws) const { return trash("workspaces", ws); }

Result<std::vector<std::string>> DataDir::names(const std::string& folder) const {
  TALON_TRY(dir, open_at(root_.get(), folder, kDirFlags));
  return entries(std::move(dir), 1 << 20);
}

Result<std::vector<std::string>> DataDir::sandboxes() const { return names("sandboxes"); }
Result<std::vector<std::string>> DataDir::workspaces() const { return names("workspaces"); }

Result<bool> DataDir::empty_trash(std::size_t budget) const {
  TALON_CHECK(fault::point("trash.empty"));
  TALON_TRY(dir, open_at(root_.get(), "trash", kDirFlags));
  return clear(dir.get(), dir.get(), budget, 0);
}

bool DataDir::reserve_present() const {
  struct stat st{};
  return ::fstatat(root_.get(), "reserve", &st, AT_SYMLINK_NOFOLLOW) == 0 &&
         st.st_size >= static_cast<off_t>(limits::kReserveBytes);
}

void DataDir::give_up_reserve() const { ::unlinkat(root_.get(), "reserve", 0); }

Result<> DataDir::make_reserve() const {
  TALON_TRY(file, open_at(root_.get(), "reserve.new", O_WRONLY | O_CREAT | O_NOFOLLOW, 0600));
  const int error = ::posix_fallocate(file.get(), 0, static_cast<off_t>(limits::kReserveBytes));
  if (error != 0) {
    ::unlinkat(root_.get(), "reserve.new", 0);
    return fail_sys(error, "preallocate the disk reserve");
  }
  TALON_CHECK(fault::point("reserve.rename"));
  if (::renameat(root_.get(), "reserve.new", root_.get(), "reserve") != 0) {
    return fail_sys(errno, "name the disk reserve");
  }
  return {};
}

Result<HostIds> lookup_user(const DirFd& image_root, std::string_view user) {
  HostIds ids;
  if (user.empty()) {
    return ids;
  }
  const auto colon = user.find(':');
  const std::string_view name = user.substr(0, colon);
  const std::string passwd = etc_file(image_root, "passwd");
  if (const auto number = id_number(name)) {
    ids.uid = *number;
    const std::string line = find_line(passwd, 2, name);
    ids.gid = id_number(field(line, 3)).value_or(*number);
  } else {
    const std::string line = find_line(passwd, 0, name);
    const auto uid = id_number(field(line, 2));
    if (name.empty() || !uid) {
      return bad_field("user", "the image has no user \"" + std::string{name} +
                                   "\"; give a name from its /etc/passwd or a number 0..65535");
    }
    ids.uid = *uid;
    ids.gid = id_number(field(line, 3)).value_or(0);
  }
  if (colon == std::string_view::npos) {
    return ids;
  }
  const std::string_view group = user.substr(colon + 1);
  if (const auto number = id_number(group)) {
    ids.gid = *number;
    return ids;
  }
  const auto gid = id_number(field(find_line(etc_file(image_root, "group"), 0, group), 2));
  if (group.empty() || !gid) {
    return bad_field("user", "the image has no group \"" + std::string{group} +
                                 "\"; give a name from its /etc/group or a number 0..65535");
  }
  ids.gid = *gid;
  return ids;
}

}  // namespace talon::server::node
