// An exec request as init will read it.

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "isolate/exec_request.h"

using namespace talon;
using namespace talon::isolate;
using namespace std::chrono_literals;

namespace {

std::string content(int fd) {
  struct stat facts{};
  REQUIRE(fstat(fd, &facts) == 0);
  std::string out(static_cast<std::size_t>(facts.st_size), '\0');
  REQUIRE(pread(fd, out.data(), out.size(), 0) == facts.st_size);
  return out;
}

ExecSpec spec() {
  ExecSpec out;
  out.id = "px1";
  out.argv = {"a", "bb"};
  return out;
}

}  // namespace

TEST_CASE("strings lie NUL-terminated at the frame's offsets in a sealed file") {
  ExecSpec exec = spec();
  exec.env = {{"K", "v"}, {"EMPTY", ""}};
  exec.cwd = "/work";
  exec.user = "user";
  exec.stdin_head = std::string{"in\0put", 6};
  exec.timeout = 1500ms;
  exec.max_output = 99;
  exec.log_cap = 0;
  exec.limits.cpu_cores = 1.5;
  exec.limits.memory_bytes = 1 << 20;
  const ExecRequest request = pack_exec(exec).value();
  REQUIRE(request.fds.size() == 1);
  const std::string bytes = content(request.fds[0].get());
  const wire::Exec& frame = request.frame;
  CHECK(std::string{frame.px} == "px1");
  CHECK(frame.argc == 2);
  CHECK(std::memcmp(bytes.data() + frame.argv_off, "a\0bb\0", 5) == 0);
  CHECK(frame.envc == 2);
  CHECK(std::memcmp(bytes.data() + frame.env_off, "K=v\0EMPTY=\0", 11) == 0);
  CHECK(std::string{bytes.data() + frame.cwd_off} == "/work");
  CHECK(std::string{bytes.data() + frame.user_off} == "user");
  CHECK(bytes.substr(frame.stdin_off, frame.stdin_len) == exec.stdin_head);
  CHECK(frame.timeout_ms == 1500);
  CHECK(frame.max_output == 99);
  CHECK(frame.flags == wire::kExecUnlimitedLog);
  CHECK(frame.cpu_quota_us == 150'000);
  CHECK(frame.cpu_period_us == 100'000);
  CHECK(frame.memory_max == 1 << 20);
  // Sealed: nobody who holds it can change what was checked.
  CHECK((fcntl(request.fds[0].get(), F_GET_SEALS) & (F_SEAL_WRITE | F_SEAL_SHRINK)) ==
        (F_SEAL_WRITE | F_SEAL_SHRINK));
}

TEST_CASE("a script travels as a file of its own") {
  ExecSpec exec = spec();
  set_command(exec, std::string(200'000, '#'));
  const ExecRequest request = pack_exec(exec).value();
  REQUIRE(request.fds.size() == 1);
  CHECK(request.frame.flags == (wire::kExecScript | wire::kExecInline));
  CHECK(content(request.fds[0].get()).size() == 200'000);
}

TEST_CASE("small strings follow the frame; larger ones and inline stdin come as a memfd") {
  ExecSpec exec = spec();
  ExecRequest request = pack_exec(exec).value();
  CHECK(request.fds.empty());
  CHECK((request.frame.flags & wire::kExecInline) != 0);
  CHECK(std::memcmp(request.strings.data() + request.frame.argv_off, exec.argv[0].c_str(),
                    exec.argv[0].size() + 1) == 0);
  const std::size_t rest = request.strings.size();

  exec.argv.push_back(std::string(wire::kExecInlineMax - rest - 1, 'x'));
  request = pack_exec(exec).value();
  CHECK(request.strings.size() == wire::kExecInlineMax);
  exec.argv.back() += 'x';
  request = pack_exec(exec).value();
  CHECK(request.strings.empty());
  CHECK(request.fds.size() == 1);
  CHECK((request.frame.flags & wire::kExecInline) == 0);

  exec = spec();
  exec.stdin_head = "in";
  request = pack_exec(exec).value();
  CHECK(request.fds.size() == 1);
  CHECK((request.frame.flags & wire::kExecInline) == 0);
}

TEST_CASE("impossible execs are refused and named") {
  const auto error = [](const ExecSpec& exec) { return pack_exec(exec).error(); };
  ExecSpec exec = spec();
  exec.argv.clear();
  CHECK(error(exec).field == "argv");
  exec = spec();
  exec.argv.push_back(std::string{"nul\0byte", 8});
  CHECK(error(exec).field == "argv[2]");
  exec = spec();
  exec.argv.push_back(std::string(limits::kArgBytes + 1, 'x'));
  CHECK(error(exec).code == Code::too_large);
  CHECK(error(exec).message.find("argv[2]") != std::string::npos);
  exec = spec();
  exec.env = {{"BIG", std::string(limits::kArgBytes, 'x')}};
  CHECK(error(exec).code == Code::too_large);
  CHECK(error(exec).message.find("BIG") != std::string::npos);
  exec = spec();
  exec.argv.assign(20, std::string(limits::kArgBytes, 'x'));
  CHECK(error(exec).code == Code::too_large);
  for (const char* name : {"", "A=B"}) {
    exec = spec();
    exec.env = {{name, "x"}};
    CHECK(error(exec).field == "env");
  }
  exec = spec();
  exec.cwd = "relative";
  CHECK(error(exec).field == "cwd");
  exec = spec();
  exec.id = "../x";
  CHECK(error(exec).field == "id");
}
