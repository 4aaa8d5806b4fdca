// The bytes that init reads: offsets, alignment, the filter in place.

#include <linux/filter.h>
#include <catch2/catch.hpp>

#include <array>
#include <cstring>
#include <vector>

#include "isolate/plan.h"

using namespace talon;
using namespace talon::isolate;

TEST_CASE("an encoded plan decodes to the same steps, texts and filter") {
  SandboxSpec spec;
  spec.id = "sbx";
  spec.hostname = "box-7";
  spec.on_orphan = OnOrphan::die;
  const Plan plan = make_plan(spec, HostFacts{}, 5000);
  std::vector<sock_filter> filter(3);
  for (std::size_t i = 0; i < filter.size(); ++i) {
    filter[i].k = static_cast<std::uint32_t>(0xabc0 + i);
  }
  std::array<std::byte, 16> nonce;
  nonce.fill(std::byte{0x5a});
  const std::string bytes = encode(plan, std::as_bytes(std::span{filter}), nonce);

  wire::PlanHeader header;
  REQUIRE(bytes.size() > sizeof(header));
  std::memcpy(&header, bytes.data(), sizeof(header));
  CHECK(header.magic == wire::kPlanMagic);
  CHECK(header.version == wire::kVersion);
  CHECK(header.size == bytes.size());
  CHECK(header.flags == wire::kDieWithDaemon);
  CHECK(header.nonce[0] == 0x5a);
  CHECK(header.nonce[15] == 0x5a);
  CHECK(std::string{header.default_cwd} == "/workspace");
  CHECK(header.workload_caps == workload_capabilities());
  CHECK(header.init_caps == init_capabilities());
  CHECK(header.log_budget == 1ull << 30);
  REQUIRE(header.step_count == plan.steps.size());

  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    wire::PlanStep step;
    std::memcpy(&step, bytes.data() + sizeof(header) + i * sizeof(step), sizeof(step));
    const Step& want = plan.steps[i];
    CHECK(step.op == static_cast<std::uint32_t>(want.op));
    CHECK(step.slot == static_cast<std::uint32_t>(want.slot));
    if (want.op == wire::Op::seccomp) {
      CHECK(step.a == 3);
      CHECK(step.str % 8 == 0);  // init hands the kernel a pointer into the mapping
      CHECK(std::memcmp(bytes.data() + step.str, filter.data(), 3 * sizeof(sock_filter)) == 0);
      continue;
    }
    CHECK(step.a == want.a);
    CHECK(step.b == want.b);
    if (want.text.empty()) {
      CHECK(step.str == 0);
    } else {
      REQUIRE(step.str + step.length < bytes.size());
      CHECK(bytes.substr(step.str, step.length) == want.text);
      CHECK(bytes[step.str + step.length] == '\0');
    }
  }
}
