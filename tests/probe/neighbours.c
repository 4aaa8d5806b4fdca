// What could lead to another sandbox or to the host without a file or an address: keys and names of
// inter-process communication (N6), and descriptors that several may hold (F8).
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "probe.h"

static key_t key_of(int argc, char** argv) {
  return argc > 1 ? (key_t)number_or_exit(argv[1]) : 0x7a10;
}
static long shm(int argc, char** argv) { return shmget(key_of(argc, argv), 0, 0); }
static long msg(int argc, char** argv) { return msgget(key_of(argc, argv), 0); }
static long sem(int argc, char** argv) { return semget(key_of(argc, argv), 0, 0); }
static long shm_by_id(int argc, char** argv) {
  struct shmid_ds facts;
  return shmctl((int)key_of(argc, argv), IPC_STAT, &facts);
}
static long mqueue(int argc, char** argv) { return mq_open(argc > 1 ? argv[1] : "/p", O_RDONLY); }

// Changes mode, owner and times of a descriptor: of /dev/null, which all may share, it must not.
static long change_mode(int argc, char** argv) {
  return fchmod(argc > 1 ? (int)number_or_exit(argv[1]) : 0, 0600);
}
static long change_owner(int argc, char** argv) {
  return fchown(argc > 1 ? (int)number_or_exit(argv[1]) : 0, getuid(), getgid());
}
static long change_times(int argc, char** argv) {
  return futimens(argc > 1 ? (int)number_or_exit(argv[1]) : 0, NULL);
}

// PORT NAME: listens on that port of 127.0.0.1 and at that abstract name until it is ended.
static int serve(int argc, char** argv) {
  if (argc < 3) {
    return 2;
  }
  struct sockaddr_in at = {.sin_family = AF_INET,
                           .sin_port = htons((uint16_t)number_or_exit(argv[1]))};
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  struct sockaddr_un name = {.sun_family = AF_UNIX};
  const size_t length = strnlen(argv[2], sizeof name.sun_path - 1);
  memcpy(name.sun_path + 1, argv[2], length);
  const int tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int local = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(local, (struct sockaddr*)&name,
           (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)) != 0 ||
      listen(local, 8) != 0 || bind(tcp, (struct sockaddr*)&at, sizeof at) != 0 ||
      listen(tcp, 8) != 0) {
    return 1;
  }
  for (;;) {
    pause();
  }
}

const struct command neighbour_commands[] = {
    {"serve", "PORT NAME: listens on 127.0.0.1 and at an abstract name", serve},
    {NULL, NULL, NULL},
};

const struct attempt neighbour_attempts[] = {
    {"shm", "[KEY]: an existing System V segment", shm},
    {"shm-id", "[ID]: facts of a System V segment", shm_by_id},
    {"msg", "[KEY]: an existing System V queue", msg},
    {"sem", "[KEY]: existing System V semaphores", sem},
    {"mqueue", "[NAME]: an existing POSIX queue", mqueue},
    {"fd-mode", "[FD]: its mode", change_mode},
    {"fd-owner", "[FD]: its owner", change_owner},
    {"fd-times", "[FD]: its times", change_times},
    {NULL, NULL, NULL},
};
