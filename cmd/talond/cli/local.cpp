#include "cli/local.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>

#include "base/id.h"
#include "isolate/cgroup_tree.h"

namespace talon::cli {

namespace {

constexpr std::size_t kOwnerLimit = 16 * 1024;

Result<DirFd> open_dir(int dir, const std::string& path) {
  return open_at(dir, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

Result<DirFd> make_dir(int parent, const std::string& name, unsigned mode) {
  if (::mkdirat(parent, name.c_str(), mode) != 0) {
    return fail_sys(errno, "make directory " + name);
  }
  TALON_TRY(dir, open_dir(parent, name));
  if (::fchmod(dir.get(), mode) != 0) {  // whatever the umask is
    return fail_sys(errno, "make directory " + name);
  }
  return dir;
}

Result<> remove_tree(const std::string& path) {
  std::error_code code;
  std::filesystem::remove_all(path, code);
  if (code) {
    return fail_sys(code.value(), "remove " + path);
  }
  return {};
}

// <run_dir>/local, locked: who makes or judges an entry of it holds the lock.
Result<DirFd> lock_local(const std::string& run_dir) {
  TALON_CHECK(make_private_path(run_dir));
  const std::string path = run_dir + "/local";
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return fail_sys(errno, "make " + path);
  }
  TALON_TRY(dir, open_dir(AT_FDCWD, path));
  while (::flock(dir.get(), LOCK_EX) != 0) {
    if (errno != EINTR) {
      return fail_sys(errno, "lock " + path);
    }
  }
  return dir;
}

struct Owner {
  std::string cgroup;
  std::string scratch;
  std::string image;
};

Owner parse_owner(std::string_view text) {
  Owner owner;
  while (!text.empty()) {
    const auto end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    const auto space = line.find(' ');
    if (space == std::string_view::npos) {
      continue;
    }
    const std::string_view key = line.substr(0, space);
    const std::string value{line.substr(space + 1)};
    if (key == "cgroup") {
      owner.cgroup = value;
    } else if (key == "scratch") {
      owner.scratch = value;
    } else if (key == "image") {
      owner.image = value;
    }
  }
  return owner;
}

// Alive: its talond holds the lock on `owner`. The kernel lets go of it at the process's end,
// so neither a reused pid nor another pid namespace can deceive us.
struct Entry {
  std::string name;
  bool alive = false;
  Owner owner;
};

Result<std::vector<Entry>> read_entries(const DirFd& local) {
  TALON_TRY(copy, open_dir(local.get(), "."));
  const std::unique_ptr<DIR, int (*)(DIR*)> stream{::fdopendir(copy.release()), ::closedir};
  if (stream == nullptr) {
    return fail_sys(errno, "list local runs");
  }
  std::vector<Entry> entries;
  while (const dirent* item = ::readdir(stream.get())) {
    Entry entry{.name = item->d_name, .alive = false, .owner = {}};
    if (entry.name == "." || entry.name == "..") {
      continue;
    }
    const std::string file = entry.name + "/owner";
    if (const auto fd = open_at(local.get(), file, O_RDONLY | O_NOFOLLOW); fd) {
      entry.alive = ::flock(fd->get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
      if (const auto text = read_file_at(local.get(), file, kOwnerLimit); text) {
        entry.owner = parse_owner(*text);
      }
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

// Init has seen the end of its socket and dies by itself; the group's kill is for the rest.
Result<> end_group(const std::string& path) {
  auto group = isolate::CgroupTree::open(path);
  if (!group) {
    return group.error().sys == ENOENT ? Result<>{} : std::unexpected(group.error());
  }
  TALON_CHECK(group->kill());
  return group->remove();
}

Result<> sweep_entry(const std::string& local, const Entry& entry) {
  if (!entry.owner.cgroup.empty()) {
    TALON_CHECK(end_group(entry.owner.cgroup));
  }
  // The owner file goes last: an interrupted sweep is taken up by the next one.
  if (entry.owner.scratch.find("/local/") != std::string::npos) {
    TALON_CHECK(remove_tree(entry.owner.scratch));
  }
  return remove_tree(local + "/" + entry.name);
}

std::vector<std::string> sweep_locked(const std::string& run_dir,
                                      const std::vector<Entry>& entries) {
  std::vector<std::string> done;
  for (const Entry& entry : entries) {
    if (entry.alive) {
      continue;
    }
    const auto swept = sweep_entry(run_dir + "/local", entry);
    done.push_back(swept ? "removed what the dead run " + entry.name + " left"
                         : "sweep of the dead run " + entry.name + ": " + swept.error().message);
  }
  return done;
}

// "<pid>", or "<pid>.<n>" when a talond of another pid namespace has that number.
std::string free_name(const std::vector<Entry>& entries) {
  const std::string pid = std::to_string(::getpid());
  std::string name = pid;
  for (int i = 1; std::ranges::any_of(entries, [&](const Entry& e) { return e.name == name; });
       ++i) {
    name = pid + "." + std::to_string(i);
  }
  return name;
}

}  // namespace

Result<> make_private_path(const std::string& path) {
  // The usual case first: it is there.
  if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) {
    return {};
  }
  for (std::size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string parent = path.substr(0, slash);
    if (::mkdir(parent.c_str(), 0755) != 0 && errno != EEXIST) {
      return fail_sys(errno, "make " + parent);
    }
  }
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return fail_sys(errno, "make " + path);
  }
  return {};
}

Result<LocalRun> LocalRun::make(const Config& config, Options options) {
  LocalRun run;
  TALON_TRY(local, lock_local(config.run_dir));
  TALON_TRY(entries, read_entries(local));
  sweep_locked(config.run_dir, entries);
  std::erase_if(entries, [](const Entry& entry) { return !entry.alive; });

  const std::string name = free_name(entries);
  run.run_dir_ = config.run_dir + "/local/" + name;
  run.scratch_ = config.data_dir + "/local/" + name + "." + random_hex(4);
  TALON_TRY(own, make_dir(local.get(), name, 0700));
  TALON_TRY(owner, open_at(own.get(), "owner", O_RDWR | O_CREAT | O_EXCL, 0600));
  if (::flock(owner.get(), LOCK_EX | LOCK_NB) != 0) {
    return fail_sys(errno, "lock " + run.run_dir_ + "/owner");
  }
  run.owner_ = std::move(owner);
  // Known to a sweep before it exists.
  TALON_CHECK(write_all(run.owner_.get(), "scratch " + run.scratch_ + "\n"));
  local.reset();

  TALON_CHECK(make_private_path(config.data_dir + "/local"));
  TALON_TRY(root, make_dir(AT_FDCWD, run.scratch_, 0700));
  run.root_ = std::move(root);
  TALON_TRY(logs, make_dir(run.root_.get(), "logs", 0700));
  run.logs_ = std::move(logs);
  if (options.private_workspace) {
    TALON_TRY(workspace, make_dir(run.root_.get(), "workspace", options.any_user ? 01777 : 0755));
    run.workspace_ = std::move(workspace);
  }
  return run;
}

LocalRun::~LocalRun() {
  if (owner_) {
    [[maybe_unused]] const auto done = remove();
  }
}

Result<> LocalRun::note(const std::string& cgroup, const std::string& image) {
  cgroup_ = cgroup;
  return write_all(owner_.get(), "cgroup " + cgroup + "\nimage " + image + "\n");
}

Result<> LocalRun::remove() {
  // Empty after an orderly end; else whatever is in it ends now.
  if (!cgroup_.empty() && ::rmdir(cgroup_.c_str()) != 0 && errno != ENOENT) {
    TALON_CHECK(end_group(cgroup_));
  }
  TALON_CHECK(remove_tree(scratch_));
  TALON_CHECK(remove_tree(run_dir_));
  owner_.reset();
  return {};
}

Result<std::vector<std::string>> sweep_local(const std::string& run_dir) {
  TALON_TRY(local, lock_local(run_dir));
  TALON_TRY(entries, read_entries(local));
  return sweep_locked(run_dir, entries);
}

Result<std::vector<std::string>> local_images_in_use(const std::string& run_dir) {
  TALON_TRY(local, lock_local(run_dir));
  TALON_TRY(entries, read_entries(local));
  std::vector<std::string> images;
  for (const Entry& entry : entries) {
    if (entry.alive && !entry.owner.image.empty()) {
      images.push_back(entry.owner.image);
    }
  }
  return images;
}

}  // namespace talon::cli
