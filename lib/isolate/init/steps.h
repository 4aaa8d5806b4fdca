#pragma once
// The plan: read from its memfd, checked, and run step by step while talon-init is still root
// of the machine. Everything that happens here happens before any workload exists.

#include <stdint.h>

#include "isolate/wire/plan_format.h"

namespace talon::init {

inline int slot_fd(uint32_t slot) { return wire::kFdBase + (int)slot; }
inline int slot_fd(wire::Slot slot) { return slot_fd((uint32_t)slot); }

struct StepsResult {
  const wire::PlanHeader* plan = nullptr;  // stays mapped for the life of init
  uint32_t step = 0;                       // that failed
  uint32_t op = 0;
  int error = 0;  // errno, 0 = all done
  wire::Ready ready = {};
};

// Maps the plan at kPlanFd and runs it. A plan that does not check is EINVAL at step 2^32 - 1.
void run_plan(StepsResult& result);

}  // namespace talon::init
