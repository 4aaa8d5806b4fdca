// The real init is stopped by ptrace(2) at every system call that it makes on its logs: there it is
// killed, or the call fails. What readers then see is a whole piece of what was printed, what is
// missing is marked, and an init that lives on goes on.

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <map>
#include <set>

#include "kernel/init_support.h"

using namespace talon;
using namespace talon::test;
using isolate::LogEntry;
using isolate::LogReader;
using wire::Kind;

#ifdef __x86_64__

namespace {

// Calls by which init changes logs/. A close cannot fail there, but it is a step like the others.
constexpr std::array<std::pair<long, const char*>, 8> kLogCalls{{{SYS_openat, "openat"},
                                                                 {SYS_pwritev, "pwritev"},
                                                                 {SYS_ftruncate, "ftruncate"},
                                                                 {SYS_newfstatat, "newfstatat"},
                                                                 {SYS_unlinkat, "unlinkat"},
                                                                 {SYS_renameat2, "renameat2"},
                                                                 {SYS_write, "write"},
                                                                 {SYS_close, "close"}}};

const char* name_of(std::uint64_t nr) {
  const auto* at =
      std::ranges::find(kLogCalls, static_cast<long>(nr), [](auto& c) { return c.first; });
  return at == kLogCalls.end() ? nullptr : at->second;
}

// What an exec prints: lines of a number each, 40 bytes, no two alike.
constexpr int kLines = 9000;
constexpr const char* kCommand = "seq -f '%038.0f.' 1 9000; exit 3";
std::string printed() {
  std::string text;
  for (int i = 1; i <= kLines; ++i) {
    const auto digits = std::to_string(i);
    text += std::string(38 - digits.size(), '0') + digits + ".\n";
  }
  return text;
}
constexpr std::uint64_t kCap = 160 << 10;  // segments of 64 KiB: two are kept, some five made

enum class Fault { none, kill, enospc, eio };

struct Outcome {
  std::vector<std::string> calls;  // in their order, up to the fault
  bool alive = true;
};

bool resume(pid_t pid) { return ::ptrace(PTRACE_SYSCALL, pid, nullptr, nullptr) == 0; }

// Follows init through its calls until `over`; the one of this index meets the fault.
class Tracer {
 public:
  Tracer(pid_t pid, Fault fault, std::size_t at) : pid_(pid), fault_(fault), at_(at) {}

  bool seize() {
    // Only a stopped tracee can be told to stop at calls.
    return ::ptrace(PTRACE_SEIZE, pid_, nullptr, PTRACE_O_TRACESYSGOOD) == 0 &&
           ::ptrace(PTRACE_INTERRUPT, pid_, nullptr, nullptr) == 0 &&
           ::waitpid(pid_, nullptr, __WALL) == pid_ && resume(pid_);
  }
  // Handles what there is; false when init is gone.
  bool step() {
    int status = 0;
    for (;;) {
      const pid_t got = ::waitpid(pid_, &status, __WALL | WNOHANG);
      if (got == 0) {
        return true;
      }
      if (got != pid_ || WIFEXITED(status) || WIFSIGNALED(status)) {
        outcome.alive = false;
        return false;
      }
      if (!WIFSTOPPED(status)) {
        continue;
      }
      if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
        at_call();
      }
      const int deliver =
          status >> 16 == 0 && WSTOPSIG(status) != (SIGTRAP | 0x80) ? WSTOPSIG(status) : 0;
      ::ptrace(PTRACE_SYSCALL, pid_, nullptr, deliver);
    }
  }
  void end() const {
    if (outcome.alive && ::ptrace(PTRACE_INTERRUPT, pid_, nullptr, nullptr) == 0 &&
        ::waitpid(pid_, nullptr, __WALL) == pid_) {
      ::ptrace(PTRACE_DETACH, pid_, nullptr, nullptr);
    }
  }
  Outcome outcome;

 private:
  void at_call() {
    user_regs_struct regs{};
    ::ptrace(PTRACE_GETREGS, pid_, nullptr, &regs);
    __ptrace_syscall_info info{};
    ::ptrace(PTRACE_GET_SYSCALL_INFO, pid_, sizeof info, &info);
    if (info.op == PTRACE_SYSCALL_INFO_EXIT) {
      if (skipping_) {
        regs.rax = static_cast<unsigned long long>(fault_ == Fault::eio ? -EIO : -ENOSPC);
        ::ptrace(PTRACE_SETREGS, pid_, nullptr, &regs);
        skipping_ = false;
      }
      return;
    }
    const char* name = name_of(info.entry.nr);
    if (name == nullptr) {
      return;
    }
    outcome.calls.emplace_back(name);
    if (fault_ == Fault::none || outcome.calls.size() != at_ + 1) {
      return;
    }
    if (fault_ == Fault::kill) {
      ::kill(pid_, SIGKILL);
    } else if (info.entry.nr != SYS_close) {
      regs.orig_rax = ~0ull;  // no such call: the kernel skips it
      ::ptrace(PTRACE_SETREGS, pid_, nullptr, &regs);
      skipping_ = true;
    }
  }

  pid_t pid_;
  Fault fault_;
  std::size_t at_;
  bool skipping_ = false;
};

// Everything from a cursor on.
std::vector<LogEntry> read_on(LogReader& reader) {
  std::vector<LogEntry> all;
  while (reader.read(all).value_or(false)) {
  }
  return all;
}

// Every byte that is there is the right one of its place; what is not there is marked. How far the
// log goes.
std::uint64_t check_pieces(const std::vector<LogEntry>& all, std::uint64_t at,
                           const std::string& expected) {
  for (const LogEntry& entry : all) {
    if (entry.kind == Kind::lost) {
      at += entry.lost_bytes;
    } else if (entry.kind == Kind::out) {
      const bool right = at + entry.bytes.size() <= expected.size() &&
                         expected.compare(at, entry.bytes.size(), entry.bytes) == 0;
      CHECK(right);
      at += entry.bytes.size();
    }
    CHECK(entry.offset == at);
  }
  return at;
}

Outcome run_with(Fault fault, std::size_t index, const std::string& expected) {
  InitBox box;
  REQUIRE(box.up());
  Tracer tracer(box.host_pid(), fault, index);
  REQUIRE(tracer.seize());
  box.shell("pxa", kCommand, {.flags = 0, .log_cap = kCap});
  // One reader comes early and stays; it sees the log as it grows and is cut.
  std::optional<LogReader> early;
  std::uint64_t early_at = 0;
  bool exited = false;
  bool refused = false;
  bool written = fault == Fault::kill;  // the exit frame, which a failed write puts off
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!(exited && written) && !refused && tracer.step() &&
         std::chrono::steady_clock::now() < until) {
    if (!early) {
      if (auto opened = LogReader::open(box.logs(), "pxa")) {
        early.emplace(std::move(*opened));
      }
    } else {
      const auto more = read_on(*early);
      early_at = check_pieces(more, early_at, expected);
      written = written || std::ranges::find(more, Kind::exit, &LogEntry::kind) != more.end();
    }
    const auto frame = InitBox::receive(box.conn(), std::chrono::milliseconds(0));
    exited = exited || (frame && frame->type() == wire::Type::exited);
    refused = frame && frame->type() == wire::Type::exec_failed;
  }
  const std::size_t met = std::min(index, tracer.outcome.calls.size() - 1);
  INFO("call " << index << ", " << tracer.outcome.calls[met]);
  if (refused) {
    // Nothing was started and nothing is in the log: said at once, not lost.
    CHECK_FALSE(LogReader::open(box.logs(), "pxa"));
    early.reset();
  } else if (auto reader = LogReader::open(box.logs(), "pxa")) {
    const auto all = read_on(*reader);
    const std::uint64_t end = check_pieces(all, 0, expected);
    if (early) {
      early_at = check_pieces(read_on(*early), early_at, expected);
      CHECK(early_at == end);
    }
    if (fault != Fault::kill) {
      CHECK(end == expected.size());
      const auto exit = std::ranges::find(all, Kind::exit, &LogEntry::kind);
      REQUIRE(exit != all.end());
      CHECK(exit->exit.code == 3);
    }
  } else {
    CHECK(fault == Fault::kill);
  }
  std::uint64_t offset = 0;
  const auto journal = isolate::read_journal(box.logs(), offset);
  CHECK((journal && !journal->damaged));
  if (fault != Fault::kill) {
    CHECK(tracer.outcome.alive);
    CHECK((exited || refused));
  }
  tracer.end();
  if (tracer.outcome.alive) {
    const auto next = box.run("pxb", "echo on");
    REQUIRE(next);
    CHECK(box.output("pxb") == "on\n");
  }
  return tracer.outcome;
}

std::vector<std::string> calls_of_a_rotating_log(const std::string& expected) {
  const auto calls = run_with(Fault::none, 0, expected).calls;
  const auto count = [&calls](const char* name) { return std::ranges::count(calls, name); };
  CHECK(count("openat") >= 4);
  CHECK(count("unlinkat") >= 2);
  return calls;
}

void walk(Fault fault) {
  const std::string expected = printed();
  const auto calls = calls_of_a_rotating_log(expected);
  std::map<std::string, int> walked;
  // How the output falls into chunks differs a little from run to run, so the end is open.
  for (std::size_t index = 0; index < calls.size(); ++index) {
    const auto outcome = run_with(fault, index, expected);
    if (outcome.calls.size() > index) {
      ++walked[outcome.calls[index]];
    }
  }
  std::string told;
  for (const auto& [name, times] : walked) {
    told += " " + name + " " + std::to_string(times);
  }
  WARN(calls.size() << " calls:" << told);
  for (const char* name : {"openat", "pwritev", "newfstatat", "unlinkat"}) {
    CHECK(walked[name] > 0);
  }
}

}  // namespace

TEST_CASE("init killed at any call of a log's rotation leaves a log that reads as far as it goes",
          "[host]") {
  if (const auto why = why_not(); !why.empty()) {
    WARN("SKIP: " << why);
    return;
  }
  walk(Fault::kill);
}

TEST_CASE("a full disk at any call of a log's rotation loses nothing without a mark", "[host]") {
  if (const auto why = why_not(); !why.empty()) {
    WARN("SKIP: " << why);
    return;
  }
  walk(Fault::enospc);
}

TEST_CASE("an I/O error at any call of a log's rotation loses nothing without a mark", "[host]") {
  if (const auto why = why_not(); !why.empty()) {
    WARN("SKIP: " << why);
    return;
  }
  walk(Fault::eio);
}

#else

TEST_CASE("init killed at any call of a log's rotation leaves a log that reads as far as it goes",
          "[host]") {
  WARN("SKIP: the registers of this machine are not known to this test");
}

#endif
