#pragma once
// One exec as init reads it: the Exec frame and the strings or sealed memfds that come with it.

#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "isolate/spec.h"
#include "isolate/wire/frames.h"

namespace talon::isolate {

struct ExecRequest {
  wire::Exec frame{};
  std::string strings;        // with kExecInline: what follows the frame
  std::vector<UniqueFd> fds;  // else strings and stdin head; with kExecScript the script
};

// too_large names argv[i] or env NAME above one argument's limit, or all of them together;
// invalid_request names the field of an impossible value (NUL bytes, no argv, a relative cwd).
Result<ExecRequest> pack_exec(const ExecSpec& spec);

}  // namespace talon::isolate
