#pragma once
// Signals as readable bytes. Handlers and not a blocked mask: a mask and SIG_IGN would be
// inherited by the spawner and so by every sandbox; handlers end at execve.

#include <optional>

#include "base/error.h"
#include "base/fd.h"

namespace talon::cli {

class Signals {
 public:
  // Catches INT TERM HUP QUIT WINCH, except those that the caller has set to be ignored
  // (nohup), and PIPE (so that a write answers EPIPE). One object a process.
  static Result<Signals> install();
  Signals(Signals&&) noexcept = default;
  Signals& operator=(Signals&&) = delete;
  ~Signals();  // default actions again

  int fd() const { return reader_.get(); }  // readable: next()
  std::optional<int> next();                // nullopt: none waits

 private:
  Signals() = default;
  UniqueFd reader_, writer_;
};

}  // namespace talon::cli
