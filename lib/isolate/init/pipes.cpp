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

void act_as(uint32_t uid, uint32_t gid) {
  sys(__NR_setfsgid, gid);
  sys(__NR_setfsuid, uid);
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

int watch_end(const Exec& e, int fd, What what) {
  return watch(fd, EPOLLIN, what, e.generation, index_of(e)) ? 0 : ENOMEM;
}

void drop_output(Exec& e) {
  unwatch_close(e.out_fd);
  unwatch_close(e.err_fd);
  close_fd(e.ends.out);
  close_fd(e.ends.err);
}

int stdin_pipe(Exec& e, const User& user) {
  act_as(user.uid, user.gid);
  int error = one_pipe(e.ends.in, e.in_fd);
  act_as_init();
  if (error == 0) {
    set_nonblock(e.in_fd);
  }
  return error;
}

// The size is set and UTF-8 editing on before the first byte can run.
int terminal(Exec& e, const User& user) {
  act_as(user.uid, user.gid);
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
  act_as(user.uid, user.gid);
  long peer = sys(__NR_ioctl, master, kTiocgptpeer, O_RDWR | O_NOCTTY | O_CLOEXEC);
  act_as_init();
  if (peer < 0) {
    return (int)-peer;
  }
  e.ends.in = e.ends.out = e.ends.err = (int)peer;
  long input = dup_from((int)master, 3);
  if (input < 0) {
    return (int)-input;
  }
  e.in_fd = (int)input;
  return watch_end(e, e.out_fd, What::out);
}

}  // namespace

int make_status(Exec& e) {
  if (e.status_fd >= 0) {
    return 0;
  }
  int fds[2];
  long err = sys(__NR_pipe2, fds, O_CLOEXEC | O_NONBLOCK);
  if (err < 0) {
    return (int)-err;
  }
  e.status_fd = fds[0];
  e.ends.status = fds[1];
  int error = watch_end(e, e.status_fd, What::status);
  if (error != 0) {
    close_fd(e.status_fd);
    close_fd(e.ends.status);
  }
  return error;
}

int make_output(Exec& e, uint32_t uid, uint32_t gid) {
  if (e.out_fd >= 0 && e.pipe_uid == uid && e.pipe_gid == gid) {
    return 0;
  }
  drop_output(e);
  e.pipe_uid = uid;
  e.pipe_gid = gid;
  act_as(uid, gid);
  int error = one_pipe(e.out_fd, e.ends.out);
  error = error != 0 ? error : one_pipe(e.err_fd, e.ends.err);
  act_as_init();
  if (error == 0) {
    set_nonblock(e.out_fd);
    set_nonblock(e.err_fd);
    error = watch_end(e, e.out_fd, What::out);
    error = error != 0 ? error : watch_end(e, e.err_fd, What::err);
  }
  if (error != 0) {
    drop_output(e);
  }
  return error;
}

int make_pipes(Exec& e, const User& user, bool want_stdin) {
  int error = make_status(e);
  if (error != 0) {
    return error;
  }
  if (e.tty) {
    drop_output(e);
    return terminal(e, user);
  }
  error = make_output(e, user.uid, user.gid);
  return error == 0 && want_stdin ? stdin_pipe(e, user) : error;
}

void close_child_ends(Exec& e) {
  // A terminal: all three are one descriptor. (Not yet one, if the exec failed before it was made.)
  if (e.ends.in > 0 && e.ends.in == e.ends.out) {
    e.ends.out = e.ends.err = -1;
  }
  if (e.ends.in > 0) {
    close(e.ends.in);
  }
  close_fd(e.ends.out);
  close_fd(e.ends.err);
  close_fd(e.ends.status);
  e.ends.in = 0;
}

}  // namespace talon::init
