#pragma once
// The daemon as one object: app.cpp builds and wires every component; nothing else constructs
// services.

#include "base/error.h"
#include "config.h"

namespace talon {

// Runs until SIGTERM or SIGINT, then stops serving and returns what the process should exit
// with. Start-up errors (the lock is held, an address is taken, strict finds something that
// cannot be enforced) come back as the error; nothing is left behind then.
Result<int> serve(const Config& config);

}  // namespace talon
