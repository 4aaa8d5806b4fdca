// Golden plans: what `talond plan` prints for the main kinds of sandbox. A change here is a
// change of isolation and is to be read as one. TALON_UPDATE_GOLDEN=1 rewrites the files.

#include <catch2/catch.hpp>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "isolate/plan.h"

using namespace talon;
using namespace talon::isolate;

namespace {

void check_golden(const std::string& name, const SandboxSpec& spec) {
  HostFacts host;
  host.kernel_major = 6;
  host.kernel_minor = 12;
  host.nofile_hard = 1048576;
  const std::string text = print(make_plan(spec, host, limits::kIdBase));
  const std::string path =
      std::string{TALON_SOURCE_DIR} + "/tests/unit/isolate/golden/plan_" + name + ".txt";
  if (std::getenv("TALON_UPDATE_GOLDEN") != nullptr) {
    std::ofstream{path} << text;
  }
  std::ifstream in{path};
  std::stringstream want;
  want << in.rdbuf();
  CHECK(text == want.str());
}

SandboxSpec base() {
  SandboxSpec spec;
  spec.id = "sbx";
  return spec;
}

}  // namespace

TEST_CASE("golden plan: disk, full proc") { check_golden("disk_full", base()); }

TEST_CASE("golden plan: proc with subset=pid") {
  SandboxSpec spec = base();
  spec.proc = ProcMode::pid_only;
  check_golden("pid_only", spec);
}

TEST_CASE("golden plan: compat32, ends with its daemon") {
  SandboxSpec spec = base();
  spec.compat32 = true;
  spec.on_orphan = OnOrphan::die;
  check_golden("compat32_die", spec);
}

TEST_CASE("golden plan: pivot_root, no filter") {
  SandboxSpec spec = base();
  spec.pivot_root = true;
  spec.unconfined_seccomp = true;
  check_golden("pivot_unconfined", spec);
}
