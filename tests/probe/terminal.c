// Terminals (S8, F8): what must be refused is pushing input into one, what must work is having one.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#include "probe.h"

#define UNUSED (void)argc, (void)argv

// A terminal of our own, so that the answer is the filter's and not ENOTTY.
static int slave(void) {
  const int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) {
    return -1;
  }
  const char* name = ptsname(master);
  return name == NULL ? -1 : open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
}

static long pty(int argc, char** argv) {
  UNUSED;
  return slave();
}
static long tiocsti(int argc, char** argv) {
  UNUSED;
  const int tty = slave();
  return tty < 0 ? -1 : ioctl(tty, TIOCSTI, "x");
}
// The kernel looks at 32 bits of the request; a filter that compares 64 is passed by
// (CVE-2019-10063).
static long tiocsti_wide(int argc, char** argv) {
  UNUSED;
  const int tty = slave();
  return tty < 0 ? -1 : syscall(SYS_ioctl, tty, 0x7f00000000000000ul | TIOCSTI, "x");
}
static long tioclinux(int argc, char** argv) {
  UNUSED;
  char mode = 2;
  const int tty = slave();
  return tty < 0 ? -1 : ioctl(tty, TIOCLINUX, &mode);
}
static long tiocsetd(int argc, char** argv) {
  UNUSED;
  const int discipline = 3;  // N_PPP
  const int tty = slave();
  return tty < 0 ? -1 : ioctl(tty, TIOCSETD, &discipline);
}
static long tiocsctty(int argc, char** argv) {
  UNUSED;
  const int tty = slave();
  if (tty < 0 || setsid() < 0) {
    return -1;
  }
  return ioctl(tty, TIOCSCTTY, 0);
}
static long console(int argc, char** argv) {
  UNUSED;
  return open("/dev/console", O_RDWR | O_NOCTTY | O_CLOEXEC);
}
static long own_tty(int argc, char** argv) {
  UNUSED;
  return open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
}
static long window(int argc, char** argv) {
  UNUSED;
  struct winsize size;
  return ioctl(STDIN_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col * 1000 + size.ws_row : -1;
}

const struct attempt terminal_attempts[] = {
    {"pty", "a new terminal, which must work", pty},
    {"ioctl-tiocsti", "TIOCSTI", tiocsti},
    {"ioctl-tiocsti-wide", "TIOCSTI with bits above 32 set", tiocsti_wide},
    {"ioctl-tioclinux", "TIOCLINUX", tioclinux},
    {"ioctl-tiocsetd", "TIOCSETD", tiocsetd},
    {"ioctl-tiocsctty", "a controlling terminal of its own, which must work", tiocsctty},
    {"console", "/dev/console", console},
    {"tty", "/dev/tty", own_tty},
    {"window", "stdin's size as columns*1000+rows", window},
    {NULL, NULL, NULL},
};
