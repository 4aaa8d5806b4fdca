#include "cli/terminal.h"

#include <sys/ioctl.h>

#include <cerrno>

namespace talon::cli {

WindowSize window_size(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) {
    return {};
  }
  return {.cols = size.ws_col, .rows = size.ws_row};
}

Result<RawTerminal> RawTerminal::enter(int fd) {
  termios before{};
  if (::tcgetattr(fd, &before) != 0) {
    return fail_sys(errno, "read the terminal's mode");
  }
  termios raw = before;
  ::cfmakeraw(&raw);
  // TCSADRAIN and not TCSAFLUSH: what was typed ahead is for the command.
  if (::tcsetattr(fd, TCSADRAIN, &raw) != 0) {
    return fail_sys(errno, "set the terminal's mode");
  }
  return RawTerminal{fd, before};
}

void RawTerminal::restore() {
  if (fd_ >= 0) {
    ::tcsetattr(fd_, TCSADRAIN, &before_);
    fd_ = -1;
  }
}

}  // namespace talon::cli
