// resources.disk and workspace.size by loop images (decision 32): the size is exact, lives over
// stop and start also when full, and nothing of it is left whatever was killed.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <functional>
#include <thread>

#include <catch2/catch.hpp>

#include "isolate/disk.h"
#include "kernel/sandbox_support.h"

using namespace talon;
using namespace talon::isolate;
using namespace talon::testing;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t kMiB = 1ull << 20;

#define TALON_NEED_LOOP()                                                    \
  TALON_NEED_SANDBOXES();                                                    \
  if (const auto missing_ = disk::missing_for_images(); !missing_.empty()) { \
    WARN("SKIP: " << missing_);                                              \
    return;                                                                  \
  }

// Files behind loop devices of the machine whose path begins with `dir`.
std::vector<std::string> loops_below(const fs::path& dir) {
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator{"/sys/block"}) {
    std::ifstream in{entry.path() / "loop/backing_file"};
    std::string file;
    if (std::getline(in, file) && file.starts_with(dir.string())) {
      out.push_back(file);
    }
  }
  return out;
}

// Runs `job` in a child with a mount namespace of its own, in which `hidden` are empty.
std::string without(std::initializer_list<const char*> hidden,
                    const std::function<std::string()>& job) {
  int out[2];
  if (pipe2(out, O_CLOEXEC) != 0) {
    return "pipe";
  }
  const pid_t child = fork();
  if (child == 0) {
    bool done = unshare(CLONE_NEWNS) == 0 &&
                mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
    for (const char* path : hidden) {
      done = done && mount("none", path, "tmpfs", 0, nullptr) == 0;
    }
    const std::string said = done ? job() : "not hidden";
    (void)!write(out[1], said.data(), said.size());
    _exit(0);
  }
  close(out[1]);
  std::string said(4096, '\0');
  const ssize_t n = read(out[0], said.data(), said.size());
  said.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  close(out[0]);
  waitpid(child, nullptr, 0);
  return said;
}

// A loop device is let go a moment after its last mount, by the kernel and without a word.
bool none_below(const fs::path& dir) {
  for (int i = 0; i < 1000; ++i) {
    if (loops_below(dir).empty()) {
      return true;
    }
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

DirFd open_dir(const fs::path& path) { return *open_at(AT_FDCWD, path, O_RDONLY | O_DIRECTORY); }

std::uint64_t bytes_on_disk(const fs::path& file) {
  struct stat facts{};
  return stat(file.c_str(), &facts) == 0 ? static_cast<std::uint64_t>(facts.st_blocks) * 512 : 0;
}

// With its image: where the machine's disk has project quota (the VM's), that would be taken.
SandboxSpec limited(Lab& lab, std::uint64_t bytes) {
  auto spec = lab.spec();
  spec.disk_bytes = bytes;
  const DirFd at = open_dir(lab.dir());
  if (disk::has_project_quota(at.get())) {
    fs::create_directories(lab.root_of(spec.id));
    REQUIRE(disk::make_image(open_dir(lab.root_of(spec.id)).get(), "root.img", bytes));
  }
  return spec;
}

constexpr const char* kFill = "dd if=/dev/zero of=/fill bs=64k 2>&1; stat -c %s /fill";

}  // namespace

TEST_CASE("root changes stop at the size of the image") {
  TALON_NEED_LOOP();
  Lab lab;
  const auto spec = limited(lab, 64 * kMiB);
  Box box = lab.create(spec);
  CHECK(box->disk().root.bytes == 64 * kMiB);
  CHECK(box->disk().root.method == DiskMethod::loop_image);
  CHECK(box->disk().workspace.method == DiskMethod::none);
  const auto empty = disk_use(box->files_fd(), "");
  REQUIRE(empty);
  CHECK(empty->size_bytes > 56 * kMiB);
  CHECK(empty->size_bytes < 64 * kMiB);
  CHECK(empty->used_bytes < kMiB);
  const Ran full = lab.sh(box, kFill);
  INFO(full.out << full.err);
  CHECK(full.out.find("No space left on device") != std::string::npos);
  const auto written = std::stoull(full.out.substr(full.out.rfind('\n', full.out.size() - 2) + 1));
  CHECK(written > 55 * kMiB);  // less are its tables and a journal of 4 MiB
  CHECK(written < 64 * kMiB);
  const auto used = disk_use(box->files_fd(), "");
  REQUIRE(used);
  CHECK(used->used_bytes >= written);
  // The workspace is elsewhere.
  CHECK(lab.sh(box, "dd if=/dev/zero of=/workspace/x bs=1M count=80").code == 0);
  CHECK(lab.run(box, {"/bin/cat", "/proc/self/mountinfo"}).out.find("root.img") ==
        std::string::npos);
  CHECK(loops_below(lab.dir()).size() == 1);
  lab.destroy(box);
  CHECK(none_below(lab.dir()));
}

TEST_CASE("a limited sandbox that is full stops, starts and keeps its files") {
  TALON_NEED_LOOP();
  Lab lab;
  const auto spec = limited(lab, 32 * kMiB);
  Box box = lab.create(spec);
  CHECK(lab.sh(box, "echo kept > /etc/kept; chown 1000 /etc/kept").code == 0);
  // Neither a file nor a byte is left.
  CHECK(lab.sh(box,
               "mkdir /many && : > /fill && i=0 && "
               "while echo -n > /many/$i; do i=$((i+1)); done 2>/dev/null; echo $i")
            .out > "4000");
  CHECK(lab.sh(box, kFill).out.find("No space left") != std::string::npos);
  for (int life = 0; life < 3; ++life) {
    lab.destroy(box);
    box = lab.create(spec);
    CHECK(trim(lab.run(box, {"/bin/cat", "/etc/kept"}).out) == "kept");
    CHECK(trim(lab.run(box, {"/bin/stat", "-c", "%u", "/etc/kept"}).out) == "1000");
    CHECK(lab.sh(box, "echo more >> /fill").code != 0);
  }
  CHECK(lab.sh(box, "rm -r /fill /many && echo again > /etc/again && cat /etc/again").out ==
        "again\n");
  lab.destroy(box);
  CHECK(none_below(lab.dir()));
}

TEST_CASE("what is deleted inside leaves the image") {
  TALON_NEED_LOOP();
  Lab lab;
  const auto spec = limited(lab, 64 * kMiB);
  Box box = lab.create(spec);
  const fs::path image = lab.root_of(spec.id) / "root.img";
  CHECK(fs::file_size(image) == 64 * kMiB);
  CHECK(bytes_on_disk(image) < 2 * kMiB);
  CHECK(lab.sh(box, "dd if=/dev/urandom of=/big bs=1M count=40 && sync").code == 0);
  CHECK(bytes_on_disk(image) > 40 * kMiB);
  CHECK(lab.sh(box, "rm /big && sync").code == 0);
  lab.destroy(box);
  CHECK(none_below(lab.dir()));
  CHECK(bytes_on_disk(image) < 8 * kMiB);
}

TEST_CASE("a workspace with a size belongs to its user and its image is out of reach") {
  TALON_NEED_LOOP();
  Lab lab;
  auto spec = lab.spec();
  spec.workspace_bytes = 32 * kMiB;
  fs::create_directories(lab.root_of(spec.id) / "workspace");
  REQUIRE(chown((lab.root_of(spec.id) / "workspace").c_str(), 1000, 1000) == 0);
  const DirFd home = open_dir(lab.root_of(spec.id));
  if (disk::has_project_quota(home.get())) {
    REQUIRE(disk::make_image(home.get(), "workspace.img", 32 * kMiB));
  }
  Box box = lab.create(spec);
  CHECK(box->disk().workspace.method == DiskMethod::loop_image);
  CHECK(box->disk().root.method == DiskMethod::none);
  CHECK(trim(lab.run(box, {"/bin/stat", "-c", "%u:%g", "/workspace"}).out) == "1000:1000");
  CHECK(lab.run(box, {"/bin/ls", "-a", "/workspace"}).out == ".\n..\n");
  const Ran full = lab.sh(box, "dd if=/dev/zero of=/workspace/f bs=64k", "user");
  CHECK(full.err.find("No space left") != std::string::npos);
  const auto use = disk_use(box->files_fd(), "workspace");
  REQUIRE(use);
  CHECK(use->size_bytes < 32 * kMiB);
  CHECK(use->used_bytes > 24 * kMiB);
  CHECK(lab.sh(box, "dd if=/dev/zero of=/elsewhere bs=1M count=40").code == 0);
  lab.destroy(box);
  box = lab.create(spec);
  CHECK(lab.sh(box, "rm /workspace/f && echo x > /workspace/x && cat /workspace/x", "user").out ==
        "x\n");
  lab.destroy(box);
  CHECK(none_below(lab.dir()));
}

// The device lives as long as the sandbox, whoever made it; the image is never mounted twice.
TEST_CASE("an image in use is not mounted again, and nothing of a killed daemon is left") {
  TALON_NEED_LOOP();
  Lab lab;
  const DirFd dir = open_dir(lab.dir());
  REQUIRE(disk::make_image(dir.get(), "a.img", 32 * kMiB));
  // A child that holds the mount and is killed.
  int ready[2];
  REQUIRE(pipe2(ready, O_CLOEXEC) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto mount = disk::mount_image(dir.get(), "a.img");
    const char done = mount ? '1' : '0';
    (void)!write(ready[1], &done, 1);
    for (;;) {
      pause();
    }
  }
  REQUIRE(child > 0);
  char done = 0;
  CHECK(read(ready[0], &done, 1) == 1);
  CHECK(done == '1');
  CHECK(loops_below(lab.dir()).size() == 1);
  const UniqueFd image = *open_at(dir.get(), "a.img", O_RDWR);
  CHECK(flock(image.get(), LOCK_EX | LOCK_NB) != 0);
  CHECK(errno == EWOULDBLOCK);
  CHECK(kill(child, SIGKILL) == 0);
  CHECK(waitpid(child, nullptr, 0) == child);
  CHECK(none_below(lab.dir()));
  CHECK(disk::mount_image(dir.get(), "a.img"));
  CHECK(none_below(lab.dir()));
  for (int fd : ready) {
    close(fd);
  }
}

TEST_CASE("a half made image is made anew") {
  TALON_NEED_LOOP();
  Lab lab;
  const DirFd dir = open_dir(lab.dir());
  std::ofstream{lab.dir() / "a.img.new"} << std::string(100'000, 'x') << "killed here";
  CHECK_FALSE(disk::has_image(dir.get(), "a.img"));
  REQUIRE(disk::make_image(dir.get(), "a.img", 32 * kMiB));
  CHECK(disk::has_image(dir.get(), "a.img"));
  CHECK_FALSE(fs::exists(lab.dir() / "a.img.new"));
  CHECK(disk::mount_image(dir.get(), "a.img"));
  CHECK(none_below(lab.dir()));
}

TEST_CASE("a create that fails after its image leaves no device") {
  TALON_NEED_LOOP();
  Lab lab;
  fs::remove(lab.image() / "tmp");
  fs::create_symlink("/etc", lab.image() / "tmp");  // the image is at fault
  const auto spec = limited(lab, 32 * kMiB);
  const auto fds = count_own_fds();
  const auto box = lab.try_create(spec);
  CHECK_FALSE(box);
  CHECK(none_below(lab.dir()));
  CHECK(count_own_fds() == fds);
}

TEST_CASE("a disk that is full below an image is an error, not a wait") {
  TALON_NEED_LOOP();
  Lab lab;
  // The small disk is an image itself: 64 MiB are promised on one of 24.
  const DirFd dir = open_dir(lab.dir());
  REQUIRE(disk::make_image(dir.get(), "small.img", 24 * kMiB));
  auto small = disk::mount_image(dir.get(), "small.img");
  REQUIRE(small);
  REQUIRE(disk::make_image(small->first.get(), "promised.img", 64 * kMiB));
  {
    const auto promised = disk::mount_image(small->first.get(), "promised.img");
    REQUIRE(promised);
    const UniqueFd file = *open_at(promised->first.get(), "fill", O_RDWR | O_CREAT, 0600);
    const std::string block(kMiB, 'x');
    int error = 0;
    for (int i = 0; i < 50 && error == 0; ++i) {
      if (write(file.get(), block.data(), block.size()) < 0 || fsync(file.get()) != 0) {
        error = errno;
      }
    }
    INFO("errno " << error);
    CHECK((error == EIO || error == ENOSPC || error == EROFS));
  }
  // It can be mounted again: the journal says what is true.
  auto again = disk::mount_image(small->first.get(), "promised.img");
  INFO((again ? "" : again.error().message));
  CHECK(again);
  again = fail(Code::internal, "let go");
  small = fail(Code::internal, "let go");
  CHECK(none_below(lab.dir()));
}

TEST_CASE("a size that nothing can hold is refused, with what is missing and the remedy") {
  TALON_NEED_LOOP();
  const auto ask = [] {
    const auto method = disk::method_for(open_dir("/dev/shm").get());  // a tmpfs has no quota
    return method                                       ? std::string{to_string(*method)}
           : method.error().code == Code::unenforceable ? method.error().message
                                                        : "another code";
  };
  CHECK(ask() == "loop_image");
  const std::string programs = without({"/usr/sbin"}, ask);
  INFO(programs);
  CHECK(programs.find("prjquota") != std::string::npos);
  CHECK(programs.find("apt install e2fsprogs") != std::string::npos);
  const auto no_control = [] { return disk::missing_for_images(); };
  CHECK(without({"/dev"}, no_control).find("modprobe loop") != std::string::npos);
}

TEST_CASE("a sandbox that was made ahead has its size") {
  TALON_NEED_LOOP();
  Lab lab;
  for (const Ahead stage : {Ahead::parts, Ahead::tree, Ahead::warm}) {
    lab.ahead = stage;
    Box box = lab.create(limited(lab, 32 * kMiB));
    CHECK(box->disk().root.method == DiskMethod::loop_image);
    CHECK(lab.sh(box, kFill).out.find("No space left") != std::string::npos);
    lab.destroy(box);
  }
  CHECK(none_below(lab.dir()));
}
