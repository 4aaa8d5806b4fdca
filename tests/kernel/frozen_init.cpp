// An upgrade of talond meets inits of earlier versions: each spoke with its first daemon as a file
// in frozen/ has it, byte by byte. A fake init that knows these bytes and no header of ours is
// adopted, given work, and its files are read. Red here means that a sandbox which runs now is lost
// at the next upgrade: isolate/wire/frames.h says what to do instead.

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/id.h"
#include "isolate/kernel/pidfd.h"
#include "isolate/log_reader.h"
#include "isolate/wire/plan_format.h"
#include "kernel/sandbox_support.h"

using namespace talon;
using namespace talon::testing;
using namespace std::chrono_literals;
namespace event = isolate::event;

namespace {

struct Line {
  std::string mark;
  std::string name;
  std::string bytes;
};

// Hex in indented lines belongs to the line before it.
std::vector<Line> read_script(const std::filesystem::path& path) {
  std::ifstream file(path);
  REQUIRE(file);
  std::vector<Line> lines;
  for (std::string text; std::getline(file, text);) {
    std::istringstream words(text);
    if (text.empty() || text.front() == '#') {
      continue;
    }
    if (text.front() != ' ') {
      words >> lines.emplace_back().mark >> lines.back().name;
      continue;
    }
    std::string hex;
    words >> hex;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
      lines.back().bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    }
  }
  return lines;
}

struct Message {
  std::string bytes;
  std::vector<int> fds;
};

Message receive_raw(int sock) {
  std::array<char, 65536> buffer{};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> control{};
  iovec iov{buffer.data(), buffer.size()};
  msghdr msg{};
  msg.msg_iov = &iov;
  msg.msg_iovlen = 1;
  msg.msg_control = control.data();
  msg.msg_controllen = control.size();
  const ssize_t n = ::recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
  Message got;
  got.bytes.assign(buffer.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
  for (cmsghdr* head = CMSG_FIRSTHDR(&msg); head != nullptr; head = CMSG_NXTHDR(&msg, head)) {
    got.fds.resize((head->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    std::memcpy(got.fds.data(), CMSG_DATA(head), got.fds.size() * sizeof(int));
  }
  return got;
}

constexpr std::size_t kRequestAt = 8;  // in a frame's header, version 1
constexpr std::size_t kRequestSize = 8;

// Plays init's side; the name of the line that did not go as it is written, "" after the last.
std::string play(int sock, const std::vector<Line>& script) {
  std::string request(kRequestSize, '\0');
  Message got;
  std::size_t fds_seen = 0;
  for (const Line& line : script) {
    std::string bytes = line.bytes;
    if (line.mark == "<") {
      if (fds_seen != got.fds.size()) {
        return line.name + ": the frame before it brought other descriptors";
      }
      got = receive_raw(sock);
      fds_seen = 0;
      if (got.bytes.size() < kRequestAt + kRequestSize) {
        return line.name + ": nothing came";
      }
      request = got.bytes.substr(kRequestAt, kRequestSize);
      bytes.replace(kRequestAt, kRequestSize, request);
      if (got.bytes != bytes) {
        return line.name + ": other bytes came";
      }
    } else if (line.mark == "fd") {
      std::string held(bytes.size() + 1, '\0');
      const ssize_t n =
          fds_seen < got.fds.size() ? ::pread(got.fds[fds_seen], held.data(), held.size(), 0) : -1;
      ++fds_seen;
      if (n != static_cast<ssize_t>(bytes.size()) || held.substr(0, bytes.size()) != bytes) {
        return line.name + ": a descriptor holds something else";
      }
    } else if (line.mark == ">" || line.mark == "!") {
      if (line.mark == ">") {
        bytes.replace(kRequestAt, kRequestSize, request);
      }
      if (::send(sock, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) {
        return line.name + ": talond has closed";
      }
    }
  }
  return "";
}

// Becomes the init of `group` and `address` under `init_id`; writes to `said` and never returns.
[[noreturn]] void be_init(const std::vector<Line>& script, const std::string& address,
                          const std::string& group, uid_t init_id, int said) {
  const int into = ::open((group + "/init/cgroup.procs").c_str(), O_WRONLY);
  const int listener = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  address.copy(name.sun_path, sizeof name.sun_path - 1);
  const int event = ::eventfd(0, 0);
  const int files = ::open("/", O_RDONLY | O_DIRECTORY);
  // The peer that talond asks the kernel for is whoever called listen(2).
  const bool up = ::write(into, "0", 1) == 1 &&
                  ::bind(listener, reinterpret_cast<sockaddr*>(&name), sizeof name) == 0 &&
                  ::dup2(event, wire::kFdBase + static_cast<int>(wire::Slot::event)) >= 0 &&
                  ::dup2(files, wire::kFdBase + static_cast<int>(wire::Slot::files)) >= 0 &&
                  ::setresgid(init_id, init_id, init_id) == 0 &&
                  ::setresuid(init_id, init_id, init_id) == 0 && ::listen(listener, 4) == 0;
  (void)!::write(said, up ? "up\n" : "no\n", 3);
  const int sock = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  const std::string wrong = play(sock, script) + "\n";
  (void)!::write(said, wrong.data(), wrong.size());
  for (;;) {
    ::pause();  // ends by the kill of its group
  }
}

std::string read_line(int fd) {
  std::string line;
  for (char c = 0; ::read(fd, &c, 1) == 1 && c != '\n';) {
    line += c;
  }
  return line;
}

struct Fake {
  pid_t pid = -1;
  UniqueFd says;  // one line each: that it is up, what went wrong
};

Fake start_fake(const std::vector<Line>& script, const std::string& address,
                const std::string& group, uid_t init_id) {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  Fake fake;
  fake.says.reset(ends[0]);
  const UniqueFd said(ends[1]);
  fake.pid = ::fork();
  if (fake.pid == 0) {
    be_init(script, address, group, init_id, said.get());
  }
  return fake;
}

template <class T>
T next(isolate::Sandbox& sandbox) {
  auto got = sandbox.wait_event(10s);
  REQUIRE(got.has_value());
  INFO((std::holds_alternative<event::Closed>(*got) ? std::get<event::Closed>(*got).reason : ""));
  REQUIRE(std::holds_alternative<T>(*got));
  return std::get<T>(*got);
}

template <class Sent>
std::uint64_t number(const Sent& sent) {
  REQUIRE(sent.has_value());
  return *sent;
}

// talond's side, by the calls that it makes: those behind the lines of frozen/v1.txt.
void speak(isolate::Sandbox& sandbox) {
  isolate::ExecSpec spec;
  spec.id = "pxfrozen1";
  spec.argv = {"/bin/echo", "frozen", "words"};
  spec.env = {{"A", "b"}};
  spec.cwd = "/tmp";
  spec.user = "1000";
  spec.stdin_open = true;
  spec.timeout = 5000ms;
  spec.grace = 200ms;
  spec.max_output = 1 << 20;
  spec.log_cap = 1 << 22;
  spec.limits.memory_bytes = 1 << 26;
  spec.limits.pids = 32;
  spec.limits.cpu_cores = 1.5;
  auto request = number(sandbox.exec(spec));
  const auto started = next<event::Started>(sandbox);
  CHECK(started.request == request);
  CHECK(started.px == "pxfrozen1");
  CHECK(started.pid == 7);
  CHECK(started.group == 3);
  request = number(sandbox.send_stdin("pxfrozen1", 0, "abc", true));
  const auto ack = next<event::StdinAck>(sandbox);
  CHECK(ack.request == request);
  CHECK(ack.accepted == 3);
  CHECK(ack.closed);
  REQUIRE(sandbox.flow("pxfrozen1", 4096));
  request = number(sandbox.resize("pxfrozen1", 132, 43));
  CHECK(next<event::Done>(sandbox).request == request);
  request = number(sandbox.signal("pxfrozen1", 15, wire::Scope::group));
  CHECK(next<event::Done>(sandbox).request == request);
  request = number(sandbox.mark(true));
  CHECK(next<event::Done>(sandbox).error == 0);
  request = number(sandbox.end_exec("pxfrozen1", 2500ms));
  const auto done = next<event::Done>(sandbox);
  CHECK(done.request == request);
  CHECK(done.error == ESRCH);
  const auto exited = next<event::Exited>(sandbox);
  CHECK(exited.px == "pxfrozen1");
  CHECK(exited.info.code == 3);
  CHECK(exited.info.flags == wire::kLostOutput);
  CHECK(exited.info.out_bytes == 13);
  CHECK(exited.info.biggest_bytes == 110);
  CHECK(std::string(exited.info.biggest_name) == "python3");
  CHECK(next<event::Ended>(sandbox).px == "pxfrozen1");
  next<event::Resync>(sandbox);

  isolate::ExecSpec other;
  other.id = "pxfrozen2";
  other.argv = {"/bin/cat"};
  other.tty = true;
  other.record_input = true;
  other.cols = 100;
  other.rows = 30;
  other.cwd = "/missing";
  other.stdin_head = "head";
  other.script = "script text";
  other.log_cap = 0;
  request = number(sandbox.exec(other));
  const auto failed = next<event::ExecFailed>(sandbox);
  CHECK(failed.request == request);
  CHECK(failed.error == ENOENT);
  CHECK(failed.stage == wire::Stage::cwd);
}

void check_files(const std::filesystem::path& logs) {
  const UniqueFd dir(::open(logs.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  auto reader = isolate::LogReader::open(dir.get(), "pxfrozen1");
  REQUIRE(reader);
  std::vector<isolate::LogEntry> all;
  while (reader->read(all).value_or(false)) {
  }
  CHECK(reader->at_end());
  std::string told;
  for (const auto& entry : all) {
    told += std::to_string(static_cast<int>(entry.kind)) + (entry.late ? "late:" : ":") +
            entry.bytes + entry.typed + " ";
  }
  CHECK(told == "1:frozen  2:oops 3:shown 4: 5: 8:typed 1:words\n 6: 1late:late 7late: ");
  REQUIRE(all.size() == 10);
  CHECK(all[3].size.cols == 100);
  CHECK(all[4].lost_bytes == 5);
  CHECK(all[7].exit.code == 3);
  CHECK(all[0].mono_ns == 1001);
  CHECK(all[0].wall_ns == 2001);
  std::uint64_t offset = 0;
  const auto journal = isolate::read_journal(dir.get(), offset);
  REQUIRE(journal);
  CHECK_FALSE(journal->damaged);
  REQUIRE(journal->records.size() == 6);
  CHECK(journal->records[1].value == 7);
  CHECK(journal->records[2].info.code == 3);
  CHECK(journal->records[3].type == static_cast<std::uint16_t>(wire::Record::paused));
}

}  // namespace

TEST_CASE("an init of version 1 is adopted, told what to do, and its logs are read", "[host]") {
  TALON_NEED_SANDBOXES();
  const auto script = read_script(std::string(TALON_SOURCE_DIR) + "/tests/kernel/frozen/v1.txt");
  Lab lab;
  isolate::Identity identity;
  identity.id = new_id(IdKind::sandbox);
  identity.boot_id = lab.launcher().host().boot_id;
  identity.nonce = "0102030405060708090a0b0c0d0e0f10";
  identity.lease = 5;
  identity.cgroup = lab.launcher().cgroup_path() + "/" + identity.id;
  const auto run = lab.dir() / "run" / identity.id;
  std::filesystem::create_directories(run);
  for (const char* part : {"", "/init", "/x"}) {
    REQUIRE(std::filesystem::create_directory(identity.cgroup + part));
  }
  const uid_t init_id = limits::kIdBase + identity.lease * limits::kIdRange + limits::kIdRange - 1;
  const Fake fake = start_fake(script, run / "init.sock", identity.cgroup, init_id);
  identity.host_pid = fake.pid;
  CHECK(read_line(fake.says.get()) == "up");
  identity.start_time = isolate::kernel::start_time(fake.pid).value_or(0);

  auto adopted = lab.launcher().adopt(identity);
  INFO((adopted ? "" : adopted.error().message));
  CHECK(adopted.has_value());
  if (adopted) {
    speak(**adopted);
    CHECK(read_line(fake.says.get()) == "");
    CHECK((*adopted)->kill(10s).has_value());
    CHECK((*adopted)->remove().has_value());
    adopted->reset();
  }
  ::kill(fake.pid, SIGKILL);
  ::waitpid(fake.pid, nullptr, 0);

  const auto logs = lab.dir() / "logs";
  std::filesystem::create_directories(logs);
  for (const Line& line : script) {
    if (line.mark == "file") {
      std::ofstream(logs / line.name, std::ios::binary) << line.bytes;
    }
  }
  check_files(logs);
}
