#pragma once
// Named places where a test stops the daemon, as kill -9 would, or lets a step fail. Only builds
// with TALON_FAULTS have them (never the release binary, of which a style test makes sure); in all
// others nothing is left of a point.
//
// The environment says what is to happen. TALON_TEST_FAULT=stop:NAME, fail:NAME (EIO) or full:NAME
// (ENOSPC) at the first pass of that point, with #N behind it at the N-th; with @FILE instead the
// file says so, and may say something else later. TALON_TEST_FAULT_TRACE=FILE gets a line for each
// pass: "NAME", and " fails" behind it where the step can be made to fail.

#include <string_view>

#include "base/error.h"

namespace talon::fault {

#ifdef TALON_FAULTS
// Error io or disk_full when the point is to fail.
Result<> point(std::string_view name);
// Where nothing can fail, or a failure has no meaning.
void stop(std::string_view name);
#else
inline Result<> point(std::string_view) { return {}; }
inline void stop(std::string_view) {}
#endif

}  // namespace talon::fault
