#include "bench/bundle.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "bench/rows.h"
#include "isolate/image/tree.h"

namespace talon::bench {

namespace fs = std::filesystem;

namespace {

constexpr std::array kDenied = std::to_array<std::string_view>({
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "keyctl",
    "add_key",
    "request_key",
    "mount",
    "umount2",
    "pivot_root",
    "unshare",
    "setns",
    "ptrace",
    "kexec_load",
    "kexec_file_load",
    "init_module",
    "finit_module",
    "delete_module",
    "reboot",
    "swapon",
    "swapoff",
    "acct",
    "settimeofday",
    "clock_settime",
    "open_by_handle_at",
    "name_to_handle_at",
    "open_tree",
    "move_mount",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "mount_setattr",
    "personality",
    "quotactl",
    "syslog",
    "iopl",
    "ioperm",
    "chroot",
    "sethostname",
    "setdomainname",
    "lookup_dcookie",
    "nfsservctl",
    "vhangup",
    "uselib",
    "ustat",
    "sysfs",
    "_sysctl",
});

std::string allowed_calls() {
  std::string out;
  for (int number = 0; number < 470; ++number) {
    char* name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, number);
    if (name != nullptr && std::ranges::find(kDenied, std::string_view{name}) == kDenied.end()) {
      out += out.empty() ? "\"" : ",\"";
      out += name;
      out += "\"";
    }
    std::free(name);
  }
  return out;
}

// The defaults of `runc spec`, plus user and cgroup namespace, id maps and seccomp. No
// `resources`: a device rule needs RLIMIT_MEMLOCK raised, which not every host lets root do.
std::string config_json(const std::string& rootfs, const std::string& args) {
#ifdef __x86_64__
  const char* arch = "SCMP_ARCH_X86_64";
#else
  const char* arch = "SCMP_ARCH_AARCH64";
#endif
  return R"({"ociVersion":"1.0.0","process":{"terminal":false,"user":{"uid":0,"gid":0},
"args":)" +
         args + R"(,"env":["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],"cwd":"/",
"capabilities":{"bounding":[],"effective":[],"permitted":[],"ambient":[]},
"rlimits":[{"type":"RLIMIT_NOFILE","hard":1024,"soft":1024}],"noNewPrivileges":true},
"root":{"path":")" +
         rootfs + R"(","readonly":true},"hostname":"bench","mounts":[
{"destination":"/proc","type":"proc","source":"proc"},
{"destination":"/dev","type":"tmpfs","source":"tmpfs","options":["nosuid","strictatime","mode=755","size=65536k"]},
{"destination":"/dev/pts","type":"devpts","source":"devpts","options":["nosuid","noexec","newinstance","ptmxmode=0666","mode=0620","gid=5"]},
{"destination":"/dev/shm","type":"tmpfs","source":"shm","options":["nosuid","noexec","nodev","mode=1777","size=65536k"]},
{"destination":"/dev/mqueue","type":"mqueue","source":"mqueue","options":["nosuid","noexec","nodev"]},
{"destination":"/sys","type":"sysfs","source":"sysfs","options":["nosuid","noexec","nodev","ro"]},
{"destination":"/sys/fs/cgroup","type":"cgroup","source":"cgroup","options":["nosuid","noexec","nodev","relatime","ro"]}],
"linux":{"namespaces":[{"type":"pid"},{"type":"network"},{"type":"ipc"},{"type":"uts"},{"type":"mount"},{"type":"cgroup"},{"type":"user"}],
"uidMappings":[{"containerID":0,"hostID":100000,"size":65536}],
"gidMappings":[{"containerID":0,"hostID":100000,"size":65536}],
"maskedPaths":["/proc/acpi","/proc/asound","/proc/kcore","/proc/keys","/proc/latency_stats","/proc/timer_list","/proc/timer_stats","/proc/sched_debug","/sys/firmware","/proc/scsi"],
"readonlyPaths":["/proc/bus","/proc/fs","/proc/irq","/proc/sys","/proc/sysrq-trigger"],
"seccomp":{"defaultAction":"SCMP_ACT_ERRNO","architectures":[")" +
         arch + R"("],"syscalls":[{"names":[)" + allowed_calls() +
         R"(],"action":"SCMP_ACT_ALLOW"}]}}}
)";
}

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream{path, std::ios::binary} << text;
}

void make_rootfs(const fs::path& root, const std::string& tiny_true) {
  for (const char* dir : {"bin", "dev", "proc", "sys/fs/cgroup", "tmp", "etc", "root", "run", "usr",
                          "var", "workspace", "home/user"}) {
    fs::create_directories(root / dir);
  }
  fs::copy_file("/bin/busybox", root / "bin/busybox");
  for (const char* name : {"sh", "sleep", "cat"}) {
    fs::create_symlink("busybox", root / "bin" / name);
  }
  fs::copy_file(tiny_true, root / "bin/true");
  write_text(root / "etc/passwd",
             "root:*:0:0:root:/root:/bin/sh\n"
             "user:*:1000:1000:user:/home/user:/bin/sh\n");
  write_text(root / "etc/group", "root:*:0:\nuser:*:1000:\n");
}

}  // namespace

Result<Workshop> Workshop::make(const std::string& tiny_true) {
  std::string name = fs::temp_directory_path() / "talon-bench-XXXXXX";
  if (mkdtemp(name.data()) == nullptr || chmod(name.c_str(), 0755) != 0) {
    return fail_sys(errno, "make a scratch directory");
  }
  Workshop shop;
  shop.dir_ = name;
  try {
    make_rootfs(shop.rootfs(), tiny_true);
    for (const auto& [dir, args] : {std::pair{shop.run_bundle(), R"(["/bin/true"])"},
                                    std::pair{shop.sleep_bundle(), R"(["/bin/sleep","100000"])"}}) {
      fs::create_directory(dir);
      write_text(dir + "/config.json", config_json(shop.rootfs(), args));
    }
  } catch (const fs::filesystem_error& e) {
    return fail(Code::io, e.what());
  }
  return shop;
}

Workshop::~Workshop() {
  if (!dir_.empty()) {
    (void)isolate::image::remove_tree(AT_FDCWD, dir_);
  }
}

Result<> enter_private_mounts() {
  if (unshare(CLONE_NEWNS) != 0 ||
      mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return fail_sys(errno, "a mount namespace of its own");
  }
  if (mount("talon-bench", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755") != 0) {
    return fail_sys(errno, "a /run of its own");
  }
  // The cgroup2 mount point, from mountinfo: "… <point> … - cgroup2 …".
  std::ifstream info{"/proc/self/mountinfo"};
  std::string point;
  for (std::string line; std::getline(info, line);) {
    std::istringstream words{line};
    std::string skip;
    std::string at;
    words >> skip >> skip >> skip >> skip >> at;
    if (point.empty() && line.find(" - cgroup2 ") != std::string::npos) {
      point = at;
    }
  }
  if (point.empty()) {
    return fail(Code::unavailable, "no cgroup2 mount");
  }
  if (point == "/sys/fs/cgroup") {
    return {};
  }
  const int tree = static_cast<int>(
      syscall(SYS_open_tree, AT_FDCWD, point.c_str(), 1 /* OPEN_TREE_CLONE */ | O_CLOEXEC));
  if (tree < 0 || umount2("/sys/fs/cgroup", MNT_DETACH) != 0 ||
      syscall(SYS_move_mount, tree, "", AT_FDCWD, "/sys/fs/cgroup", 4 /* F_EMPTY_PATH */) != 0) {
    return fail_sys(errno, "cgroup2 on /sys/fs/cgroup");
  }
  close(tree);
  return {};
}

Result<double> time_command(const std::vector<std::string>& argv, const std::string& log,
                            const std::vector<std::string>& environment) {
  std::vector<char*> args;
  for (const std::string& a : argv) {
    args.push_back(const_cast<char*>(a.c_str()));
  }
  args.push_back(nullptr);
  std::vector<char*> env;
  for (char** e = environ; *e != nullptr; ++e) {
    env.push_back(*e);
  }
  for (const std::string& e : environment) {
    env.push_back(const_cast<char*>(e.c_str()));
  }
  env.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  pid_t pid = 0;
  const double begin = now_us();
  const int error = posix_spawnp(&pid, args[0], &files, nullptr, args.data(), env.data());
  int status = 0;
  if (error == 0) {
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
  }
  const double took = now_us() - begin;
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) {
    return fail_sys(error, "start " + argv[0]);
  }
  if (status != 0) {
    std::ifstream in{log};
    std::string text{std::istreambuf_iterator<char>{in}, {}};
    return fail(Code::unavailable,
                argv[0] +
                    (WIFEXITED(status) ? " ended with " + std::to_string(WEXITSTATUS(status))
                                       : " died by signal " + std::to_string(WTERMSIG(status))) +
                    ": " + text.substr(text.size() > 400 ? text.size() - 400 : 0));
  }
  return took;
}

}  // namespace talon::bench
