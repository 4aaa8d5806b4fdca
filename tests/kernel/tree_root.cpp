// The root tree: writable where it should be, ids 0-based on disk, /dev, /sys and mount flags.

#include <catch2/catch.hpp>

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "kernel/sandbox_support.h"

using namespace talon;
using namespace talon::testing;
using isolate::Storage;

namespace {

struct MountLine {
  std::string source_root;  // the mount's root within its file system
  std::string target;
  std::string options;
  std::string type;
  std::string super;
};

std::vector<MountLine> mounts_of(const std::string& mountinfo) {
  std::vector<MountLine> out;
  std::istringstream in{mountinfo};
  for (std::string line; std::getline(in, line);) {
    std::istringstream words{line};
    std::string skip;
    MountLine mount;
    words >> skip >> skip >> skip >> mount.source_root >> mount.target >> mount.options;
    while (words >> skip && skip != "-") {
    }
    words >> mount.type >> skip >> mount.super;
    out.push_back(mount);
  }
  return out;
}

bool has_option(const std::string& options, const std::string& name) {
  return ("," + options + ",").find("," + name + ",") != std::string::npos;
}

unsigned owner(const std::filesystem::path& path) {
  struct stat facts{};
  return lstat(path.c_str(), &facts) == 0 ? facts.st_uid : ~0u;
}

std::string content(const std::filesystem::path& path) {
  std::ifstream in{path};
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

}  // namespace

TEST_CASE("R15, R12: the root is writable, changes land in the upper layer with ids from 0") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  Box box = lab.create();
  const std::string id = box->identity().id;
  CHECK(lab.sh(box, "echo new > /etc/new && echo more >> /etc/marker && rm /etc/group").code == 0);
  CHECK(lab.sh(box, "echo mine > /tmp/mine", "user").code == 0);
  CHECK(lab.sh(box, "echo w > /workspace/w").code == 0);
  const auto upper = lab.root_of(id) / "upper";
  CHECK(content(upper / "etc/new") == "new\n");
  CHECK(owner(upper / "etc/new") == 0);
  CHECK(owner(upper / "tmp/mine") == 1000);
  CHECK(content(lab.root_of(id) / "workspace/w") == "w\n");
  CHECK(owner(lab.root_of(id) / "workspace/w") == 0);
  // The image is as it was, and another sandbox sees that.
  CHECK(content(lab.image() / "etc/marker") == "from the image\n");
  CHECK(std::filesystem::exists(lab.image() / "etc/group"));
  Box other = lab.create();
  CHECK(lab.run(other, {"/bin/cat", "/etc/marker"}).out == "from the image\n");
  CHECK(lab.run(other, {"/bin/test", "-e", "/etc/new"}).code == 1);
  CHECK(lab.run(box, {"/bin/test", "-e", "/etc/group"}).code == 1);
  lab.destroy(other);
  lab.destroy(box);
}

TEST_CASE("a stopped sandbox's root changes are there when it is started again") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  const auto spec = lab.spec();
  Box box = lab.create(spec);
  const auto first_lease = box->identity().lease;
  CHECK(lab.sh(box, "mkdir /opt && echo kept > /opt/kept && chown 1000 /opt/kept").code == 0);
  lab.destroy(box);
  box = lab.create(spec);
  CHECK(box->identity().lease != first_lease);
  CHECK(lab.run(box, {"/bin/cat", "/opt/kept"}).out == "kept\n");
  CHECK(trim(lab.run(box, {"/bin/stat", "-c", "%u", "/opt/kept"}).out) == "1000");
  lab.destroy(box);
}

TEST_CASE("storage memory: writable, capped, nothing on disk") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  auto spec = lab.spec();
  spec.storage = Storage::memory;
  spec.memory_root_bytes = 4 << 20;
  Box box = lab.create(spec);
  CHECK(lab.sh(box, "echo x > /etc/x && cat /etc/x").out == "x\n");
  CHECK_FALSE(std::filesystem::exists(lab.root_of(spec.id) / "upper"));
  const Ran full = lab.run(box, {"/bin/dd", "if=/dev/zero", "of=/big", "bs=1M", "count=16"});
  CHECK(full.code != 0);
  CHECK(full.err.find("No space left") != std::string::npos);
  lab.destroy(box);
}

TEST_CASE("R11: storage readonly refuses writes, /tmp and /workspace take them") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  auto spec = lab.spec();
  spec.storage = Storage::readonly;
  Box box = lab.create(spec);
  CHECK(lab.run(box, {"/bin/touch", "/etc/x"}).err.find("Read-only") != std::string::npos);
  CHECK(lab.run(box, {"/bin/touch", "/tmp/x"}).code == 0);
  CHECK(lab.run(box, {"/bin/touch", "/workspace/x"}).code == 0);
  CHECK(lab.run(box, {"/bin/mount", "-o", "remount,rw", "/"}).code != 0);
  lab.destroy(box);
}

TEST_CASE("R10: /dev holds the safe nodes, is not writable, and terminals are its own") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  Box box = lab.create();
  CHECK(lab.run(box, {"/bin/ls", "/dev"}).out ==
        "fd\nfull\nnull\nptmx\npts\nrandom\nshm\nstderr\nstdin\nstdout\ntty\nurandom\nzero\n");
  CHECK(lab.run(box, {"/bin/ls", "/dev/pts"}).out == "ptmx\n");
  CHECK(lab.sh(box, "echo x > /dev/null && head -c 4 /dev/zero | wc -c").out == "4\n");
  CHECK(lab.run(box, {"/bin/touch", "/dev/x"}).err.find("Read-only") != std::string::npos);
  CHECK(lab.run(box, {"/bin/mknod", "/tmp/n", "c", "1", "3"}).code != 0);
  CHECK(lab.run(box, {"/bin/touch", "/dev/shm/x"}, "user").code == 0);
  // Before Linux 6.3 a tmpfs cannot be idmapped: the nodes that all sandboxes share are nobody's.
  const std::string owner = lab.launcher().host().idmapped_tmpfs ? "0" : "65534";
  CHECK(trim(lab.run(box, {"/bin/stat", "-c", "%u %a", "/dev/null"}).out) == owner + " 666");
  CHECK(trim(lab.run(box, {"/bin/stat", "-c", "%a", "/dev/shm"}).out) == "1777");
  lab.destroy(box);
}

TEST_CASE("/dev/shm has the asked-for size") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  auto spec = lab.spec();
  spec.shm_bytes = 2 << 20;
  Box box = lab.create(spec);
  const Ran full = lab.run(box, {"/bin/dd", "if=/dev/zero", "of=/dev/shm/big", "bs=1M", "count=4"});
  CHECK(full.err.find("No space left") != std::string::npos);
  CHECK(trim(lab.run(box, {"/bin/stat", "-c", "%s", "/dev/shm/big"}).out) == "2097152");
  lab.destroy(box);
}

TEST_CASE("R1, R3, R11: mountinfo shows the sandbox's tree only, with its flags") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  Box box = lab.create();
  const std::string text = lab.run(box, {"/bin/cat", "/proc/self/mountinfo"}).out;
  CHECK(text.find("shared:") == std::string::npos);
  CHECK(text.find("master:") == std::string::npos);
  for (const MountLine& mount : mounts_of(text)) {
    INFO(mount.target << " " << mount.options << " " << mount.type);
    CHECK(mount.super.find(lab.dir().string()) == std::string::npos);  // no host path as a layer
    if (mount.target != "/workspace") {  // a bind always names its place in the file system
      CHECK(mount.source_root.find(lab.image().parent_path().string()) == std::string::npos);
    }
    CHECK(has_option(mount.options, "nosuid"));
    if (mount.target != "/dev" && mount.target != "/dev/pts" && mount.target != "/proc/keys" &&
        !mount.target.starts_with("/proc/k")) {
      CHECK((has_option(mount.options, "nodev") || mount.target.starts_with("/proc/")));
    }
    if (mount.target == "/proc" || mount.target == "/dev/shm" || mount.target == "/dev/pts" ||
        mount.target == "/sys") {
      CHECK(has_option(mount.options, "noexec"));
    }
    if (mount.target == "/dev" || mount.target == "/sys" || mount.target == "/sys/fs/cgroup" ||
        mount.target == "/proc/sys" || mount.target == "/proc/irq") {
      CHECK(has_option(mount.options, "ro"));
    }
    if (mount.target == "/") {
      CHECK(mount.type == "overlay");
      CHECK(has_option(mount.super, "redirect_dir=on"));
      CHECK_FALSE(has_option(mount.super, "volatile"));
    }
  }
  lab.destroy(box);
}

TEST_CASE("/sys names the host's processors and nothing else") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  Box box = lab.create();
  CHECK(lab.sh(box, "cd /sys; find . -path ./fs/cgroup -prune -o -type f -print | wc -l").out ==
        "3\n");
  CHECK(lab.run(box, {"/bin/cat", "/sys/devices/system/cpu/online"}).out ==
        content("/sys/devices/system/cpu/online"));
  CHECK(lab.run(box, {"/bin/touch", "/sys/x"}).code != 0);
  lab.destroy(box);
}

TEST_CASE("R7, R8: what /proc hides is empty, what it protects is not writable") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  Box box = lab.create();
  for (const char* name : {"kcore", "keys", "key-users", "timer_list", "sched_debug",
                           "latency_stats", "interrupts", "kmsg", "kallsyms", "cmdline"}) {
    INFO(name);
    CHECK(lab.run(box, {"/bin/head", "-c", "64", std::string{"/proc/"} + name}).out == "");
  }
  CHECK(lab.sh(box, "ls /proc/acpi /proc/asound /proc/scsi 2>/dev/null | grep -v :").out == "");
  for (const char* text :
       {"echo x > /proc/sys/kernel/core_pattern", "echo h > /proc/sysrq-trigger",
        "echo 1 > /proc/sys/net/ipv4/ip_forward", "echo 9 > /proc/sys/user/max_user_namespaces"}) {
    INFO(text);
    CHECK(lab.sh(box, text).code != 0);
  }
  CHECK(trim(lab.run(box, {"/bin/cat", "/proc/sys/user/max_user_namespaces"}).out) == "0");
  lab.destroy(box);
}

TEST_CASE("proc with subset=pid has processes and nothing else") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  auto spec = lab.spec();
  spec.proc = isolate::ProcMode::pid_only;
  Box box = lab.create(spec);
  CHECK(lab.run(box, {"/bin/test", "-e", "/proc/cpuinfo"}).code == 1);
  CHECK(lab.run(box, {"/bin/test", "-e", "/proc/self/status"}).code == 0);
  lab.destroy(box);
}

TEST_CASE("R2: nothing lies above the root") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  Box box = lab.create();
  const std::string root = lab.run(box, {"/bin/ls", "/"}).out;
  CHECK(root == "bin\ndev\netc\nhome\nproc\nroot\nsys\ntmp\nworkspace\n");
  CHECK(lab.run(box, {"/bin/ls", "/../../.."}).out == root);
  CHECK(lab.run(box, {"/bin/ls", "/proc/self/root/.."}).out == root);
  CHECK(lab.run(box, {"/bin/ls", "/proc/self/cwd/../.."}).out == root);
  lab.destroy(box);
}

TEST_CASE("the pivot_root switch gives the same tree") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  auto spec = lab.spec();
  spec.pivot_root = true;
  Box box = lab.create(spec);
  CHECK(lab.run(box, {"/bin/cat", "/etc/marker"}).out == "from the image\n");
  CHECK(lab.run(box, {"/bin/ls", "/"}).out == lab.run(box, {"/bin/ls", "/.."}).out);
  lab.destroy(box);
}
