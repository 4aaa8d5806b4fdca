// N1, N2, N5, N6: every namespace is the sandbox's own.

#include <catch2/catch.hpp>

#include <unistd.h>

#include <filesystem>

#include "kernel/sandbox_support.h"

using namespace talon;
using namespace talon::testing;

namespace {
constexpr const char* kKinds[] = {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"};

std::string own(const std::string& kind) {
  return std::filesystem::read_symlink("/proc/self/ns/" + kind);
}
}  // namespace

TEST_CASE("N1: seven namespaces differ from the host's and from another sandbox's") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  Box one = lab.create();
  Box two = lab.create();
  for (const std::string kind : kKinds) {
    const std::string a = trim(lab.run(one, {"/bin/readlink", "/proc/self/ns/" + kind}).out);
    const std::string b = trim(lab.run(two, {"/bin/readlink", "/proc/self/ns/" + kind}).out);
    INFO(kind << " " << a << " " << b);
    CHECK(a.starts_with(kind + ":["));
    CHECK(a != own(kind));
    CHECK(b != own(kind));
    CHECK(a != b);
  }
  lab.destroy(one);
  lab.destroy(two);
}

TEST_CASE("N2: /proc/self/cgroup shows no host path") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  Box box = lab.create();
  const std::string text = lab.run(box, {"/bin/cat", "/proc/self/cgroup"}).out;
  CHECK(text.find("0::/x/") != std::string::npos);  // rooted at the sandbox's group
  CHECK(text.find("talon-") == std::string::npos);
  // v1 lines, where the host has v1, name the daemon's own v1 groups or the root, not sandboxes.
  CHECK(text.find(box->identity().id) == std::string::npos);
  CHECK(lab.run(box, {"/bin/ls", "/sys/fs/cgroup"}).out.find("init\n") != std::string::npos);
  const Ran write = lab.sh(box, "echo 1 > /sys/fs/cgroup/cgroup.kill");
  CHECK(write.code != 0);
  lab.destroy(box);
}

TEST_CASE("N5: only lo, and it is up") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  Box box = lab.create();
  const std::string links = lab.run(box, {"/bin/ip", "-o", "link"}).out;
  CHECK(std::count(links.begin(), links.end(), '\n') == 1);
  CHECK(links.find("lo: <LOOPBACK,UP,LOWER_UP>") != std::string::npos);
  CHECK(lab.run(box, {"/bin/ip", "-o", "-4", "addr"}).out.find("127.0.0.1/8") != std::string::npos);
  CHECK(trim(lab.run(box, {"/bin/cat", "/proc/sys/net/ipv4/ip_unprivileged_port_start"}).out) ==
        "0");
  // Routes and links cannot be changed: no NET_ADMIN.
  CHECK(lab.run(box, {"/bin/ip", "link", "set", "lo", "down"}).code != 0);
  lab.destroy(box);
}

TEST_CASE("N6: the hostname is the sandbox's and cannot be changed") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  auto spec = lab.spec();
  spec.hostname = "box-7";
  Box box = lab.create(spec);
  CHECK(trim(lab.run(box, {"/bin/hostname"}).out) == "box-7");
  CHECK(lab.run(box, {"/bin/hostname", "other"}).code != 0);
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  CHECK(std::string{host} != "box-7");
  lab.destroy(box);
}

TEST_CASE("N7: ps shows own processes only, and init is pid 1") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  Box box = lab.create();
  const std::string pids = lab.sh(box, "cd /proc; echo [0-9]*").out;
  // 1 and the shell itself, perhaps numbers above; the host has hundreds.
  CHECK(pids.starts_with("1 "));
  CHECK(std::count(pids.begin(), pids.end(), ' ') <= 2);
  lab.destroy(box);
}
