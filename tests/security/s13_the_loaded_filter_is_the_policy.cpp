// S13: the filter that a process inside is under answers every call as the table of the policy
// says. What it refuses is called, number by number; that it is checked against the table before it
// is ever used, for what it allows, too: tests/unit/isolate/seccomp_verdicts.

#include <cerrno>

#include "isolate/seccomp.h"
#include "security/attack.h"

namespace seccomp = talon::isolate::seccomp;
using namespace talon::testing;

namespace {

// Numbers of calls that are refused whatever their arguments, and how.
std::map<std::string, std::string> refused() {
  std::map<std::string, std::string> out;
  const seccomp::Policy policy = seccomp::native_policy();
  for (std::uint32_t number = 0; number < 600; ++number) {
#ifdef __x86_64__
    // uretprobe and uprobe: the kernel lets them pass by every filter, and ends with SIGILL whoever
    // calls them from elsewhere than its own trampoline (arch/x86/kernel/uprobes.c).
    if (number == 335 || number == 336) {
      continue;
    }
#endif
    const auto listed = std::ranges::find(policy.entries, number, &seccomp::Entry::number);
    if (listed != policy.entries.end() && !listed->rules.empty()) {
      continue;
    }
    const std::array<std::uint64_t, 6> none{};
    const auto verdict = policy.judge(number, none);
    if (verdict == seccomp::deny(EPERM)) {
      out[std::to_string(number)] = "EPERM";
    } else if (verdict == seccomp::deny(ENOSYS)) {
      out[std::to_string(number)] = "ENOSYS";
    }
  }
  return out;
}

}  // namespace

TEST_CASE("S13: every refused number is refused as the policy says") {
  TALON_NEED_SANDBOXES();
  CHECK(seccomp::check_filters().has_value());
  const auto want = refused();
  CHECK(want.size() > 150);
  from_every_side([&](Attacker& a) {
    Args args{"calls"};
    for (const auto& [number, verdict] : want) {
      args.push_back(number);
    }
    std::size_t called = 0;
    for (const Finding& call : a.probe(args)) {
      INFO("call " << call["number"] << " " << call["name"]);
      REQUIRE(want.contains(call["number"]));
      CHECK(call["name"] == want.at(call["number"]));
      ++called;
    }
    CHECK(called == want.size());
  });
}
