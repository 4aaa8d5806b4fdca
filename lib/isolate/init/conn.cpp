// Connections to talond. Sends never block: what a full socket does not take is dropped and the
// connection gets one `resync` when it can take it, after which talond reads the journal.

#include "isolate/init/parse.h"
#include "isolate/init/state.h"

namespace talon::init {
namespace {

constexpr int kMaxFds = 4;

// A descriptor to give up when the table is full: else a connection that cannot be accepted
// would keep the listener readable and the loop spinning.
int spare_fd = -1;

bool send_message(Conn& conn, const wire::Header& head, const void* payload, uint32_t size) {
  IoVec iov[2] = {{&head, sizeof head}, {payload, size}};
  MsgHdr msg = {};
  msg.iov = iov;
  msg.iov_count = size != 0 ? 2 : 1;
  for (;;) {
    long n = sys(__NR_sendmsg, conn.fd, &msg, kMsgNosignal | kMsgDontwait);
    if (n != -EINTR) {
      return n >= 0;
    }
  }
}

void rearm(uint32_t index, uint32_t events) {
  struct epoll_event event = {};
  event.events = events;
  event.data = tag(What::conn, g.conns[index].generation, index);
  sys(__NR_epoll_ctl, g.epoll, EPOLL_CTL_MOD, g.conns[index].fd, &event);
}

bool send_or_note(uint32_t index, wire::Type type, uint64_t request, const void* payload,
                  uint32_t size) {
  Conn& conn = g.conns[index];
  wire::Header head = {wire::kVersion, (uint16_t)type, size, request};
  if (!conn.resync_due && send_message(conn, head, payload, size)) {
    return true;
  }
  if (!conn.resync_due) {
    conn.resync_due = true;
    rearm(index, EPOLLIN | EPOLLOUT);
  }
  return false;
}

void send_resync(uint32_t index) {
  Conn& conn = g.conns[index];
  wire::Header head = {wire::kVersion, (uint16_t)wire::Type::resync, 0, 0};
  if (send_message(conn, head, nullptr, 0)) {
    conn.resync_due = false;
    rearm(index, EPOLLIN);
  }
}

bool hello(uint32_t index, const wire::Header& head, const unsigned char* payload) {
  if ((wire::Type)head.type != wire::Type::hello || head.length != sizeof(wire::Hello)) {
    return false;
  }
  unsigned difference = 0;
  for (size_t i = 0; i < sizeof g.plan->nonce; ++i) {
    difference |= (unsigned)(payload[i] ^ g.plan->nonce[i]);
  }
  if (difference != 0) {
    return false;
  }
  g.conns[index].authed = true;
  wire::HelloOk ok = {wire::kVersion, g.live, g.paused ? 1u : 0u, 0};
  send_or_note(index, wire::Type::hello_ok, head.request, &ok, sizeof ok);
  return true;
}

// Descriptors of one message, at most kMaxFds; the rest the kernel has dropped (MSG_CTRUNC).
int take_fds(const MsgHdr& msg, int* fds) {
  if (msg.control_size < sizeof(CmsgHdr)) {
    return 0;
  }
  const auto* cmsg = static_cast<const CmsgHdr*>(msg.control);
  if (cmsg->level != kSolSocket || cmsg->type != kScmRights || cmsg->size < sizeof(CmsgHdr)) {
    return 0;
  }
  int count = (int)((cmsg->size - sizeof(CmsgHdr)) / sizeof(int));
  memcpy(fds, cmsg + 1, (size_t)count * sizeof(int));
  return count;
}

// One message; false when the connection is to be closed. `more` = there may be another.
bool receive_one(uint32_t index, bool& more) {
  struct {
    CmsgHdr head;
    int fds[kMaxFds];
  } control = {};
  IoVec iov = {g_io, sizeof g_io};
  MsgHdr msg = {};
  msg.iov = &iov;
  msg.iov_count = 1;
  msg.control = &control;
  msg.control_size = sizeof control;
  long n = sys(__NR_recvmsg, g.conns[index].fd, &msg, kMsgDontwait | kMsgCmsgCloexec);
  more = n > 0;
  if (n == -EAGAIN || n == -EINTR) {
    return true;
  }
  if (n <= 0) {
    return false;
  }
  int fds[kMaxFds] = {-1, -1, -1, -1};
  int count = take_fds(msg, fds);
  wire::Header head = {};
  memcpy(&head, g_io, sizeof head);
  bool good = (msg.flags & kMsgTrunc) == 0 && good_header(head, (size_t)n);
  // The kernel drops descriptors that do not fit into our table; that is not the sender's fault.
  bool fds_lost = (msg.flags & kMsgCtrunc) != 0;
  const unsigned char* payload = g_io + sizeof head;
  if (good) {
    good = g.conns[index].authed && (wire::Type)head.type != wire::Type::hello
               ? handle_frame(index, head, payload, fds, fds_lost ? kFdsLost : count)
               : hello(index, head, payload);
  }
  for (int i = 0; i < count; ++i) {
    close(fds[i]);
  }
  return good;
}

}  // namespace

void accept_conns() {
  if (spare_fd < 0) {
    spare_fd = (int)dup_from(0, 3);
  }
  for (;;) {
    long fd = sys(__NR_accept4, g.listener, nullptr, nullptr, O_CLOEXEC | O_NONBLOCK);
    if (fd == -EINTR || fd == -ECONNABORTED) {
      continue;
    }
    if ((fd == -EMFILE || fd == -ENFILE) && spare_fd >= 0) {
      close_fd(spare_fd);
      close((int)sys(__NR_accept4, g.listener, nullptr, nullptr, O_CLOEXEC));
      spare_fd = (int)dup_from(0, 3);
      return;
    }
    if (fd < 0) {
      return;
    }
    uint32_t index = 0;
    while (index < kMaxConns && g.conns[index].fd >= 0) {
      ++index;
    }
    if (index == kMaxConns) {
      close((int)fd);
      continue;
    }
    Conn& conn = g.conns[index];
    conn.fd = (int)fd;
    ++conn.generation;
    conn.authed = false;
    conn.resync_due = false;
    if (!watch(conn.fd, EPOLLIN, What::conn, conn.generation, index)) {
      close_fd(conn.fd);
    }
  }
}

void close_conn(uint32_t index) {
  Conn& conn = g.conns[index];
  close_fd(conn.fd);
  ++conn.generation;
  forget_flow(index);
  bool was_authed = conn.authed;
  conn.authed = false;
  if (!was_authed || (g.plan->flags & wire::kDieWithDaemon) == 0) {
    return;
  }
  for (const Conn& other : g.conns) {
    if (other.fd >= 0 && other.authed) {
      return;
    }
  }
  end_init();
}

void conn_event(uint32_t index, uint32_t events) {
  Conn& conn = g.conns[index];
  uint16_t generation = conn.generation;
  if (conn.fd < 0) {
    return;
  }
  if ((events & EPOLLOUT) != 0 && conn.resync_due) {
    send_resync(index);
  }
  if ((events & ~(uint32_t)EPOLLOUT) == 0) {
    return;
  }
  bool more = true;
  for (int n = 0; n < kFramesPerTurn && more; ++n) {
    if (!receive_one(index, more)) {
      if (conn.generation == generation) {
        close_conn(index);
      }
      return;
    }
  }
}

bool send_to(uint32_t index, uint16_t generation, wire::Type type, uint64_t request,
             const void* payload, uint32_t size) {
  if (index >= kMaxConns) {
    return false;
  }
  Conn& conn = g.conns[index];
  if (conn.fd < 0 || conn.generation != generation || !conn.authed) {
    return false;
  }
  return send_or_note(index, type, request, payload, size);
}

void broadcast(wire::Type type, const void* payload, uint32_t size, uint32_t asker,
               uint16_t generation, uint64_t request) {
  for (uint32_t i = 0; i < kMaxConns; ++i) {
    Conn& conn = g.conns[i];
    if (conn.fd >= 0 && conn.authed) {
      bool asked = i == asker && conn.generation == generation;
      send_or_note(i, type, asked ? request : 0, payload, size);
    }
  }
}

}  // namespace talon::init
