#include "isolate/host_probe.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/dqblk_xfs.h>
#include <linux/fs.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/quota.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "base/fd.h"
#include "isolate/kernel/mount.h"

namespace talon::isolate::probe {

namespace {

// Runs `check` in a child that has namespaces of its own (CLONE_NEW*); the errno it returns.
int in_child(unsigned long namespaces, int (*check)()) {
  const long child = syscall(SYS_clone, namespaces | SIGCHLD, 0, 0, 0, 0);
  if (child < 0) {
    return errno;
  }
  if (child == 0) {
    _exit(check());
  }
  int status = 0;
  while (waitpid(static_cast<pid_t>(child), &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
}

// A netlink message under construction. Attributes nest by open() and close().
class Batch {
 public:
  void message(std::uint16_t type, std::uint16_t flags, std::uint8_t family, std::uint16_t id) {
    end();
    message_ = size_;
    nlmsghdr head{};
    head.nlmsg_type = type;
    head.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
    head.nlmsg_seq = ++sequence_;
    put(&head, sizeof(head));
    const nfgenmsg generic{family, NFNETLINK_V0, htons(id)};
    put(&generic, sizeof(generic));
  }
  std::size_t open(std::uint16_t type) {
    const std::size_t at = size_;
    const nlattr head{0, static_cast<std::uint16_t>(type | NLA_F_NESTED)};
    put(&head, sizeof(head));
    return at;
  }
  void close(std::size_t at) { set_length(at); }
  void bytes(std::uint16_t type, const void* data, std::size_t size) {
    const std::size_t at = size_;
    const nlattr head{0, type};
    put(&head, sizeof(head));
    put(data, size);
    set_length(at);
    size_ = NLMSG_ALIGN(size_);
  }
  void text(std::uint16_t type, const char* value) { bytes(type, value, strlen(value) + 1); }
  void number(std::uint16_t type, std::uint32_t value) {
    const std::uint32_t big = htonl(value);
    bytes(type, &big, sizeof(big));
  }
  void end() {
    if (size_ > message_) {
      const auto length = static_cast<std::uint32_t>(size_ - message_);
      memcpy(buffer_ + message_, &length, sizeof(length));
    }
  }
  const char* data() const { return buffer_; }
  std::size_t size() const { return size_; }

 private:
  void put(const void* data, std::size_t size) {
    memcpy(buffer_ + size_, data, size);
    size_ = NLMSG_ALIGN(size_ + size);
    last_ = size;
  }
  // From the attribute's head to here, without the padding of what came last.
  void set_length(std::size_t at) {
    const std::size_t padding = NLMSG_ALIGN(last_) - last_;
    const auto length = static_cast<std::uint16_t>(size_ - at - padding);
    memcpy(buffer_ + at, &length, sizeof(length));
  }

  alignas(nlmsghdr) char buffer_[1024] = {};
  std::size_t size_ = 0;
  std::size_t message_ = 0;
  std::size_t last_ = 0;
  std::uint32_t sequence_ = 0;
};

constexpr std::uint16_t nft(int message) {
  return static_cast<std::uint16_t>(NFNL_SUBSYS_NFTABLES << 8 | message);
}

void write_rule(Batch& batch) {
  batch.message(nft(NFT_MSG_NEWRULE), NLM_F_CREATE | NLM_F_APPEND | NLM_F_ACK, NFPROTO_IPV4, 0);
  batch.text(NFTA_RULE_TABLE, "t");
  batch.text(NFTA_RULE_CHAIN, "c");
  const std::size_t list = batch.open(NFTA_RULE_EXPRESSIONS);
  // The register that tproxy reads the port from has to be written first.
  std::size_t element = batch.open(NFTA_LIST_ELEM);
  batch.text(NFTA_EXPR_NAME, "immediate");
  std::size_t data = batch.open(NFTA_EXPR_DATA);
  batch.number(NFTA_IMMEDIATE_DREG, NFT_REG_1);
  const std::size_t value = batch.open(NFTA_IMMEDIATE_DATA);
  const std::uint16_t port = htons(1);
  batch.bytes(NFTA_DATA_VALUE, &port, sizeof(port));
  batch.close(value);
  batch.close(data);
  batch.close(element);
  element = batch.open(NFTA_LIST_ELEM);
  batch.text(NFTA_EXPR_NAME, "tproxy");
  data = batch.open(NFTA_EXPR_DATA);
  batch.number(NFTA_TPROXY_FAMILY, NFPROTO_IPV4);
  batch.number(NFTA_TPROXY_REG_PORT, NFT_REG_1);
  batch.close(data);
  batch.close(element);
  batch.close(list);
}

int make_tproxy_rule() {
  const int sock = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
  if (sock < 0) {
    return errno;
  }
  Batch batch;
  batch.message(NFNL_MSG_BATCH_BEGIN, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
  batch.message(nft(NFT_MSG_NEWTABLE), NLM_F_CREATE | NLM_F_ACK, NFPROTO_IPV4, 0);
  batch.text(NFTA_TABLE_NAME, "t");
  batch.message(nft(NFT_MSG_NEWCHAIN), NLM_F_CREATE | NLM_F_ACK, NFPROTO_IPV4, 0);
  batch.text(NFTA_CHAIN_TABLE, "t");
  batch.text(NFTA_CHAIN_NAME, "c");
  batch.text(NFTA_CHAIN_TYPE, "filter");
  const std::size_t hook = batch.open(NFTA_CHAIN_HOOK);
  batch.number(NFTA_HOOK_HOOKNUM, NF_INET_PRE_ROUTING);
  batch.number(NFTA_HOOK_PRIORITY, static_cast<std::uint32_t>(-150));
  batch.close(hook);
  write_rule(batch);
  batch.message(NFNL_MSG_BATCH_END, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
  batch.end();
  if (send(sock, batch.data(), batch.size(), 0) < 0) {
    return errno;
  }
  // An answer for each of the three, the first error ends the batch. A kernel that says nothing
  // (no nf_tables) must not be waited for.
  const timeval patience{.tv_sec = 2, .tv_usec = 0};
  setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  for (int answers = 0; answers < 3;) {
    alignas(nlmsghdr) char buffer[8192];
    const ssize_t got = recv(sock, buffer, sizeof(buffer), 0);
    if (got < 0) {
      return errno;
    }
    const auto size = static_cast<std::size_t>(got);
    nlmsghdr head{};
    for (std::size_t at = 0; at + sizeof(head) + sizeof(int) <= size;
         at += NLMSG_ALIGN(head.nlmsg_len)) {
      memcpy(&head, buffer + at, sizeof(head));
      if (head.nlmsg_len < sizeof(head)) {
        return EPROTO;
      }
      if (head.nlmsg_type != NLMSG_ERROR) {
        continue;
      }
      int error = 0;
      memcpy(&error, buffer + at + sizeof(head), sizeof(error));
      if (error != 0) {
        return -error;
      }
      ++answers;
    }
  }
  return 0;
}

}  // namespace

int tproxy() { return in_child(CLONE_NEWNET, make_tproxy_rule); }

int idmapped_mount(int dir) {
  auto mount = kernel::clone_mount(dir);
  if (!mount) {
    return mount.error().sys != 0 ? mount.error().sys : EIO;
  }
  // It lends its user namespace and waits for its end.
  const long child = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
  if (child < 0) {
    return errno;
  }
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
      pause();
    }
  }
  // A mount cannot be mapped by a namespace that maps nothing.
  char path[64];
  for (const char* map : {"uid_map", "gid_map"}) {
    snprintf(path, sizeof(path), "/proc/%ld/%s", child, map);
    const UniqueFd file{open(path, O_WRONLY | O_CLOEXEC)};
    [[maybe_unused]] const bool written = file && write_all(file.get(), "0 0 1\n");
  }
  snprintf(path, sizeof(path), "/proc/%ld/ns/user", child);
  const UniqueFd user{open(path, O_RDONLY | O_CLOEXEC)};
  int error = 0;
  mount_attr change{};
  change.attr_set = MOUNT_ATTR_IDMAP;
  change.userns_fd = static_cast<std::uint64_t>(user.get());
  if (!user ||
      syscall(SYS_mount_setattr, mount->get(), "", AT_EMPTY_PATH, &change, sizeof(change)) != 0) {
    error = errno;
  }
  kill(static_cast<pid_t>(child), SIGKILL);  // our child and not reaped, so the pid is its own
  while (waitpid(static_cast<pid_t>(child), nullptr, 0) < 0 && errno == EINTR) {
  }
  return error;
}

bool reflink(int dir) {
  const UniqueFd from{openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)};
  const UniqueFd to{openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)};
  char block[4096] = {'x'};
  return from && to && write(from.get(), block, sizeof(block)) == sizeof(block) &&
         ioctl(to.get(), FICLONE, from.get()) == 0;
}

bool project_quota(int dir) {
  std::uint32_t format = 0;
  if (syscall(SYS_quotactl_fd, dir, QCMD(Q_GETFMT, PRJQUOTA), 0, &format) == 0) {
    return true;
  }
  fs_quota_statv state{};  // XFS answers in its own words
  state.qs_version = FS_QSTATV_VERSION1;
  return syscall(SYS_quotactl_fd, dir, QCMD(Q_XGETQSTATV, PRJQUOTA), 0, &state) == 0 &&
         (state.qs_flags & FS_QUOTA_PDQ_ENFD) != 0;
}

}  // namespace talon::isolate::probe
