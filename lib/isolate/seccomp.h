#pragma once
// The seccomp policy (decision 4) and its compiler. The policy is one table of names; libseccomp
// knows each architecture's numbers; our compiler turns the table into a range search, because
// the kernel's price for loading a filter follows the path length, not the size. It runs while
// talond is built: the filters are constants of the binary.
//
// Verdicts: allowed; EPERM for what is known and dangerous; by arguments for clone, unshare,
// socket, ioctl, personality and prctl; ENOSYS for everything else, so that programs fall back.
// A call of a foreign architecture kills the process (i386's int 0x80, unless compat32);
// x32 numbers are unknown calls.

#include <linux/filter.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"

namespace talon::isolate::seccomp {

// What a filter answers, as SECCOMP_RET_* with its data (errno).
using Verdict = std::uint32_t;
Verdict allow();
Verdict deny(int error);
Verdict kill();

// `arguments[argument] & mask == value`, on the low 32 bits: the kernel reads these arguments as
// int, so the upper half is whatever the caller left there (CVE-2019-10063).
struct Test {
  unsigned argument;
  std::uint32_t mask;
  std::uint32_t value;
};
struct Rule {
  std::vector<Test> all;  // every one must hold
  Verdict verdict;
};
// The first rule that holds decides, else `otherwise`.
struct Entry {
  std::uint32_t number;
  std::string name;
  std::vector<Rule> rules;
  Verdict otherwise;
};
// One architecture's resolved policy, sorted by number; numbers not in it are ENOSYS.
struct Policy {
  std::uint32_t audit_arch;
  std::vector<Entry> entries;
  Verdict judge(std::uint32_t number, std::span<const std::uint64_t, 6> arguments) const;
};

// The policy of this build's architecture, and of 32-bit x86 (empty elsewhere).
Policy native_policy();
Policy compat32_policy();

using Program = std::vector<sock_filter>;
// One filter for all the given architectures. Fails if it would pass BPF_MAXINSNS (4096).
Result<Program> compile(std::span<const Policy> policies);

// Runs a filter as the kernel does (only what compile() emits). Any fault in it is kill().
Verdict interpret(std::span<const sock_filter> program, std::uint32_t audit_arch,
                  std::uint32_t number, std::span<const std::uint64_t, 6> arguments);

// S13: interprets `program` for numbers 0..511 and a few beyond, compares with each policy.
// Zero arguments and, for entries with rules, arguments that satisfy each rule.
Result<> self_check(std::span<const sock_filter> program, std::span<const Policy> policies);

// The filters, compiled when talond was built (seccomp_generate.cpp). The second also takes 32-bit
// x86 calls; unenforceable on other architectures.
std::span<const sock_filter> native_filter();
Result<std::span<const sock_filter>> compat32_filter();

// S13: both filters against the policies of this binary; a daemon asks at its start (milliseconds).
Result<> check_filters();

}  // namespace talon::isolate::seccomp
