// Where talon's groups may live (decision 14): a configured place; the root of the v2 mount; a
// delegated group that holds only talon; a sibling of talon's own group.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "isolate/cgroup_tree.h"

namespace talon::isolate {

namespace {

// mountinfo writes space, tab, newline and backslash as \ooo (man 5 proc).
std::string unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned code = 0;
    if (text[i] == '\\' && i + 3 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 4, code, 8).ec == std::errc{}) {
      out.push_back(static_cast<char>(code));
      i += 3;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

std::string_view field(std::string_view line, int number) {
  for (; number > 0; --number) {
    const auto space = line.find(' ');
    if (space == std::string_view::npos) {
      return {};
    }
    line.remove_prefix(space + 1);
  }
  return line.substr(0, line.find(' '));
}

// talon's own v2 group, "/…" as its cgroup namespace shows it; "" if unknown.
std::string own_group() {
  const auto text = read_file_at(AT_FDCWD, "/proc/self/cgroup", 1 << 20);
  if (!text) {
    return {};
  }
  const auto at = text->starts_with("0::") ? 0 : text->find("\n0::");
  if (at == std::string::npos) {
    return {};
  }
  const auto begin = text->find("0::", at) + 3;
  return text->substr(begin, text->find('\n', begin) - begin);
}

// Whether a group can be made in `place`: by making one. Who makes one anyway only looks whether
// the mount is writable.
bool can_make(const std::string& place, Place mode) {
  if (mode == Place::take) {
    return access(place.c_str(), W_OK) == 0;
  }
  const std::string probe = fmt::format("{}/talon-probe-{}", place, getpid());
  if (mkdir(probe.c_str(), 0755) != 0) {
    return false;
  }
  rmdir(probe.c_str());
  return true;
}

// Every process of `group` is this one (or nobody).
bool holds_only_us(const std::string& group) {
  const auto text = read_file_at(AT_FDCWD, group + "/cgroup.procs", 1 << 20);
  return text && (*text == fmt::format("{}\n", getpid()) || text->empty());
}

Result<std::string> use_delegated(const std::string& group, Place mode) {
  if (mode == Place::look) {
    return group + "/sandboxes";
  }
  for (const char* name : {"/daemon", "/sandboxes"}) {
    if (mkdir((group + name).c_str(), 0755) != 0 && errno != EEXIST) {
      return fail_sys(errno, "make cgroup " + group + name);
    }
  }
  // A group with processes of its own cannot give controllers to its children.
  TALON_CHECK(write_file_at(AT_FDCWD, group + "/daemon/cgroup.procs", std::to_string(getpid())));
  for (const std::string& name : controllers_of(group)) {
    (void)write_file_at(AT_FDCWD, group + "/cgroup.subtree_control", "+" + name);
  }
  return group + "/sandboxes";
}

}  // namespace

std::string find_cgroup_mount() {
  const auto text = read_file_at(AT_FDCWD, "/proc/self/mountinfo", 16 << 20);
  if (!text) {
    return {};
  }
  std::string_view rest{*text};
  while (!rest.empty()) {
    const auto end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    const auto dash = line.find(" - ");
    if (dash != std::string_view::npos && field(line.substr(dash + 3), 0) == "cgroup2") {
      return unescape(field(line, 4));
    }
  }
  return {};
}

Result<std::string> choose_cgroup_place(const std::string& configured, Place mode) {
  if (!configured.empty()) {
    if (mode == Place::take && mkdir(configured.c_str(), 0755) != 0 && errno != EEXIST) {
      return fail_sys(errno, "make cgroup " + configured);
    }
    if (access((configured + "/cgroup.controllers").c_str(), F_OK) != 0) {
      return fail(Code::unenforceable, configured + " is not a directory of a cgroup v2 mount");
    }
    return configured;
  }
  const std::string mount = find_cgroup_mount();
  if (mount.empty()) {
    return fail(Code::unenforceable, "cgroup v2 is not mounted");
  }
  // cgroup.type is missing only in the real root, where processes of its own are no obstacle.
  const bool real_root = access((mount + "/cgroup.type").c_str(), F_OK) != 0;
  const std::string own = own_group();
  const std::string group = own.empty() || own == "/" ? mount : mount + own;
  if ((real_root || holds_only_us(mount)) && can_make(mount, mode)) {
    return real_root || group != mount ? Result<std::string>{mount} : use_delegated(mount, mode);
  }
  if (group != mount && can_make(group, mode) && holds_only_us(group)) {
    return use_delegated(group, mode);
  }
  const std::string parent = group.substr(0, group.rfind('/'));
  if (group != mount && can_make(parent, mode)) {
    return parent;
  }
  return fail(Code::unenforceable, fmt::format("no cgroup can be made in {} or {}", mount, group));
}

}  // namespace talon::isolate
