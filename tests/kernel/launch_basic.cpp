// A sandbox is made, runs a program, ends and leaves nothing.

#include <catch2/catch.hpp>

#include <chrono>

#include "kernel/sandbox_support.h"

using namespace talon;
using namespace talon::testing;

TEST_CASE("a sandbox runs a program and its output comes back") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  Box box = lab.create();
  const Ran ran = lab.run(box, {"/bin/echo", "hello"});
  CHECK(ran.err == "");
  CHECK(ran.out == "hello\n");
  CHECK(ran.code == 0);
  for (const auto& step : box->step_times()) {
    UNSCOPED_INFO(step.step << " " << step.ns / 1000 << " us");
  }
  CHECK(box->step_times().size() > 10);
  lab.destroy(box);
}
