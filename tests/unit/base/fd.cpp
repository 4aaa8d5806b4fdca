#include "base/fd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <filesystem>

using namespace talon;

namespace {

struct TempDir {
  TempDir() {
    std::string name = "/tmp/talon-unit-XXXXXX";
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~TempDir() { std::filesystem::remove_all(path); }
  std::string path;
};

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }
bool is_cloexec(int fd) { return (::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0; }

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span{text.data(), text.size()});
}

}  // namespace

TEST_CASE("a UniqueFd has one owner and closes once") {
  auto opened = open_at(AT_FDCWD, "/dev/null", O_RDONLY);
  REQUIRE(opened.has_value());
  const int number = opened->get();
  CHECK(is_cloexec(number));
  UniqueFd moved = std::move(*opened);
  CHECK(opened->get() == -1);
  CHECK(moved.get() == number);
  auto copy = moved.dup();
  REQUIRE(copy.has_value());
  CHECK(copy->get() != number);
  CHECK(is_cloexec(copy->get()));
  moved.reset();
  CHECK_FALSE(is_open(number));
  CHECK(is_open(copy->get()));
  const int released = copy->release();
  CHECK(released >= 0);
  CHECK_FALSE(static_cast<bool>(*copy));
  ::close(released);
  CHECK(UniqueFd{}.dup().error().sys == EBADF);
}

TEST_CASE("a sealed memfd holds its content and takes no write, grow or shrink") {
  auto fd = sealed_memfd("unit", bytes_of("content"));
  REQUIRE(fd.has_value());
  std::array<char, 16> text{};
  CHECK(::read(fd->get(), text.data(), text.size()) == 7);
  CHECK(std::string_view{text.data()} == "content");
  CHECK(::write(fd->get(), "x", 1) == -1);
  CHECK(errno == EPERM);
  CHECK(::ftruncate(fd->get(), 0) == -1);
  CHECK(::ftruncate(fd->get(), 100) == -1);
  CHECK(::fcntl(fd->get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == -1);
  CHECK(::mmap(nullptr, 7, PROT_WRITE, MAP_SHARED, fd->get(), 0) == MAP_FAILED);
}

TEST_CASE("small files are read whole, up to the limit, from proc too") {
  const TempDir dir;
  auto at = open_at(AT_FDCWD, dir.path, O_RDONLY | O_DIRECTORY);
  REQUIRE(at.has_value());
  REQUIRE(replace_file_at(at->get(), "f", std::string(20'000, 'x'), 0600).has_value());
  auto whole = read_file_at(at->get(), "f");
  REQUIRE(whole.has_value());
  CHECK(*whole == std::string(20'000, 'x'));
  CHECK(read_file_at(at->get(), "f", 20'000).has_value());
  CHECK(read_file_at(at->get(), "f", 19'999).error().code == Code::too_large);
  auto missing = read_file_at(at->get(), "nothing");
  REQUIRE_FALSE(missing.has_value());
  CHECK(missing.error().code == Code::io);
  CHECK(missing.error().sys == ENOENT);
  CHECK(missing.error().message == "open nothing: No such file or directory");
  auto status = read_file_at(AT_FDCWD, "/proc/self/status");
  REQUIRE(status.has_value());
  CHECK(status->find("Pid:\t" + std::to_string(::getpid())) != std::string::npos);
}

TEST_CASE("write_file_at needs an existing file and does not truncate it") {
  const TempDir dir;
  auto at = open_at(AT_FDCWD, dir.path, O_RDONLY | O_DIRECTORY);
  REQUIRE(at.has_value());
  CHECK(write_file_at(at->get(), "f", "x").error().sys == ENOENT);
  REQUIRE(replace_file_at(at->get(), "f", "12345", 0600).has_value());
  REQUIRE(write_file_at(at->get(), "f", "ab").has_value());
  CHECK(*read_file_at(at->get(), "f") == "ab345");
}

TEST_CASE("replace_file_at swaps the content, sets the mode and leaves no temporary file") {
  const TempDir dir;
  auto at = open_at(AT_FDCWD, dir.path, O_RDONLY | O_DIRECTORY);
  REQUIRE(at.has_value());
  const mode_t before = ::umask(0077);
  REQUIRE(replace_file_at(at->get(), "f", "one", 0644).has_value());
  ::umask(before);
  struct stat first{};
  REQUIRE(::fstatat(at->get(), "f", &first, 0) == 0);
  CHECK((first.st_mode & 07777) == 0644);
  REQUIRE(replace_file_at(at->get(), "f", "two", 0600).has_value());
  struct stat second{};
  REQUIRE(::fstatat(at->get(), "f", &second, 0) == 0);
  CHECK((second.st_mode & 07777) == 0600);
  CHECK(second.st_ino != first.st_ino);
  CHECK(*read_file_at(at->get(), "f") == "two");
  REQUIRE(replace_file_at(AT_FDCWD, dir.path + "/g", "abs", 0600).has_value());
  CHECK(*read_file_at(at->get(), "g") == "abs");
  // A directory stands in the way: refused, and the temporary file is gone again.
  REQUIRE(::mkdirat(at->get(), "d", 0700) == 0);
  CHECK_FALSE(replace_file_at(at->get(), "d", "x", 0600).has_value());
  std::size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(dir.path)) {
    ++entries;
  }
  CHECK(entries == 3);
}

TEST_CASE("a message carries its bytes and its descriptors in order") {
  int pair[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
  const UniqueFd left{pair[0]};
  UniqueFd right{pair[1]};
  std::array<std::byte, 64> buffer;

  auto empty = receive_message(left.get(), buffer, false);
  REQUIRE_FALSE(empty.has_value());
  CHECK(empty.error().code == Code::unavailable);
  CHECK(empty.error().sys == EAGAIN);

  auto one = sealed_memfd("one", bytes_of("1"));
  auto two = sealed_memfd("two", bytes_of("22"));
  const std::array<int, 2> fds{one->get(), two->get()};
  REQUIRE(send_message(right.get(), bytes_of("hello"), fds).has_value());
  auto got = receive_message(left.get(), buffer);
  REQUIRE(got.has_value());
  CHECK(got->size == 5);
  REQUIRE(got->fds.size() == 2);
  struct stat info{};
  REQUIRE(::fstat(got->fds[0].get(), &info) == 0);
  CHECK(info.st_size == 1);
  REQUIRE(::fstat(got->fds[1].get(), &info) == 0);
  CHECK(info.st_size == 2);
  CHECK(is_cloexec(got->fds[0].get()));

  right.reset();
  auto closed = receive_message(left.get(), buffer);
  REQUIRE(closed.has_value());
  CHECK(closed->size == 0);
  auto refused = send_message(left.get(), bytes_of("x"), {});  // EPIPE, no SIGPIPE
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().sys == EPIPE);
}

TEST_CASE("a truncated message is refused and its descriptors are closed") {
  int pair[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
  const UniqueFd left{pair[0]};
  const UniqueFd right{pair[1]};
  const auto count = [] {
    std::size_t n = 0;
    for ([[maybe_unused]] const auto& fd : std::filesystem::directory_iterator("/proc/self/fd")) {
      ++n;
    }
    return n;
  };
  const std::size_t before = count();
  const std::array<int, 1> fds{STDIN_FILENO};
  REQUIRE(send_message(right.get(), bytes_of("longer than four"), fds).has_value());
  std::array<std::byte, 4> small;
  CHECK(receive_message(left.get(), small).error().code == Code::io);
  CHECK(count() == before);
  const std::vector<int> many(254, STDIN_FILENO);
  CHECK(send_message(right.get(), bytes_of("x"), many).error().code == Code::too_many);
}
