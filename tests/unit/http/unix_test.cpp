// The unix socket: who is there, what its file is.

#include <sys/stat.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>

#include <filesystem>

#include "unit/http/lab.h"

using namespace talon;
using namespace talon::test;

namespace {

struct TempDir {
  TempDir() {
    char name[] = "/tmp/talon-http-XXXXXX";
    path = ::mkdtemp(name);
  }
  ~TempDir() {
    std::error_code ec;
    std::filesystem::remove_all(path, ec);
  }
  std::string path;
};

http::ServerConfig on(const std::string& path) {
  http::ServerConfig config;
  config.listen = {*http::parse_listen("unix:" + path)};
  return config;
}

}  // namespace

TEST_CASE("a unix peer is known by its credentials") {
  TempDir dir;
  const std::string path = dir.path + "/s.sock";
  Lab lab(on(path));
  REQUIRE(lab.opened);
  CHECK(lab.server->addresses().at(0) == "unix:" + path);
  Client client(path);
  const std::string uid = std::to_string(::getuid());
  CHECK(client.ask(get("/peer")).body ==
        "unix:uid=" + uid + " 1 " + uid + " " + std::to_string(::getpid()) + " 0");
}

TEST_CASE("the socket file has mode 0600 whatever the umask, and goes at stop") {
  TempDir dir;
  const std::string path = dir.path + "/s.sock";
  const mode_t old = ::umask(0);
  Lab lab(on(path));
  ::umask(old);
  struct stat st{};
  REQUIRE(::stat(path.c_str(), &st) == 0);
  CHECK((st.st_mode & 07777) == 0600);
  lab.stop(0ms);
  CHECK(::stat(path.c_str(), &st) != 0);
}

TEST_CASE("a stale socket is replaced; a live one, and another file, are not") {
  TempDir dir;
  const std::string path = dir.path + "/s.sock";
  {
    UniqueFd dead(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    std::memcpy(to.sun_path, path.data(), path.size());
    REQUIRE(::bind(dead.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0);
  }
  Lab first(on(path));
  REQUIRE(first.opened);
  Lab second(on(path));
  CHECK_FALSE(second.opened);
  CHECK(second.error.code == Code::conflict);
  CHECK(Client(path).ask(get("/echo")).status == 200);
  const std::string file = dir.path + "/file";
  {
    UniqueFd f(::open(file.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  }
  Lab third(on(file));
  CHECK_FALSE(third.opened);
  CHECK(std::filesystem::exists(file));
}

TEST_CASE("a file that replaced the socket is not removed at stop") {
  TempDir dir;
  const std::string path = dir.path + "/s.sock";
  Lab first(on(path));
  REQUIRE(::unlink(path.c_str()) == 0);
  Lab second(on(path));
  REQUIRE(second.opened);
  first.stop(0ms);
  CHECK(Client(path).ask(get("/echo")).status == 200);
}

TEST_CASE("no descriptor of the server survives an exec") {
  TempDir dir;
  Lab lab(on(dir.path + "/s.sock"));
  Client client(dir.path + "/s.sock");
  REQUIRE(client.ask(get("/echo")).status == 200);
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename().string());
    std::error_code ec;
    const std::string to = std::filesystem::read_symlink(entry.path(), ec).string();
    if (fd > 2 && (to.starts_with("socket:") || to.starts_with("anon_inode:"))) {
      INFO(fd << " " << to);
      CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    }
  }
}
