// A sandbox that was made ahead and taken is the one that a create would have made: inside nothing
// tells them apart, and what was made ahead for somebody else is refused.

#include <catch2/catch.hpp>

#include <fcntl.h>

#include <filesystem>
#include <sstream>
#include <string>

#include "kernel/sandbox_support.h"

using namespace talon;
using namespace talon::testing;
using isolate::Ahead;
namespace fs = std::filesystem;

namespace {

// All that a program sees, without numbers that differ between any two sandboxes.
std::string view_from_inside(Lab& lab, Box& box, const std::string& user) {
  const Ran ran = lab.sh(
      box,
      "hostname; id; pwd; umask; "
      "grep -v -e ' overlay ' /proc/self/mountinfo | while read a b c rest; do echo $rest; done; "
      "grep -e ^Cap -e ^Seccomp -e ^NoNewPrivs -e ^Groups /proc/self/status; "
      "grep -c 0::/x/px /proc/self/cgroup; "
      "cat /proc/self/uid_map /proc/self/gid_map | while read a b c; do echo $a $c; done; "
      "cat /proc/self/limits; ls -la /dev /sys /sys/fs/cgroup /proc/sys/kernel | "
      "while read mode n owner group rest; do echo $mode $owner $group ${rest##* }; done; "
      "ls -a / /tmp /workspace /root /dev/shm; df -P /dev/shm | tail -1; cat /etc/marker; "
      "cat /proc/sys/net/ipv4/ip_unprivileged_port_start; ip -o link; "
      "cd /proc && echo [0-9]; ls /proc/1/fd 2>&1",
      user);
  INFO(ran.err);
  CHECK(ran.out.size() > 3000);
  // Known to show (docs/threat-model.md): the workspace's path on the host, and the id of tty.
  std::string view = ran.out;
  const auto hide = [&view](const std::string& text) {
    for (auto at = view.find(text); at != std::string::npos; at = view.find(text)) {
      view.replace(at, text.size(), "-");
    }
  };
  hide(box->identity().id);
  hide(std::to_string(limits::kIdBase + std::uint64_t{box->identity().lease} * limits::kIdRange +
                      5));
  return view;
}

// The first line that differs, from both.
std::string difference(const std::string& a, const std::string& b) {
  std::istringstream left{a};
  std::istringstream right{b};
  std::string x;
  std::string y;
  while (true) {
    const bool more_x = !!std::getline(left, x);
    const bool more_y = !!std::getline(right, y);
    if (more_x != more_y || (more_x && x != y)) {
      return x + " | " + y;
    }
    if (!more_x) {
      return "";
    }
  }
}

}  // namespace

TEST_CASE("one made ahead looks inside like any other") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  for (const auto storage :
       {isolate::Storage::disk, isolate::Storage::memory, isolate::Storage::readonly}) {
    auto spec = lab.spec();
    spec.storage = storage;
    lab.ahead.reset();
    Box plain = lab.create(spec);
    const std::string as_root = view_from_inside(lab, plain, "");
    const std::string as_user = view_from_inside(lab, plain, "user");
    lab.destroy(plain);
    for (const Ahead stage : {Ahead::parts, Ahead::tree, Ahead::warm}) {
      INFO("storage " << static_cast<int>(storage) << " stage " << static_cast<int>(stage));
      lab.ahead = stage;
      spec.id = lab.spec().id;
      Box box = lab.create(spec);
      CHECK(difference(view_from_inside(lab, box, ""), as_root) == "");
      CHECK(difference(view_from_inside(lab, box, "user"), as_user) == "");
      lab.destroy(box);
    }
  }
  CHECK(fs::is_empty(lab.dir() / "run"));
}

TEST_CASE("what is not made yet follows the create, what is made must fit") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  struct Case {
    Ahead stage;
    bool tree_fits;
    bool name_fits;
  };
  for (const Case& c : {Case{Ahead::parts, true, true}, Case{Ahead::tree, false, true},
                        Case{Ahead::warm, false, false}}) {
    INFO("stage " << static_cast<int>(c.stage));
    auto made = lab.spec();
    fs::create_directories(lab.root_of(made.id) / "workspace");
    const DirFd image = open_at(AT_FDCWD, lab.image(), O_RDONLY | O_DIRECTORY).value();
    const DirFd root = open_at(AT_FDCWD, lab.root_of(made.id), O_RDONLY | O_DIRECTORY).value();
    const isolate::SandboxDirs dirs{.image = &image, .root = &root, .workspace = nullptr};
    auto prepared = lab.launcher().prepare(c.stage, made, dirs);
    REQUIRE(prepared.has_value());
    CHECK(prepared->fits(made));
    auto other = made;
    other.shm_bytes *= 2;
    CHECK(prepared->fits(other) == c.tree_fits);
    other = made;
    other.hostname = "other";
    CHECK(prepared->fits(other) == c.name_fits);
    other = made;
    other.id = lab.spec().id;
    CHECK_FALSE(prepared->fits(other));
    auto refused = lab.launcher().create(other, dirs, std::move(*prepared));
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code == Code::internal);
  }
  CHECK(fs::is_empty(lab.dir() / "run"));
}

TEST_CASE("one made ahead that nobody takes is destroyed whole") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  lab.destroy(*std::make_unique<Box>(lab.create()));  // threads and templates are there now
  const std::size_t fds = count_own_fds();
  for (const Ahead stage : {Ahead::parts, Ahead::tree, Ahead::warm}) {
    const auto spec = lab.spec();
    fs::create_directories(lab.root_of(spec.id));
    const DirFd image = open_at(AT_FDCWD, lab.image(), O_RDONLY | O_DIRECTORY).value();
    const DirFd root = open_at(AT_FDCWD, lab.root_of(spec.id), O_RDONLY | O_DIRECTORY).value();
    const isolate::SandboxDirs dirs{.image = &image, .root = &root, .workspace = nullptr};
    auto prepared = lab.launcher().prepare(stage, spec, dirs);
    REQUIRE(prepared.has_value());
    CHECK(fs::exists(lab.launcher().cgroup_path() + "/" + spec.id));
  }
  lab.launcher().drain();
  CHECK(count_own_fds() == fds);
  CHECK(fs::is_empty(lab.dir() / "run"));
  for (const auto& entry : fs::directory_iterator{lab.launcher().cgroup_path()}) {
    CHECK_FALSE(entry.is_directory());
  }
}
