// The order laws of set-up: what must come before what, whatever the spec (decisions.md, end).

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>
#include <vector>

#include "isolate/plan.h"

using namespace talon;
using namespace talon::isolate;
using wire::Op;
using wire::Slot;

namespace {

HostFacts host() {
  HostFacts facts;
  facts.kernel_major = 6;
  facts.kernel_minor = 18;
  facts.nofile_hard = 20000;
  return facts;
}

std::vector<SandboxSpec> specs() {
  std::vector<SandboxSpec> out;
  for (const bool pid_only : {false, true}) {
    for (const bool pivot : {false, true}) {
      for (const bool compat : {false, true}) {
        SandboxSpec spec;
        spec.id = "sbx";
        spec.proc = pid_only ? ProcMode::pid_only : ProcMode::full;
        spec.pivot_root = pivot;
        spec.compat32 = compat;
        out.push_back(spec);
      }
    }
  }
  return out;
}

std::size_t index_of(const Plan& plan, Op op) {
  const auto at = std::ranges::find(plan.steps, op, &Step::op);
  return static_cast<std::size_t>(at - plan.steps.begin());
}

std::size_t last_index_of(const Plan& plan, Op op) {
  std::size_t out = plan.steps.size();
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    out = plan.steps[i].op == op ? i : out;
  }
  return out;
}

bool has(const Plan& plan, Op op) { return index_of(plan, op) < plan.steps.size(); }

}  // namespace

TEST_CASE("seccomp is the last step but for dumpable and listen") {
  for (const SandboxSpec& spec : specs()) {
    const Plan plan = make_plan(spec, host(), limits::kIdBase);
    REQUIRE(plan.steps.size() >= 4);
    const auto end = plan.steps.end();
    CHECK((end - 1)->op == Op::listen);
    CHECK((end - 2)->op == Op::not_dumpable);
    CHECK((end - 3)->op == Op::seccomp);
    CHECK((end - 4)->op == Op::no_new_privs);
  }
}

TEST_CASE("the user namespace comes after network, cgroup, mounts and the id change") {
  for (const SandboxSpec& spec : specs()) {
    const Plan plan = make_plan(spec, host(), limits::kIdBase);
    const std::size_t userns = index_of(plan, Op::join_user_ns);
    REQUIRE(userns < plan.steps.size());
    for (const Op before :
         {Op::join_cgroup_ns, Op::join_net_ns, Op::attach_tree, Op::mount_proc, Op::mask_file,
          Op::proc_readonly, Op::mount_cgroup, Op::enter_root, Op::pivot_root, Op::hostname,
          Op::oom_score_adj, Op::clear_groups, Op::keep_caps, Op::set_ids}) {
      if (has(plan, before)) {
        CHECK(last_index_of(plan, before) < userns);
      }
    }
    // A new user namespace refills the bounding set (I2).
    CHECK(index_of(plan, Op::drop_bounding) > userns);
    CHECK(last_index_of(plan, Op::set_caps) > index_of(plan, Op::drop_bounding));
  }
}

TEST_CASE("the cgroup namespace is joined before cgroup2 is mounted, proc before its masks") {
  for (const SandboxSpec& spec : specs()) {
    const Plan plan = make_plan(spec, host(), limits::kIdBase);
    CHECK(plan.steps.front().op == Op::join_cgroup_ns);
    CHECK(index_of(plan, Op::join_cgroup_ns) < index_of(plan, Op::mount_cgroup));
    CHECK(index_of(plan, Op::attach_tree) < index_of(plan, Op::mount_proc));
    const std::size_t root = index_of(plan, spec.pivot_root ? Op::pivot_root : Op::enter_root);
    CHECK(index_of(plan, Op::mount_cgroup) < root);
    CHECK(has(plan, Op::enter_root) != has(plan, Op::pivot_root));
    if (spec.proc == ProcMode::full) {
      CHECK(index_of(plan, Op::mount_proc) < index_of(plan, Op::mask_file));
      CHECK(last_index_of(plan, Op::mask_file) < root);
      CHECK(last_index_of(plan, Op::proc_readonly) < root);
    } else {
      CHECK_FALSE(has(plan, Op::mask_file));
      CHECK_FALSE(has(plan, Op::mask_dir));
      CHECK_FALSE(has(plan, Op::proc_readonly));
    }
  }
}

TEST_CASE("groups are cleared before ids change, and KEEPCAPS is set before") {
  const Plan plan = make_plan(specs().front(), host(), limits::kIdBase);
  CHECK(index_of(plan, Op::clear_groups) < index_of(plan, Op::keep_caps));
  CHECK(index_of(plan, Op::keep_caps) < index_of(plan, Op::set_ids));
  CHECK(index_of(plan, Op::set_ids) < index_of(plan, Op::set_caps));
  const Step& ids = plan.steps[index_of(plan, Op::set_ids)];
  // The one id of the lease that is in no map.
  CHECK(ids.a == limits::kIdBase + 65536);
  CHECK(ids.b == limits::kIdBase + 65536);
}

TEST_CASE("every slot used exists, and no step uses a kept slot by mistake") {
  for (const SandboxSpec& spec : specs()) {
    for (const Step& step : make_plan(spec, host(), limits::kIdBase).steps) {
      const bool needs = step.op == Op::join_cgroup_ns || step.op == Op::join_user_ns ||
                         step.op == Op::attach_tree;
      CHECK((step.slot != Slot::count) == needs);
      if (needs) {
        CHECK((wire::kKeptSlots >> static_cast<unsigned>(step.slot) & 1) == 0);
      }
    }
  }
}

TEST_CASE("R7 and R8: what /proc hides and what it makes read-only") {
  const Plan plan = make_plan(specs().front(), host(), limits::kIdBase);
  const auto paths = [&plan](Op op) {
    std::vector<std::string> out;
    for (const Step& step : plan.steps) {
      if (step.op == op) {
        out.push_back(step.text);
      }
    }
    return out;
  };
  const auto files = paths(Op::mask_file);
  for (const char* name : {"kcore", "keys", "timer_list", "sched_debug", "latency_stats",
                           "interrupts", "kmsg", "kallsyms", "cmdline"}) {
    CHECK(std::ranges::find(files, name) != files.end());
  }
  CHECK(paths(Op::mask_dir) == std::vector<std::string>{"acpi", "asound", "scsi"});
  CHECK(paths(Op::proc_readonly) ==
        std::vector<std::string>{"sys", "sysrq-trigger", "irq", "bus", "fs", "pressure"});
}

TEST_CASE("capability sets are those of decision 3, and init has SETPCAP besides") {
  // CHOWN 0, DAC_OVERRIDE 1, FOWNER 3, FSETID 4, KILL 5, SETGID 6, SETUID 7, SETPCAP 8.
  CHECK(workload_capabilities() == 0b1111'1011);
  CHECK(init_capabilities() == 0b1'1111'1011);
  const Plan plan = make_plan(specs().front(), host(), limits::kIdBase);
  CHECK(plan.steps[index_of(plan, Op::drop_bounding)].a == init_capabilities());
  CHECK(plan.steps[last_index_of(plan, Op::set_caps)].a == init_capabilities());
  CHECK(plan.steps[index_of(plan, Op::set_caps)].a == 1ull << 21);  // SYS_ADMIN for setns
}

TEST_CASE("the number of open files is capped by the host") {
  HostFacts facts = host();
  SandboxSpec spec = specs().front();
  spec.open_files = 1'000'000;
  Plan plan = make_plan(spec, facts, limits::kIdBase);
  CHECK(plan.steps[index_of(plan, Op::rlimit_nofile)].b == 20000);
  spec.open_files = 64;
  plan = make_plan(spec, facts, limits::kIdBase);
  CHECK(plan.steps[index_of(plan, Op::rlimit_nofile)].a == 64);
}

TEST_CASE("the opt-out leaves seccomp out and nothing else") {
  SandboxSpec spec = specs().front();
  Plan with = make_plan(spec, host(), limits::kIdBase);
  spec.unconfined_seccomp = true;
  const Plan without = make_plan(spec, host(), limits::kIdBase);
  CHECK_FALSE(without.seccomp);
  std::erase_if(with.steps, [](const Step& s) { return s.op == Op::seccomp; });
  CHECK(with.steps == without.steps);
}
