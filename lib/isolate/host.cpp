#include "isolate/host.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>

#include "base/fd.h"
#include "isolate/cgroup_tree.h"

namespace talon::isolate {

namespace {

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) {
    text.pop_back();
  }
  return text;
}

std::uint64_t file_number(const char* path) {
  const auto text = read_file_at(AT_FDCWD, path, 4096);
  std::uint64_t value = 0;
  if (text) {
    std::from_chars(text->data(), text->data() + text->size(), value);
  }
  return value;
}

std::string boot_id() {
#ifdef TALON_TEST_HOOKS
  if (const char* fake = std::getenv("TALON_TEST_BOOT_ID"); fake != nullptr) {
    return fake;
  }
#endif
  const auto text = read_file_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 4096);
  return text ? trimmed(*text) : std::string{};
}

// fsopen loads the module if need be; without SYS_ADMIN only what is loaded can be seen.
bool has_overlayfs() {
  if (const UniqueFd context{fsopen("overlay", FSOPEN_CLOEXEC)}; context) {
    return true;
  }
  const auto text = read_file_at(AT_FDCWD, "/proc/filesystems", 65536);
  return text && text->find("\toverlay\n") != std::string::npos;
}

bool has_seccomp() {
  const std::uint32_t action = SECCOMP_RET_KILL_PROCESS;
  return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

bool has_sys_resource() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  return syscall(SYS_capget, &header, data) == 0 &&
         (data[0].effective & (1u << CAP_SYS_RESOURCE)) != 0;
}

void parse_release(HostFacts& facts) {
  const char* at = facts.kernel.data();
  const char* end = at + facts.kernel.size();
  const auto major = std::from_chars(at, end, facts.kernel_major);
  if (major.ec == std::errc{} && major.ptr != end && *major.ptr == '.') {
    std::from_chars(major.ptr + 1, end, facts.kernel_minor);
  }
}

}  // namespace

bool HostFacts::has_controller(std::string_view name) const {
  return std::ranges::find(controllers, name) != controllers.end();
}

Result<HostFacts> probe_kernel() {
  HostFacts facts;
  utsname names{};
  if (uname(&names) != 0) {
    return fail_sys(errno, "uname");
  }
  facts.kernel = names.release;
  facts.machine = names.machine;
  parse_release(facts);
  facts.boot_id = boot_id();
  facts.root = geteuid() == 0;
  facts.idmapped_tmpfs = facts.at_least(6, 3);
  facts.seccomp = has_seccomp();
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    facts.nofile_hard = files.rlim_max;
  }
  return facts;
}

Result<HostFacts> probe_host(const std::string& cgroup_path) {
  TALON_TRY(facts, probe_kernel());
  facts.user_namespaces = access("/proc/self/ns/user", F_OK) == 0 &&
                          file_number("/proc/sys/user/max_user_namespaces") > 0;
  facts.overlayfs = has_overlayfs();
  const long abi =
      syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  facts.landlock_abi = abi > 0 ? static_cast<int>(abi) : 0;
  facts.cap_sys_resource = has_sys_resource();
  facts.cgroup_mount = find_cgroup_mount();
  const auto place = choose_cgroup_place(cgroup_path, Place::look);
  if (!place) {
    facts.cgroup_problem = place.error().message;
    return facts;
  }
  // What a group made there could use: a directory that does not exist yet (a delegated group's
  // sandboxes/) gets what its parent has.
  facts.controllers = controllers_of(*place);
  if (facts.controllers.empty()) {
    facts.controllers = controllers_of(place->substr(0, place->rfind('/')));
  }
  return facts;
}

}  // namespace talon::isolate
