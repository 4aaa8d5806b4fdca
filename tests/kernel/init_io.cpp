// Output, input, terminals: no byte is lost, none is invented, and an exec ends when it ends.

#include <catch2/catch.hpp>

#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "kernel/init_support.h"

using namespace talon;
using namespace talon::test;

#define NEED_BOX(...)                       \
  if (auto why = why_not(); !why.empty()) { \
    WARN("SKIP: " << why);                  \
    return;                                 \
  }                                         \
  InitBox box{__VA_ARGS__};                 \
  REQUIRE(box.up())

namespace {

std::uint64_t fnv(std::string_view bytes, std::uint64_t hash) {
  for (const char c : bytes) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  }
  return hash;
}
constexpr std::uint64_t kFnv = 14695981039346656037ull;

// Reads a whole log without holding it.
struct Digest {
  std::uint64_t bytes = 0;
  std::uint64_t hash = kFnv;
  std::string tail;
  std::uint64_t lost = 0;
};
Digest digest(const InitBox& box, const std::string& px, wire::Kind kind = wire::Kind::out) {
  Digest d;
  auto reader = isolate::LogReader::open(box.logs(), px);
  std::vector<isolate::LogEntry> entries;
  while (reader) {
    entries.clear();
    auto more = reader->read(entries);
    if (!more || !*more) {
      break;
    }
    for (const auto& entry : entries) {
      d.lost += entry.lost_bytes;
      if (entry.kind == kind) {
        d.bytes += entry.bytes.size();
        d.hash = fnv(entry.bytes, d.hash);
        d.tail = (d.tail + entry.bytes)
                     .substr(std::max<std::size_t>((d.tail + entry.bytes).size(), 3) - 3);
      }
    }
  }
  return d;
}

}  // namespace

TEST_CASE("EX-01: 100 MB without a newline and then END, byte-exact") {
  NEED_BOX();
  constexpr std::uint64_t kBytes = 100'000'000;
  box.shell("pxbig", "head -c 100000000 /dev/zero | tr '\\0' x; printf END");
  auto exit = box.wait_exit("pxbig");
  REQUIRE(exit);
  CHECK(exit->code == 0);
  CHECK(exit->flags == 0);
  CHECK(exit->out_bytes == kBytes + 3);
  std::uint64_t want = kFnv;
  const std::string block(1'000'000, 'x');
  for (std::uint64_t i = 0; i < kBytes; i += block.size()) {
    want = fnv(block, want);
  }
  want = fnv("END", want);
  const Digest d = digest(box, "pxbig");
  CHECK(d.bytes == kBytes + 3);
  CHECK(d.hash == want);
  CHECK(d.tail == "END");
}

TEST_CASE("EX-03: a background child keeps the pipe; the exec ends, the child goes on late") {
  NEED_BOX();
  const std::string go = box.dir() + "/go";
  REQUIRE(::mkfifo(go.c_str(), 0600) == 0);
  box.shell("pxback", "(read x <" + go + "; echo afterwards) & echo ok");
  auto exit = box.wait_exit("pxback", std::chrono::seconds(10));
  REQUIRE(exit);
  CHECK(exit->code == 0);
  CHECK(box.output("pxback") == "ok\n");
  {
    std::ofstream(go) << "\n";
  }
  REQUIRE(box.wait_type(wire::Type::ended, "pxback"));
  auto entries = box.entries("pxback");
  REQUIRE(entries.size() == 4);
  CHECK(entries[0].bytes == "ok\n");
  CHECK_FALSE(entries[0].late);
  CHECK(entries[1].kind == wire::Kind::exit);
  CHECK(entries[2].bytes == "afterwards\n");
  CHECK(entries[2].late);
  CHECK(entries[3].kind == wire::Kind::end);
  CHECK(entries[3].late);
}

TEST_CASE("a background flood does not keep an exec from ending") {
  NEED_BOX();
  box.shell("pxflood", "yes & echo ok", {.flags = 0, .log_cap = 1 << 20});
  auto exit = box.wait_exit("pxflood", std::chrono::seconds(10));
  REQUIRE(exit);
  CHECK(exit->code == 0);
  // Others are served meanwhile.
  CHECK(box.run("pxother", "echo hi"));
  CHECK(box.output("pxother") == "hi\n");
  CHECK(box.signal("pxflood", SIGKILL, wire::Scope::all) == 0);
  if (box.has_cgroups()) {
    CHECK(box.wait_type(wire::Type::ended, "pxflood"));
  }
}

TEST_CASE("max_output keeps exactly the first bytes and ends the exec") {
  NEED_BOX();
  for (const std::uint64_t limit : {1ull, 4095ull, 65536ull, 100'001ull}) {
    const std::string px = "pxmax" + std::to_string(limit);
    auto exit = box.run(px, "exec yes 0123456", {.max_output = limit});
    REQUIRE(exit);
    CHECK(exit->flags == wire::kOutputLimit);
    CHECK(exit->signal == SIGKILL);
    CHECK(exit->out_bytes == limit);
    const std::string out = box.output(px);
    REQUIRE(out.size() == limit);
    std::string want;
    while (want.size() < limit) {
      want += "0123456\n";
    }
    CHECK(out == want.substr(0, limit));
  }
  auto exit = box.run("pxexact", "printf 12345", {.max_output = 5});
  REQUIRE(exit);
  CHECK(exit->flags == 0);
  CHECK(box.output("pxexact") == "12345");
}

TEST_CASE("many small writes share frames, and none is lost") {
  NEED_BOX();
  auto exit = box.run("pxlines", "i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done");
  REQUIRE(exit);
  std::string want;
  for (int i = 0; i < 20000; ++i) {
    want += std::to_string(i) + "\n";
  }
  CHECK(box.output("pxlines") == want);
  CHECK(box.entries("pxlines").size() < 10000);
}

TEST_CASE("an inline head of 50 MB: read whole, or dropped when nobody reads on") {
  NEED_BOX();
  std::string input = "first line\n";
  input.resize(50'000'000, 'z');
  auto exit = box.run("pxhead", "head -n1", {.input = input});
  REQUIRE(exit);
  CHECK(exit->code == 0);
  CHECK(box.output("pxhead") == "first line\n");
  exit = box.run("pxcat", "wc -c", {.input = input});
  REQUIRE(exit);
  CHECK(box.output("pxcat") == "50000000\n");
  exit = box.run("pxnone", "wc -c");
  REQUIRE(exit);
  CHECK(box.output("pxnone") == "0\n");
}

TEST_CASE("streamed stdin: offsets, retries, gaps, close") {
  NEED_BOX();
  box.shell("pxin", "cat", {.input = "head-", .flags = wire::kExecStdin | wire::kExecUnlimitedLog});
  REQUIRE(box.wait_type(wire::Type::started, "pxin"));
  auto ack = [&](std::uint64_t id) {
    auto frame = box.wait(
        [&](const Frame& f) { return f.type() == wire::Type::stdin_ack && f.head.request == id; });
    REQUIRE(frame);
    return frame->as<wire::StdinAck>();
  };
  auto a = ack(box.input("pxin", 5, "abc"));
  CHECK(a.error == 0);
  CHECK(a.accepted == 8);
  a = ack(box.input("pxin", 5, "abcdef"));  // a retry that goes further
  CHECK(a.error == 0);
  CHECK(a.accepted == 11);
  a = ack(box.input("pxin", 5, "abc"));  // all of it is there already
  CHECK(a.error == 0);
  CHECK(a.accepted == 11);
  a = ack(box.input("pxin", 20, "gap"));
  CHECK(a.error == EINVAL);
  CHECK(a.accepted == 11);
  a = ack(box.input("pxin", 11, "!", true));
  CHECK(a.error == 0);
  CHECK(a.accepted == 12);
  CHECK(a.closed == 1);
  auto exit = box.wait_exit("pxin");
  REQUIRE(exit);
  CHECK(exit->code == 0);
  CHECK(box.output("pxin") == "head-abcdef!");
  a = ack(box.input("pxgone", 0, "x"));
  CHECK(a.error == ENOENT);
}

TEST_CASE("streamed stdin: what the pipe does not take waits, up to the window") {
  NEED_BOX();
  const std::string go = box.dir() + "/go";
  REQUIRE(::mkfifo(go.c_str(), 0600) == 0);
  box.shell("pxstopped", "read x <" + go + "; wc -c",
            {.flags = wire::kExecStdin | wire::kExecUnlimitedLog});
  REQUIRE(box.wait_type(wire::Type::started, "pxstopped"));
  const std::string part(32 * 1024, 'a');
  std::uint64_t offset = 0;
  std::vector<std::uint64_t> asked;
  // The pipe takes 64 KiB, the window 128 KiB; the next frame is refused and nothing is kept of it.
  for (int i = 0; i < 7; ++i) {
    asked.push_back(box.input("pxstopped", offset, part));
    offset += part.size();
  }
  auto frame = box.wait([&](const Frame& f) {
    return f.type() == wire::Type::stdin_ack && f.head.request == asked[6];
  });
  REQUIRE(frame);
  CHECK(frame->as<wire::StdinAck>().error == EAGAIN);
  CHECK(frame->as<wire::StdinAck>().accepted == 64 * 1024);
  {
    std::ofstream(go) << "\n";
  }
  frame = box.wait([&](const Frame& f) {
    return f.type() == wire::Type::stdin_ack && f.head.request == asked[5];
  });
  REQUIRE(frame);
  CHECK(frame->as<wire::StdinAck>().accepted == 192 * 1024);
  box.input("pxstopped", 192 * 1024, part, true);
  REQUIRE(box.wait_exit("pxstopped"));
  CHECK(box.output("pxstopped") == "229376\n");
}

TEST_CASE("a terminal has its size before the first byte, takes input and resizes") {
  NEED_BOX();
  box.shell("pxtty", "tty; stty size; read line; echo got $line; read line; stty size; exit 5",
            {.flags = wire::kExecTty | wire::kExecStdin | wire::kExecUnlimitedLog,
             .cols = 100,
             .rows = 33});
  REQUIRE(box.wait_type(wire::Type::started, "pxtty"));
  auto has = [&](const std::string& text) {
    return InitBox::eventually(
        [&] { return box.output("pxtty", wire::Kind::tty).find(text) != std::string::npos; });
  };
  REQUIRE(has("33 100\r\n"));
  box.input("pxtty", 0, "word\n");
  REQUIRE(has("got word\r\n"));
  wire::Resize resize{};
  std::string("pxtty").copy(resize.px, sizeof resize.px);
  resize.cols = 44;
  resize.rows = 11;
  box.request(wire::Type::resize, resize);
  auto done = box.wait_type(wire::Type::done);
  REQUIRE(done);
  CHECK(done->as<wire::Done>().error == 0);
  box.input("pxtty", 5, "\n");
  auto exit = box.wait_exit("pxtty");
  REQUIRE(exit);
  CHECK(exit->code == 5);
  CHECK(has("11 44\r\n"));
  bool resized = false;
  for (const auto& entry : box.entries("pxtty")) {
    resized = resized ||
              (entry.kind == wire::Kind::resize && entry.size.cols == 44 && entry.size.rows == 11);
  }
  CHECK(resized);
  REQUIRE(box.wait_type(wire::Type::ended, "pxtty"));
}

TEST_CASE("a terminal given its whole input sees its end") {
  NEED_BOX();
  auto exit = box.run("pxttyin", "cat; echo over",
                      {.input = "text\n", .flags = wire::kExecTty | wire::kExecUnlimitedLog});
  REQUIRE(exit);
  CHECK(box.output("pxttyin", wire::Kind::tty) == "text\r\ntext\r\nover\r\n");
}

TEST_CASE("a terminal's last bytes are in the log before the exit frame") {
  NEED_BOX();
  for (int i = 0; i < 20; ++i) {
    const std::string px = "pxlast" + std::to_string(i);
    auto exit = box.run(px, "seq 1 2000", {.flags = wire::kExecTty | wire::kExecUnlimitedLog});
    REQUIRE(exit);
    const std::string out = box.output(px, wire::Kind::tty);
    CHECK(out.size() == 10893);  // 8893 bytes of seq and 2000 carriage returns
    CHECK(out.ends_with("2000\r\n"));
  }
}

TEST_CASE("the log cap drops whole segments at the front, and the reader says how much") {
  NEED_BOX();
  constexpr std::uint64_t kCap = 1 << 20;
  auto exit = box.run("pxcap", "seq 1 1000000", {.flags = 0, .log_cap = kCap});
  REQUIRE(exit);
  CHECK(exit->flags == wire::kLostOutput);
  CHECK(exit->out_bytes == 6888896);
  std::uint64_t kept = 0;
  for (const auto& name : box.log_files()) {
    if (name.starts_with("pxcap.")) {
      kept += std::filesystem::file_size(box.dir() + "/logs/" + name);
    }
  }
  CHECK(kept <= kCap);
  CHECK(kept > kCap / 2);
  const auto entries = box.entries("pxcap");
  REQUIRE(entries.size() > 2);
  CHECK(entries[0].kind == wire::Kind::lost);
  const Digest d = digest(box, "pxcap");
  CHECK(d.lost + d.bytes == 6888896);
  CHECK(d.tail == "00\n");
}

TEST_CASE("a full disk: nothing blocks, and what was lost is counted") {
  if (auto why = why_not(); !why.empty()) {
    WARN("SKIP: " << why);
    return;
  }
  // A small tmpfs in a private mount namespace of a child, which holds the whole box.
  const pid_t child = ::fork();
  if (child == 0) {
    char name[] = "/tmp/talon-full-XXXXXX";
    const bool mounted = ::unshare(CLONE_NEWNS) == 0 &&
                         ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                         ::mkdtemp(name) != nullptr &&
                         ::mount("tmpfs", name, "tmpfs", 0, "size=1m") == 0;
    int result = mounted ? 0 : 77;
    if (mounted) {
      InitBox box(BoxOptions{.logs_dir = name});
      box.shell("pxfull", "head -c 3000000 /dev/zero | tr '\\0' x; printf END",
                {.flags = 0, .log_cap = 64 << 20});
      auto exit = box.wait_exit("pxfull");
      if (!exit || exit->code != 0 || (exit->flags & wire::kLostOutput) == 0 ||
          exit->out_bytes != 3000003) {
        result = 1;
      } else {
        std::filesystem::remove(std::string(name) + "/filler");
        // Room is made by a second log's removal: here by growing the file system.
        ::mount("tmpfs", name, "tmpfs", MS_REMOUNT, "size=8m");
        const bool ended = InitBox::eventually([&] {
          auto all = box.entries("pxfull");
          return !all.empty() && all.back().kind == wire::Kind::end;
        });
        const Digest d = digest(box, "pxfull");
        result = !ended ? 2 : d.lost + d.bytes != 3000003 ? 3 : d.lost == 0 ? 4 : 0;
        auto records = box.journal();
        if (result == 0 && (records.empty() || records.back().type != static_cast<std::uint16_t>(
                                                                          wire::Record::exit))) {
          result = 5;
        }
        if (result == 0 && !box.run("pxafter", "echo fine")) {
          result = 6;
        }
      }
    }
    ::umount2(name, MNT_DETACH);
    ::rmdir(name);
    ::_exit(result);
  }
  REQUIRE(child > 0);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) {
    WARN("SKIP: needs mount namespaces");
    return;
  }
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("the event descriptor counts batches") {
  NEED_BOX();
  REQUIRE(box.run("pxevent", "echo 1"));
  std::uint64_t count = 0;
  pollfd p{box.event(), POLLIN, 0};
  REQUIRE(::poll(&p, 1, 10000) == 1);
  REQUIRE(::read(box.event(), &count, sizeof count) == sizeof count);
  CHECK(count >= 1);
}
