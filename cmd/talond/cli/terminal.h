#pragma once
// The caller's terminal in raw mode while a PTY inside is its other end.

#include <termios.h>

#include <cstdint>
#include <optional>

#include "base/error.h"

namespace talon::cli {

struct WindowSize {
  std::uint16_t cols = 80;
  std::uint16_t rows = 24;
};

// Of the terminal at `fd`; 80x24 if it does not know.
WindowSize window_size(int fd);

class RawTerminal {
 public:
  static Result<RawTerminal> enter(int fd);
  RawTerminal(RawTerminal&& other) noexcept : fd_(other.fd_), before_(other.before_) {
    other.fd_ = -1;
  }
  RawTerminal& operator=(RawTerminal&&) = delete;
  ~RawTerminal() { restore(); }
  void restore();

 private:
  RawTerminal(int fd, const termios& before) : fd_(fd), before_(before) {}
  int fd_;
  termios before_;
};

}  // namespace talon::cli
