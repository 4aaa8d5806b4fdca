// Socket families (S10, N5). "socket FAMILY [TYPE] [PROTOCOL]" by name or number.
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "probe.h"

#define UNUSED (void)argc, (void)argv

static const struct {
  const char* name;
  int family;
  int type;
} kFamilies[] = {{"unix", AF_UNIX, SOCK_STREAM},   {"inet", AF_INET, SOCK_STREAM},
                 {"inet6", AF_INET6, SOCK_STREAM}, {"netlink", AF_NETLINK, SOCK_RAW},
                 {"packet", AF_PACKET, SOCK_RAW},  {"alg", AF_ALG, SOCK_SEQPACKET},
                 {"vsock", AF_VSOCK, SOCK_STREAM}, {"bluetooth", AF_BLUETOOTH, SOCK_RAW},
                 {"can", AF_CAN, SOCK_RAW},        {"xdp", AF_XDP, SOCK_RAW},
                 {"rds", AF_RDS, SOCK_SEQPACKET},  {"tipc", AF_TIPC, SOCK_STREAM},
                 {"kcm", AF_KCM, SOCK_DGRAM},      {"smc", AF_SMC, SOCK_STREAM},
                 {"raw", AF_INET, SOCK_RAW},       {"nfc", AF_NFC, SOCK_RAW}};

static long try_socket(int argc, char** argv) {
  if (argc < 2) {
    errno = EINVAL;
    return -1;
  }
  int family = -1;
  int type = SOCK_STREAM;
  for (size_t i = 0; i < sizeof kFamilies / sizeof *kFamilies; ++i) {
    if (strcmp(argv[1], kFamilies[i].name) == 0) {
      family = kFamilies[i].family;
      type = kFamilies[i].type;
    }
  }
  if (family < 0) {
    family = (int)number_or_exit(argv[1]);
  }
  type = argc > 2 ? (int)number_or_exit(argv[2]) : type;
  int protocol = argc > 3 ? (int)number_or_exit(argv[3]) : 0;
  if (argc <= 3 && strcmp(argv[1], "raw") == 0) {
    protocol = IPPROTO_ICMP;
  }
  return socket(family, type | SOCK_CLOEXEC, protocol);
}

// socketpair makes sockets as well: "socketpair FAMILY [TYPE]".
static long try_socketpair(int argc, char** argv) {
  int family = argc > 1 ? -1 : AF_UNIX;
  int type = SOCK_STREAM;
  int pair[2];
  for (size_t i = 0; argc > 1 && i < sizeof kFamilies / sizeof *kFamilies; ++i) {
    if (strcmp(argv[1], kFamilies[i].name) == 0) {
      family = kFamilies[i].family;
      type = kFamilies[i].type;
    }
  }
  if (family < 0) {
    family = (int)number_or_exit(argv[1]);
  }
  return socketpair(family, (argc > 2 ? (int)number_or_exit(argv[2]) : type) | SOCK_CLOEXEC, 0, pair);
}

#define NETLINK(function, protocol)                               \
  static long function(int argc, char** argv) {                   \
    UNUSED;                                                       \
    return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol); \
  }
NETLINK(netlink_route, NETLINK_ROUTE)
NETLINK(netlink_audit, NETLINK_AUDIT)
NETLINK(netlink_netfilter, NETLINK_NETFILTER)
NETLINK(netlink_uevent, NETLINK_KOBJECT_UEVENT)
NETLINK(netlink_diag, NETLINK_SOCK_DIAG)

static long packet(int argc, char** argv) {
  UNUSED;
  return socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
}
static long vsock(int argc, char** argv) {
  UNUSED;
  return socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
}
static long alg(int argc, char** argv) {
  UNUSED;
  return socket(AF_ALG, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
}
static long raw_icmp(int argc, char** argv) {
  UNUSED;
  return socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP);
}

// A second address for lo: a change that route netlink must refuse.
static long route_change(int argc, char** argv) {
  UNUSED;
  struct {
    struct nlmsghdr head;
    struct ifinfomsg link;
    char answer[512];
  } m;
  memset(&m, 0, sizeof m);
  m.head.nlmsg_len = NLMSG_LENGTH(sizeof m.link);
  m.head.nlmsg_type = RTM_NEWLINK;
  m.head.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
  m.link.ifi_index = 1;
  m.link.ifi_change = 1;  // IFF_UP, to down
  const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (fd < 0 || send(fd, &m, m.head.nlmsg_len, 0) < 0 || recv(fd, &m, sizeof m, 0) < 0) {
    return -1;
  }
  const struct nlmsgerr* answer = NLMSG_DATA(&m.head);
  errno = -answer->error;
  return answer->error == 0 ? 0 : -1;
}

// "connect ADDRESS PORT": TCP to a literal address. "connect-abstract NAME": an abstract socket.
static long try_connect(int argc, char** argv) {
  if (argc < 3) {
    errno = EINVAL;
    return -1;
  }
  struct sockaddr_in to = {.sin_family = AF_INET,
                           .sin_port = htons((uint16_t)number_or_exit(argv[2]))};
  struct sockaddr_in6 to6 = {.sin6_family = AF_INET6, .sin6_port = to.sin_port};
  const bool six = inet_pton(AF_INET6, argv[1], &to6.sin6_addr) == 1;
  if (!six && inet_pton(AF_INET, argv[1], &to.sin_addr) != 1) {
    errno = EINVAL;
    return -1;
  }
  const int fd = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    return -1;
  }
  return six ? connect(fd, (struct sockaddr*)&to6, sizeof to6)
             : connect(fd, (struct sockaddr*)&to, sizeof to);
}
static long connect_abstract(int argc, char** argv) {
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  const char* name = argc > 1 ? argv[1] : "probe";
  const size_t length = strnlen(name, sizeof to.sun_path - 1);
  memcpy(to.sun_path + 1, name, length);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  return fd < 0 ? -1
                : connect(fd, (struct sockaddr*)&to,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length));
}
// Ports below 1024 are open inside (decision 3).
static long bind_low(int argc, char** argv) {
  UNUSED;
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(80)};
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  return fd < 0 ? -1 : bind(fd, (struct sockaddr*)&at, sizeof at);
}

const struct attempt socket_attempts[] = {
    {"socket", "FAMILY [TYPE] [PROTOCOL]: socket", try_socket},
    {"socketpair", "FAMILY [TYPE]: socketpair", try_socketpair},
    {"netlink-route", "AF_NETLINK, route", netlink_route},
    {"netlink-audit", "AF_NETLINK, audit", netlink_audit},
    {"netlink-netfilter", "AF_NETLINK, netfilter", netlink_netfilter},
    {"netlink-uevent", "AF_NETLINK, kobject_uevent", netlink_uevent},
    {"netlink-diag", "AF_NETLINK, sock_diag", netlink_diag},
    {"route-change", "lo down, by netlink", route_change},
    {"packet", "AF_PACKET", packet},
    {"vsock", "AF_VSOCK", vsock},
    {"alg", "AF_ALG", alg},
    {"raw-icmp", "SOCK_RAW", raw_icmp},
    {"connect", "ADDRESS PORT: TCP", try_connect},
    {"connect-abstract", "NAME: an abstract unix socket", connect_abstract},
    {"bind-low", "127.0.0.1 port 80", bind_low},
    {NULL, NULL, NULL},
};
