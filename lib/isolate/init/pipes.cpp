// The ends of an exec's pipes or terminal. They are made under the fsuid and fsgid of the exec's
// user so that the user owns them: /dev/stdout can be opened again, by name, also after su.

#include <asm/termbits.h>

#include "isolate/init/state.h"

namespace talon::init {
namespace {

constexpr unsigned long kTiocgptpeer = 0x5441;  // ioctl_tty(2)
constexpr unsigned long kTiocsptlck = 0x40045431;
constexpr unsigned long kTiocswinsz = 0x5414;
constexpr unsigned long kTcgets = 0x5401;
constexpr unsigned long kTcsets = 0x5402;
constexpr unsigned long kPtmxDevice = 0x502;  // makedev(5, 2)

void act_as(const User& user) {
  sys(__NR_setfsgid, user.gid);
  sys(__NR_setfsuid, user.uid);
}

// init's own id is in no map, so setfsuid cannot name it; setreuid(-1, -1) makes fsuid = euid.
void act_as_init() {
  sys(__NR_setreuid, -1, -1);
  sys(__NR_setregid, -1, -1);
  set_caps(g.init_caps, g.init_caps, 0);
}

long set_nonblock(int fd) { return sys(__NR_fcntl, fd, F_SETFL, O_NONBLOCK); }

int one_pipe(int& read_end, int& write_end) {
  int fds[2];
  long err = sys(__NR_pipe2, fds, O_CLOEXEC);
  if (err < 0) {
    return (int)-err;
  }
  read_end = fds[0];
  write_end = fds[1];
  sys(__NR_fchmod, fds[0], 0666);
  return 0;
}

int status_pipe(Exec& e, ChildContext& child) {
  int fds[2];
  long err = sys(__NR_pipe2, fds, O_CLOEXEC | O_NONBLOCK);
  if (err < 0) {
    return (int)-err;
  }
  e.status_fd = fds[0];
  child.status = fds[1];
  return 0;
}

int plain_pipes(Exec& e, const User& user, bool want_stdin, ChildContext& child) {
  act_as(user);
  int error = one_pipe(e.out_fd, child.out);
  error = error != 0 ? error : one_pipe(e.err_fd, child.err);
  if (error == 0 && want_stdin) {
    error = one_pipe(child.in, e.in_fd);
  }
  act_as_init();
  if (error != 0) {
    return error;
  }
  set_nonblock(e.out_fd);
  set_nonblock(e.err_fd);
  if (e.in_fd >= 0) {
    set_nonblock(e.in_fd);
  } else {
    long null = dup_from(0, 3);
    if (null < 0) {
      return (int)-null;
    }
    child.in = (int)null;
  }
  return 0;
}

// The size is set and UTF-8 editing on before the first byte can run.
int terminal(Exec& e, const User& user, ChildContext& child) {
  act_as(user);
  long master = openat(kAtFdcwd, "/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW);
  act_as_init();
  if (master < 0) {
    return (int)-master;
  }
  e.out_fd = (int)master;
  struct stat st = {};
  if (sys(__NR_fstat, master, &st) < 0 || (st.st_mode & kModeType) != kModeChar ||
      st.st_rdev != kPtmxDevice) {
    return ENODEV;
  }
  int unlocked = 0;
  long err = sys(__NR_ioctl, master, kTiocsptlck, &unlocked);
  uint16_t size[4] = {e.rows, e.cols, 0, 0};
  err = err < 0 ? err : sys(__NR_ioctl, master, kTiocswinsz, size);
  struct termios mode;
  if (err >= 0 && sys(__NR_ioctl, master, kTcgets, &mode) >= 0) {
    mode.c_iflag |= IUTF8;
    sys(__NR_ioctl, master, kTcsets, &mode);
  }
  if (err < 0) {
    return (int)-err;
  }
  act_as(user);
  long peer = sys(__NR_ioctl, master, kTiocgptpeer, O_RDWR | O_NOCTTY | O_CLOEXEC);
  act_as_init();
  if (peer < 0) {
    return (int)-peer;
  }
  child.in = (int)peer;
  child.out = (int)peer;
  child.err = (int)peer;
  long input = dup_from((int)master, 3);
  if (input < 0) {
    return (int)-input;
  }
  e.in_fd = (int)input;
  return 0;
}

}  // namespace

int make_pipes(Exec& e, const User& user, bool want_stdin, ChildContext& child) {
  int error = status_pipe(e, child);
  if (error != 0) {
    return error;
  }
  return e.tty ? terminal(e, user, child) : plain_pipes(e, user, want_stdin, child);
}

void close_child_ends(ChildContext& child) {
  close(child.in);
  if (!child.tty) {
    close(child.out);
    close(child.err);
  }
  close(child.status);
}

}  // namespace talon::init
