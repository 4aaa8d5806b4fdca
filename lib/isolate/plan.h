#pragma once
// SandboxSpec + HostFacts -> the ordered steps that init runs. Pure: no syscalls, no clock, no
// randomness, so golden files can pin it and unit tests can state its order laws. The order
// itself is argued in docs/adr/0002 (user namespace last) and architecture §3.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "isolate/host.h"
#include "isolate/spec.h"
#include "isolate/wire/plan_format.h"

namespace talon::isolate {

struct Step {
  wire::Op op;
  wire::Slot slot = wire::Slot::count;  // count = none
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  std::string text;
  bool operator==(const Step&) const = default;
};

struct Plan {
  std::vector<Step> steps;
  std::uint32_t flags = 0;
  std::uint64_t workload_caps = 0;
  std::uint64_t init_caps = 0;
  std::uint64_t log_budget = 0;
  std::string default_cwd;
  std::uint32_t id_base = 0;  // host id of 0 inside
  bool seccomp = true;
  bool compat32 = false;
};

// id_base: first host id of the lease (init's own id is id_base + 65536).
Plan make_plan(const SandboxSpec& spec, const HostFacts& host, std::uint32_t id_base);

// One line a step: "12 mask_file /proc/kcore". What `talond plan` prints and golden files hold.
std::string print(const Plan& plan);
std::string_view to_string(wire::Op op);

// The bytes for init. `filter`: sock_filter[] of the seccomp step (may be empty if plan.seccomp
// is false). `nonce`: 16 bytes.
std::string encode(const Plan& plan, std::span<const std::byte> filter,
                   std::span<const std::byte> nonce);

// The capability numbers of decision 3.
std::uint64_t workload_capabilities();
std::uint64_t init_capabilities();

}  // namespace talon::isolate
