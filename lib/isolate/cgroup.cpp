#include "isolate/cgroup.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <memory>

#include "isolate/cgroup_tree.h"

namespace talon::isolate {

namespace {

constexpr const char* kUsed[] = {"cpu", "memory", "pids", "io"};
constexpr std::uint64_t kInitMemoryMin = 4ull << 20;  // decision 16
// What init and the pages of its logs may use beside the execs' limit. Execs are limited by x/:
// what they leave behind in /dev/shm belongs to no process, and at the sandbox's own limit the
// kernel would find nobody but init to kill for it.
constexpr std::uint64_t kInitReserve = 8ull << 20;
constexpr std::uint64_t kCpuPeriodUs = 100'000;
// x/memory.high: this part of the limit below it, page cache is taken back and PSI shows pressure
// before anything is killed. No larger: past it the kernel lets an allocating process sleep, for a
// time that grows with the square of the excess (mm/memcontrol.c, calculate_high_delay). At 1/64
// that is at most HZ/64 for each 256 KiB, so a hog that nothing can be taken back from reaches its
// limit in a second for 4 GiB and is ended; at 1/8 it would stand there for minutes, neither dead
// nor alive.
constexpr std::uint64_t kSoftPart = 64;
constexpr double kWeightPerCore = 100;  // cpu.weight of one core: the kernel's default

bool contains(const auto& list, std::string_view name) {
  return std::ranges::find(list, name) != std::end(list);
}

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const auto end = text.find_first_of(" \n");
    if (end != 0) {
      out.emplace_back(text.substr(0, end));
    }
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return out;
}

struct CloseDir {
  void operator()(DIR* dir) const { closedir(dir); }
};

// Names of the directories in `dir`.
Result<std::vector<std::string>> subdirectories(int dir) {
  const int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) {
    return fail_sys(errno, "open a cgroup");
  }
  const std::unique_ptr<DIR, CloseDir> stream{fdopendir(copy)};
  if (!stream) {
    const int error = errno;
    close(copy);
    return fail_sys(error, "read a cgroup");
  }
  std::vector<std::string> out;
  while (const dirent* entry = readdir(stream.get())) {
    if (entry->d_type == DT_DIR && std::strcmp(entry->d_name, ".") != 0 &&
        std::strcmp(entry->d_name, "..") != 0) {
      out.emplace_back(entry->d_name);
    }
  }
  return out;
}

void pause_briefly() {
  const timespec wait{0, 500'000};
  nanosleep(&wait, nullptr);
}

// One group whose processes have been killed: cgroupfs answers EBUSY until the last has left,
// and offers no wait for a rmdir.
Result<> remove_group(int parent, const std::string& name, int& tries) {
  while (unlinkat(parent, name.c_str(), AT_REMOVEDIR) != 0) {
    if (errno == ENOENT) {
      return {};
    }
    if (errno != EBUSY || tries-- <= 0) {
      return fail_sys(errno, "remove cgroup " + name);
    }
    // EBUSY also means children: those first.
    if (auto dir = open_at(parent, name, O_RDONLY | O_DIRECTORY)) {
      TALON_TRY(children, subdirectories(dir->get()));
      for (const std::string& child : children) {
        TALON_CHECK(remove_group(dir->get(), child, tries));
      }
      if (!children.empty()) {
        continue;
      }
    }
    pause_briefly();
  }
  return {};
}

bool parse_number(std::string_view text, std::uint64_t& value) {
  return std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc{};
}

// Of a flat keyed file: lines of "key value".
std::optional<std::uint64_t> value_of(const std::string& text, std::string_view key) {
  const auto all = words(text);
  std::uint64_t value = 0;
  for (std::size_t i = 0; i + 1 < all.size(); i += 2) {
    if (all[i] == key && parse_number(all[i + 1], value)) {
      return value;
    }
  }
  return std::nullopt;
}

std::optional<std::uint64_t> read_number(int dir, const char* name) {
  const auto text = read_file_at(dir, name, 4096);
  std::uint64_t value = 0;
  if (!text || !parse_number(*text, value)) {
    return std::nullopt;
  }
  return value;
}

std::uint64_t count_processes(int dir) {
  std::uint64_t count = 0;
  if (const auto text = read_file_at(dir, "cgroup.procs", 4 << 20)) {
    count += static_cast<std::uint64_t>(std::ranges::count(*text, '\n'));
  }
  if (const auto children = subdirectories(dir)) {
    for (const std::string& child : *children) {
      if (const auto below = open_at(dir, child, O_RDONLY | O_DIRECTORY)) {
        count += count_processes(below->get());
      }
    }
  }
  return count;
}

}  // namespace

std::vector<std::string> controllers_of(const std::string& group) {
  const auto text = read_file_at(AT_FDCWD, group + "/cgroup.controllers", 4096);
  return text ? words(*text) : std::vector<std::string>{};
}

std::string disk_of(const std::string& path) {
  struct stat info{};
  if (stat(path.c_str(), &info) != 0 || major(info.st_dev) == 0) {
    return {};
  }
  const std::string device =
      fmt::format("/sys/dev/block/{}:{}/", major(info.st_dev), minor(info.st_dev));
  const bool part = access((device + "partition").c_str(), F_OK) == 0;
  const auto number = read_file_at(AT_FDCWD, device + (part ? "../dev" : "dev"), 64);
  return number ? number->substr(0, number->find('\n')) : std::string{};
}

Result<CgroupRoot> CgroupRoot::open(const std::string& place, const std::string& instance,
                                    std::string disk) {
  CgroupRoot root;
  root.disk_ = std::move(disk);
  const auto enable = [](const std::string& group) {
    for (const std::string& name : controllers_of(group)) {
      if (contains(kUsed, name)) {
        // A controller that cannot be enabled is missing below, which is what is looked at.
        (void)write_file_at(AT_FDCWD, group + "/cgroup.subtree_control", "+" + name);
      }
    }
  };
  enable(place);
  root.path_ = place + (place.ends_with('/') ? "talon-" : "/talon-") + instance;
  if (mkdir(root.path_.c_str(), 0755) != 0 && errno != EEXIST) {
    return fail_sys(errno, "make cgroup " + root.path_);
  }
  TALON_TRY(dir, open_at(AT_FDCWD, root.path_, O_RDONLY | O_DIRECTORY));
  root.dir_ = std::move(dir);
  enable(root.path_);
  if (const auto enabled = read_file_at(root.dir_.get(), "cgroup.subtree_control", 4096)) {
    root.controllers_ = words(*enabled);
  }
  return root;
}

bool CgroupRoot::has(std::string_view controller) const {
  return contains(controllers_, controller);
}

Result<> CgroupRoot::check(const Limits& limits) const {
  const auto need = [this](bool asked, const char* controller, const char* what) -> Result<> {
    if (!asked || has(controller)) {
      return {};
    }
    return fail(Code::unenforceable,
                fmt::format("{} cannot be limited: the cgroup v2 controller '{}' is not available "
                            "in {}; `talond doctor` shows how to get it",
                            what, controller, path_));
  };
  TALON_CHECK(need(limits.memory_bytes.has_value(), "memory", "memory"));
  TALON_CHECK(need(limits.cpu_cores.has_value(), "cpu", "cpu"));
  TALON_CHECK(need(limits.pids.has_value(), "pids", "the number of processes"));
  const bool io = limits.io_read || limits.io_write;
  TALON_CHECK(need(io, "io", "disk traffic"));
  if (io && disk_.empty()) {
    return fail(Code::unenforceable,
                "disk traffic cannot be limited: io.max needs a block device, and the data "
                "directory's file system is not on one that is known");
  }
  return {};
}

Result<std::vector<std::string>> CgroupRoot::list() const { return subdirectories(dir_.get()); }

namespace {

Result<CgroupApplied> write_limits(const CgroupRoot& root, const std::string& disk, int group,
                                   const Limits& limits) {
  CgroupApplied out;
  if (root.has("memory")) {
    TALON_CHECK(write_file_at(group, "memory.oom.group", "0"));
  }
  if (limits.memory_bytes) {
    TALON_CHECK(
        write_file_at(group, "memory.max", std::to_string(*limits.memory_bytes + kInitReserve)));
    // Without it the limit would be memory plus all of the host's swap. Kernels without swap
    // accounting have no such file.
    if (auto swap = write_file_at(group, "memory.swap.max", "0");
        !swap && swap.error().sys != ENOENT) {
      return std::unexpected(std::move(swap).error());
    }
    out.memory = {.value = *limits.memory_bytes, .enforced = true, .asked = true};
  }
  if (limits.cpu_cores) {
    const auto quota = static_cast<std::uint64_t>(
        std::llround(*limits.cpu_cores * static_cast<double>(kCpuPeriodUs)));
    // The kernel refuses less than a millisecond.
    const std::string text =
        fmt::format("{} {}", std::max<std::uint64_t>(quota, 1000), kCpuPeriodUs);
    TALON_CHECK(write_file_at(group, "cpu.max", text));
    // When the processors are short, each sandbox gets its share in proportion to its quota.
    const double weight = std::clamp(*limits.cpu_cores * kWeightPerCore, 1.0, 10'000.0);
    TALON_CHECK(write_file_at(group, "cpu.weight", std::to_string(std::llround(weight))));
    out.cpu_millicores = {
        .value = static_cast<std::uint64_t>(std::llround(*limits.cpu_cores * 1000)),
        .enforced = true,
        .asked = true};
  }
  out.pids = {.value = limits.pids.value_or(limits::kPidsDefault),
              .enforced = root.has("pids"),
              .asked = limits.pids.has_value()};
  if (out.pids.enforced) {
    TALON_CHECK(write_file_at(group, "pids.max", std::to_string(out.pids.value)));
  }
  std::string io;
  const auto add_io = [&io](const char* key, const auto& wish, LimitState& state) {
    if (wish) {
      io += fmt::format(" {}={}", key, *wish);
      state = {.value = *wish, .enforced = true, .asked = true};
    }
  };
  add_io("rbps", limits.io_read, out.io_read);
  add_io("wbps", limits.io_write, out.io_write);
  if (!io.empty()) {
    TALON_CHECK(write_file_at(group, "io.max", disk + io));
  }
  return out;
}

}  // namespace

Result<CgroupTree> CgroupRoot::make(const std::string& id, const Limits& limits,
                                    std::uint32_t init_id) const {
  TALON_CHECK(check(limits));
  CgroupTree tree;
  tree.path_ = path_ + "/" + id;
  if (mkdirat(dir_.get(), id.c_str(), 0755) != 0) {
    return fail_sys(errno, "make cgroup " + tree.path_);
  }
  auto filled = [&]() -> Result<> {
    TALON_TRY(dir, open_at(dir_.get(), id, O_RDONLY | O_DIRECTORY));
    tree.dir_ = std::move(dir);
    TALON_TRY(applied, write_limits(*this, disk_, tree.dir_.get(), limits));
    tree.applied_ = applied;
    for (const char* name : {"init", "x"}) {
      if (mkdirat(tree.dir_.get(), name, 0755) != 0) {
        return fail_sys(errno, std::string{"make cgroup "} + name);
      }
    }
    // What init needs to make x/<exec> and to clone into it, and nothing else (architecture §4).
    for (const char* name : {"x", "x/cgroup.procs", "cgroup.procs"}) {
      if (fchownat(tree.dir_.get(), name, init_id, init_id, AT_SYMLINK_NOFOLLOW) != 0) {
        return fail_sys(errno, std::string{"give init the cgroup file "} + name);
      }
    }
    return {};
  }();
  if (!filled) {
    (void)tree.remove();
    return std::unexpected(std::move(filled).error());
  }
  return tree;
}

namespace {

// What write_limits() wrote; "max" and a missing file are no limit. A pids.max of the default
// counts as not asked for: the kernel does not know the difference.
CgroupApplied read_limits(int group) {
  CgroupApplied out;
  const auto take = [](LimitState& state, std::uint64_t value) {
    state = {.value = value, .enforced = true, .asked = true};
  };
  if (const auto memory = read_number(group, "x/memory.max")) {
    take(out.memory, *memory);
  }
  const auto cpu = words(read_file_at(group, "cpu.max", 4096).value_or(""));
  std::uint64_t quota = 0;
  std::uint64_t period = 0;
  if (cpu.size() == 2 && parse_number(cpu[0], quota) && parse_number(cpu[1], period) &&
      period != 0) {
    take(out.cpu_millicores, quota * 1000 / period);
  }
  if (const auto pids = read_number(group, "pids.max")) {
    take(out.pids, *pids);
    out.pids.asked = *pids != limits::kPidsDefault;
  }
  // "8:0 rbps=1048576 wbps=max riops=max wiops=max"
  for (const std::string& word : words(read_file_at(group, "io.max", 4096).value_or(""))) {
    std::uint64_t value = 0;
    if (word.size() > 5 && parse_number(std::string_view{word}.substr(5), value)) {
      if (word.starts_with("rbps=")) {
        take(out.io_read, value);
      } else if (word.starts_with("wbps=")) {
        take(out.io_write, value);
      }
    }
  }
  return out;
}

}  // namespace

Result<CgroupTree> CgroupTree::open(const std::string& path) {
  CgroupTree tree;
  tree.path_ = path;
  TALON_TRY(dir, open_at(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  tree.dir_ = std::move(dir);
  tree.applied_ = read_limits(tree.dir_.get());
  return tree;
}

Limits CgroupTree::repeated() const {
  Limits out;
  if (applied_.memory.enforced) {
    out.memory_bytes = applied_.memory.value;
  }
  if (applied_.cpu_millicores.enforced) {
    out.cpu_cores = static_cast<double>(applied_.cpu_millicores.value) / 1000;
  }
  if (applied_.pids.enforced) {
    out.pids = applied_.pids.value;
  }
  return out;
}

Result<> CgroupTree::enable_controllers(const std::vector<std::string>& controllers) const {
  std::string text;
  for (const std::string& name : controllers) {
    if (contains(kUsed, name)) {
      text += (text.empty() ? "+" : " +") + name;
    }
  }
  if (text.empty()) {
    return {};
  }
  // A group with a process in it cannot pass controllers on, and the helper that made the cgroup
  // namespace may still be leaving although it has been reaped.
  auto done = write_file_at(dir_.get(), "cgroup.subtree_control", text);
  for (int tries = 1000; !done && done.error().sys == EBUSY && tries > 0; --tries) {
    pause_briefly();
    done = write_file_at(dir_.get(), "cgroup.subtree_control", text);
  }
  TALON_CHECK(std::move(done));
  TALON_CHECK(write_file_at(dir_.get(), "x/cgroup.subtree_control", text));
  if (contains(controllers, "memory")) {
    TALON_CHECK(write_file_at(dir_.get(), "init/memory.min", std::to_string(kInitMemoryMin)));
  }
  return limit_execs();
}

Result<> CgroupTree::limit_execs() const {
  if (!applied_.memory.enforced) {
    return {};
  }
  const std::uint64_t most = applied_.memory.value;
  TALON_CHECK(write_file_at(dir_.get(), "x/memory.max", std::to_string(most)));
  return write_file_at(dir_.get(), "x/memory.high", std::to_string(most - most / kSoftPart));
}

Result<> CgroupRoot::limit(CgroupTree& tree, const Limits& limits) const {
  TALON_CHECK(check(limits));
  TALON_TRY(applied, write_limits(*this, disk_, tree.dir_.get(), limits));
  tree.applied_ = applied;
  return tree.limit_execs();
}

Result<CgroupStats> CgroupTree::stats() const {
  CgroupStats out;
  TALON_TRY(cpu, read_file_at(dir_.get(), "cpu.stat", 4096));
  out.cpu_usage_us = value_of(cpu, "usage_usec").value_or(0);
  out.throttled = value_of(cpu, "nr_throttled");
  out.throttled_us = value_of(cpu, "throttled_usec");
  const auto killed = [this](const char* file) {
    return value_of(read_file_at(dir_.get(), file, 4096).value_or(""), "oom_kill").value_or(0);
  };
  out.oom_kills = killed("memory.events");
  out.init_oom_kills = killed("init/memory.events");
  out.memory_bytes = read_number(dir_.get(), "memory.current");
  out.memory_peak_bytes = read_number(dir_.get(), "memory.peak");
  out.pids = read_number(dir_.get(), "pids.current");
  if (const auto execs = open_execs()) {
    out.processes = count_processes(execs->get());
  }
  return out;
}

Result<> CgroupTree::freeze(bool frozen, std::chrono::milliseconds deadline) const {
  TALON_CHECK(write_file_at(dir_.get(), "x/cgroup.freeze", frozen ? "1" : "0"));
  if (!frozen) {
    return {};
  }
  const auto until = std::chrono::steady_clock::now() + deadline;
  TALON_TRY(events, open_at(dir_.get(), "x/cgroup.events", O_RDONLY));
  for (;;) {
    std::array<char, 256> text{};
    if (pread(events.get(), text.data(), text.size() - 1, 0) < 0) {
      return fail_sys(errno, "read cgroup.events");
    }
    if (std::string_view{text.data()}.find("frozen 1") != std::string_view::npos) {
      return {};
    }
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    pollfd change{.fd = events.get(), .events = POLLPRI, .revents = 0};
    if (left.count() <= 0 || poll(&change, 1, static_cast<int>(left.count())) == 0) {
      (void)write_file_at(dir_.get(), "x/cgroup.freeze", "0");
      return fail(Code::timeout, fmt::format("a process does not stand still within {} ms: it "
                                             "waits in the kernel for a disk or a device",
                                             deadline.count()));
    }
  }
}

bool CgroupTree::frozen() const {
  return read_number(dir_.get(), "x/cgroup.freeze").value_or(0) == 1;
}

Result<> CgroupTree::kill() const {
  auto done = write_file_at(dir_.get(), "cgroup.kill", "1");
  if (!done && (done.error().sys == ENOENT || done.error().sys == ENODEV)) {
    return {};  // removed already
  }
  return done;
}

Result<> CgroupTree::remove() const {
  const auto slash = path_.rfind('/');
  auto parent = open_at(AT_FDCWD, path_.substr(0, slash), O_RDONLY | O_DIRECTORY);
  if (!parent) {
    return std::unexpected(std::move(parent).error());
  }
  // The usual case first: nothing but these two empty groups is left in it.
  for (const char* name : {"x", "init"}) {
    if (dir_) {
      (void)unlinkat(dir_.get(), name, AT_REMOVEDIR);
    }
  }
  int tries = 4000;
  return remove_group(parent->get(), path_.substr(slash + 1), tries);
}

}  // namespace talon::isolate
