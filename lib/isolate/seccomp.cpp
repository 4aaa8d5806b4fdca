#include "isolate/seccomp.h"

#include <fmt/format.h>
#include <linux/seccomp.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

namespace talon::isolate::seccomp {

Verdict Policy::judge(std::uint32_t number, std::span<const std::uint64_t, 6> arguments) const {
  const auto at = std::ranges::lower_bound(entries, number, {}, &Entry::number);
  if (at == entries.end() || at->number != number) {
    return deny(ENOSYS);
  }
  for (const Rule& rule : at->rules) {
    if (std::ranges::all_of(rule.all, [&](const Test& t) {
          return (static_cast<std::uint32_t>(arguments[t.argument]) & t.mask) == t.value;
        })) {
      return rule.verdict;
    }
  }
  return at->otherwise;
}

namespace {

constexpr std::uint16_t kLoad = BPF_LD | BPF_W | BPF_ABS;
constexpr std::uint16_t kAnd = BPF_ALU | BPF_AND | BPF_K;
constexpr std::uint16_t kJumpEq = BPF_JMP | BPF_JEQ | BPF_K;
constexpr std::uint16_t kJumpGe = BPF_JMP | BPF_JGE | BPF_K;
constexpr std::uint16_t kJump = BPF_JMP | BPF_JA;
constexpr std::uint16_t kReturn = BPF_RET | BPF_K;

sock_filter statement(std::uint16_t code, std::uint32_t k) { return BPF_STMT(code, k); }
sock_filter jump(std::uint16_t code, std::uint32_t k, std::size_t yes, std::size_t no) {
  return BPF_JUMP(code, k, static_cast<std::uint8_t>(yes), static_cast<std::uint8_t>(no));
}
void append(Program& out, const Program& more) { out.insert(out.end(), more.begin(), more.end()); }

// Both supported architectures are little endian: the low half of an argument comes first.
std::uint32_t low_half(unsigned argument) {
  return static_cast<std::uint32_t>(offsetof(seccomp_data, args) + argument * sizeof(__u64));
}

// [first, next range's first): what these numbers get.
struct Range {
  std::uint32_t first;
  const Entry* entry;  // with rules; else null
  Verdict verdict;
};

std::vector<Range> ranges_of(const Policy& policy) {
  std::vector<Range> out;
  const auto put = [&out](std::uint32_t first, const Entry* entry, Verdict verdict) {
    if (!out.empty() && out.back().entry == nullptr && entry == nullptr &&
        out.back().verdict == verdict) {
      return;
    }
    out.push_back({first, entry, verdict});
  };
  std::uint32_t next = 0;
  for (const Entry& entry : policy.entries) {
    if (entry.number > next) {
      put(next, nullptr, deny(ENOSYS));
    }
    put(entry.number, entry.rules.empty() ? nullptr : &entry, entry.otherwise);
    next = entry.number + 1;
  }
  put(next, nullptr, deny(ENOSYS));
  return out;
}

Program rule_block(const Entry& entry) {
  Program out;
  for (const Rule& rule : entry.rules) {
    // Each test: load, and, jeq; a failed one skips the rest of this rule.
    Program block;
    std::size_t left = rule.all.size() * 3 + 1;
    for (const Test& test : rule.all) {
      block.push_back(statement(kLoad, low_half(test.argument)));
      block.push_back(statement(kAnd, test.mask));
      left -= 3;
      block.push_back(jump(kJumpEq, test.value, 0, left));
    }
    block.push_back(statement(kReturn, rule.verdict));
    append(out, block);
  }
  out.push_back(statement(kReturn, entry.otherwise));
  return out;
}

Program leaf(const Range& range) {
  return range.entry != nullptr ? rule_block(*range.entry)
                                : Program{statement(kReturn, range.verdict)};
}

// A balanced tree of `number >= k`; every leaf returns.
Program search(std::span<const Range> ranges) {
  if (ranges.size() == 1) {
    return leaf(ranges.front());
  }
  const std::size_t middle = ranges.size() / 2;
  const Program below = search(ranges.first(middle));
  const Program above = search(ranges.subspan(middle));
  Program out;
  if (below.size() <= 255) {
    out.push_back(jump(kJumpGe, ranges[middle].first, below.size(), 0));
  } else {  // conditional jumps reach 255 instructions
    out.push_back(jump(kJumpGe, ranges[middle].first, 0, 1));
    out.push_back(statement(kJump, static_cast<std::uint32_t>(below.size())));
  }
  append(out, below);
  append(out, above);
  return out;
}

}  // namespace

Result<Program> compile(std::span<const Policy> policies) {
  Program out{statement(kLoad, offsetof(seccomp_data, arch))};
  for (const Policy& policy : policies) {
    Program block{statement(kLoad, offsetof(seccomp_data, nr))};
    append(block, search(ranges_of(policy)));
    out.push_back(jump(kJumpEq, policy.audit_arch, 1, 0));
    out.push_back(statement(kJump, static_cast<std::uint32_t>(block.size())));
    append(out, block);
  }
  out.push_back(statement(kReturn, kill()));
  if (out.size() > BPF_MAXINSNS) {
    return fail(Code::internal, fmt::format("seccomp filter has {} instructions", out.size()));
  }
  return out;
}

Verdict interpret(std::span<const sock_filter> program, std::uint32_t audit_arch,
                  std::uint32_t number, std::span<const std::uint64_t, 6> arguments) {
  seccomp_data data{};
  data.nr = static_cast<int>(number);
  data.arch = audit_arch;
  std::ranges::copy(arguments, data.args);
  const auto* bytes = reinterpret_cast<const unsigned char*>(&data);
  std::uint32_t a = 0;
  for (std::size_t pc = 0; pc < program.size(); ++pc) {
    const sock_filter& in = program[pc];
    switch (in.code) {
      case kLoad:
        if (in.k % 4 != 0 || in.k >= sizeof(data)) {
          return kill();
        }
        __builtin_memcpy(&a, bytes + in.k, sizeof(a));
        break;
      case kAnd: a &= in.k; break;
      case kJumpEq: pc += a == in.k ? in.jt : in.jf; break;
      case kJumpGe: pc += a >= in.k ? in.jt : in.jf; break;
      case kJump: pc += in.k; break;
      case kReturn: return in.k;
      default: return kill();
    }
  }
  return kill();
}

Result<> self_check(std::span<const sock_filter> program, std::span<const Policy> policies) {
  const auto check = [&](const Policy& policy, std::uint32_t number,
                         const std::array<std::uint64_t, 6>& arguments) -> Result<> {
    const Verdict want = policy.judge(number, arguments);
    const Verdict got = interpret(program, policy.audit_arch, number, arguments);
    if (want != got) {
      return fail(Code::internal, fmt::format("seccomp filter answers {:#x} for call {} of {:#x}, "
                                              "the policy says {:#x}",
                                              got, number, policy.audit_arch, want));
    }
    return {};
  };
  for (const Policy& policy : policies) {
    for (std::uint32_t number = 0; number < 512; ++number) {
      TALON_CHECK(check(policy, number, {}));
    }
    for (const std::uint32_t number : {9999u, 0x40000000u, 0x40000001u, 0xffffffffu}) {
      TALON_CHECK(check(policy, number, {}));
    }
    for (const Entry& entry : policy.entries) {
      for (const Rule& rule : entry.rules) {
        std::array<std::uint64_t, 6> arguments{};
        for (const Test& test : rule.all) {
          // Garbage in the upper half must not change the verdict.
          arguments[test.argument] = 0xdead'0000'0000'0000ull | test.value;
        }
        TALON_CHECK(check(policy, entry.number, arguments));
      }
    }
  }
  return {};
}

}  // namespace talon::isolate::seccomp
