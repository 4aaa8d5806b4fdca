#include "base/error.h"

#include <catch2/catch.hpp>
#include <cerrno>

using namespace talon;

TEST_CASE("errors keep the innermost reason and gain context outside-in") {
  auto inner = fail_sys(ENOSPC, "write x");
  CHECK(inner.error().code == Code::disk_full);
  CHECK(fail_sys(EDQUOT, "w").error().code == Code::disk_full);
  CHECK(fail_sys(ENOENT, "w").error().code == Code::io);
  const Error outer = std::move(inner).error().in("create sandbox");
  CHECK(outer.message == "create sandbox: write x: No space left on device");
  CHECK(outer.sys == ENOSPC);
  const auto field = bad_field("resources.memory", "too small");
  CHECK(field.error().field == "resources.memory");
  CHECK(to_string(field.error().code) == "invalid_request");
}
