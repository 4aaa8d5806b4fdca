#include "support/machine.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

namespace fs = std::filesystem;

namespace talon::test::machine {

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<std::string> entries(const std::string& path) {
  std::vector<std::string> names;
  std::error_code ec;
  for (fs::directory_iterator it(path, ec), end; !ec && it != end; it.increment(ec)) {
    names.push_back(it->path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string cgroup2_mount() {
  std::istringstream lines(read_file("/proc/self/mountinfo"));
  for (std::string line; std::getline(lines, line);) {
    const auto dash = line.find(" - ");
    if (dash == std::string::npos || !line.substr(dash + 3).starts_with("cgroup2 ")) {
      continue;
    }
    std::istringstream words(line);
    std::string word;
    for (int i = 0; i < 5; ++i) {
      words >> word;
    }
    return word;
  }
  return {};
}

std::vector<std::string> groups_below(const std::string& group) {
  std::vector<std::string> found;
  for (const auto& name : entries(group)) {
    const auto path = group + "/" + name;
    struct stat st{};
    if (lstat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode)) {
      found.push_back(path);
      const auto below = groups_below(path);
      found.insert(found.end(), below.begin(), below.end());
    }
  }
  return found;
}

std::vector<pid_t> processes_below(const std::string& group) {
  auto groups = groups_below(group);
  groups.push_back(group);
  std::vector<pid_t> pids;
  for (const auto& one : groups) {
    std::istringstream lines(read_file(one + "/cgroup.procs"));
    for (pid_t pid; lines >> pid;) {
      pids.push_back(pid);
    }
  }
  std::sort(pids.begin(), pids.end());
  return pids;
}

std::string comm(pid_t pid) {
  auto text = read_file("/proc/" + std::to_string(pid) + "/comm");
  if (!text.empty() && text.back() == '\n') {
    text.pop_back();
  }
  return text;
}

std::vector<std::string> mounts() {
  std::vector<std::string> found;
  std::istringstream lines(read_file("/proc/self/mountinfo"));
  for (std::string line; std::getline(lines, line);) {
    if (line.find("talon") != std::string::npos) {
      found.push_back(line);
    }
  }
  return found;
}

std::vector<std::string> network_namespaces() {
  std::set<std::string> found;
  for (const auto& name : entries("/proc")) {
    if (!std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      continue;
    }
    std::error_code ec;
    const auto target = fs::read_symlink("/proc/" + name + "/ns/net", ec);
    if (!ec) {
      found.insert(target);
    }
  }
  return {found.begin(), found.end()};
}

bool end_group(const std::string& group) {
  if (!fs::exists(group)) {
    return true;
  }
  std::ofstream(group + "/cgroup.kill") << "1";
  for (int i = 0; i < 500 && !processes_below(group).empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  auto groups = groups_below(group);
  std::reverse(groups.begin(), groups.end());
  groups.push_back(group);
  bool all = true;
  for (const auto& one : groups) {
    bool gone = false;
    for (int i = 0; i < 100 && !gone; ++i) {  // EBUSY for a moment after the last exit
      gone = rmdir(one.c_str()) == 0 || access(one.c_str(), F_OK) != 0;
      if (!gone) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    }
    all = all && gone;
  }
  return all;
}

void remove_tree(const std::string& path) {
  struct stat top{};
  if (lstat(path.c_str(), &top) != 0) {
    return;
  }
  std::error_code ec;
  if (S_ISDIR(top.st_mode)) {
    for (const auto& name : entries(path)) {
      const auto child = path + "/" + name;
      struct stat st{};
      if (lstat(child.c_str(), &st) != 0 || st.st_dev != top.st_dev) {
        continue;
      }
      remove_tree(child);
    }
  }
  fs::remove(path, ec);
}

}  // namespace talon::test::machine
