#include "base/fd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/fault.h"

namespace talon {

namespace {

// SCM_MAX_FD of Linux: the kernel refuses more in one message (unix(7)).
constexpr std::size_t kMaxMessageFds = 253;
constexpr std::size_t kControlBytes = CMSG_SPACE(kMaxMessageFds * sizeof(int));

template <class Call>
auto restart(Call call) {
  for (;;) {
    const auto result = call();
    if (result != -1 || errno != EINTR) {
      return result;
    }
  }
}

// "dir/name" -> "dir"; "name" -> "."; "/name" -> "/".
std::string parent_of(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) {
    return ".";
  }
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

void UniqueFd::reset(int fd) {
  if (fd_ >= 0) {
    // Not restarted on EINTR: Linux has released the number already (close(2), NOTES).
    const int saved = errno;
    ::close(fd_);
    errno = saved;
  }
  fd_ = fd;
}

Result<UniqueFd> UniqueFd::dup() const {
  const int copy = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) {
    return fail_sys(errno, "duplicate a descriptor");
  }
  return UniqueFd{copy};
}

Result<UniqueFd> sealed_memfd(const char* name, std::span<const std::byte> content) {
  // MFD_EXEC (6.3): said explicitly, because vm.memfd_noexec may make "not executable" the
  // default. Older kernels refuse the flag with EINVAL and know no such default.
  constexpr unsigned kExec = 0x0010U;
  int raw = ::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | kExec);
  if (raw < 0 && errno == EINVAL) {
    raw = ::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  }
  if (raw < 0) {
    return fail_sys(errno, "memfd_create");
  }
  UniqueFd fd{raw};
  TALON_CHECK(write_all(
      fd.get(), std::string_view{reinterpret_cast<const char*>(content.data()), content.size()}));
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) !=
      0) {
    return fail_sys(errno, "seal a memfd");
  }
  if (::lseek(fd.get(), 0, SEEK_SET) != 0) {
    return fail_sys(errno, "rewind a memfd");
  }
  return fd;
}

Result<UniqueFd> open_at(int dir, const std::string& path, int flags, unsigned mode) {
  const int raw = static_cast<int>(
      restart([&] { return ::openat(dir, path.c_str(), flags | O_CLOEXEC, mode); }));
  if (raw < 0) {
    return fail_sys(errno, "open " + path);
  }
  return UniqueFd{raw};
}

Result<std::string> read_file_at(int dir, const std::string& path, std::size_t limit) {
  TALON_TRY(fd, open_at(dir, path, O_RDONLY | O_NOCTTY));
  // st_size is not asked: files of proc, sysfs and cgroupfs say 0 or 4096 whatever they hold.
  std::string out;
  std::array<char, 8192> chunk;
  for (;;) {
    const ssize_t n = restart([&] { return ::read(fd.get(), chunk.data(), chunk.size()); });
    if (n < 0) {
      return fail_sys(errno, "read " + path);
    }
    if (n == 0) {
      return out;
    }
    if (out.size() + static_cast<std::size_t>(n) > limit) {
      return fail(Code::too_large,
                  "read " + path + ": larger than " + std::to_string(limit) + " bytes");
    }
    out.append(chunk.data(), static_cast<std::size_t>(n));
  }
}

Result<> write_file_at(int dir, const std::string& path, std::string_view data) {
  TALON_TRY(fd, open_at(dir, path, O_WRONLY | O_NOCTTY));
  if (auto written = write_all(fd.get(), data); !written) {
    return std::unexpected(std::move(written).error().in(path));
  }
  return {};
}

Result<> replace_file_at(int dir, const std::string& path, std::string_view data, unsigned mode) {
  const std::string temp = path + ".tmp";
  // One name, so that what a killed writer left is taken away by the next one.
  if (::unlinkat(dir, temp.c_str(), 0) != 0 && errno != ENOENT) {
    return fail_sys(errno, "remove " + temp);
  }
  {
    TALON_TRY(fd, open_at(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode));
    auto done = write_all(fd.get(), data);
    // fchmod: the caller's mode is exact whatever the umask is.
    if (done && ::fchmod(fd.get(), mode) != 0) {
      done = fail_sys(errno, "set the mode");
    }
    if (done) {
      done = fault::point("file.fsync");
    }
    if (done && ::fsync(fd.get()) != 0) {
      done = fail_sys(errno, "fsync");
    }
    if (done) {
      done = fault::point("file.rename");
    }
    if (done && ::renameat(dir, temp.c_str(), dir, path.c_str()) != 0) {
      done = fail_sys(errno, "rename");
    }
    if (!done) {
      ::unlinkat(dir, temp.c_str(), 0);
      return std::unexpected(std::move(done).error().in("write " + path));
    }
  }
  TALON_CHECK(fault::point("file.fsync_directory"));
  // The rename is durable only once its directory is (fsync(2), DESCRIPTION).
  TALON_TRY(parent, open_at(dir, parent_of(path), O_RDONLY | O_DIRECTORY));
  if (::fsync(parent.get()) != 0) {
    return fail_sys(errno, "fsync the directory of " + path);
  }
  return {};
}

Result<> write_all(int fd, std::string_view data) {
  while (!data.empty()) {
    const ssize_t n = restart([&] { return ::write(fd, data.data(), data.size()); });
    if (n < 0) {
      return fail_sys(errno, "write");
    }
    data.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

Result<> send_message(int sock, std::span<const std::byte> bytes, std::span<const int> fds) {
  if (fds.size() > kMaxMessageFds) {
    return fail(Code::too_many, "send a message: more than 253 descriptors");
  }
  iovec part{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, kControlBytes> control;
  if (!fds.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* item = CMSG_FIRSTHDR(&header);
    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type = SCM_RIGHTS;
    item->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(item), fds.data(), fds.size() * sizeof(int));
  }
  const ssize_t n = restart([&] { return ::sendmsg(sock, &header, MSG_NOSIGNAL); });
  if (n < 0) {
    return fail_sys(errno, "send a message");
  }
  if (static_cast<std::size_t>(n) != bytes.size()) {
    return fail(Code::io, "send a message: only a part was taken");
  }
  return {};
}

Result<Message> receive_message(int sock, std::span<std::byte> buffer, bool wait) {
  iovec part{.iov_base = buffer.data(), .iov_len = buffer.size()};
  alignas(cmsghdr) std::array<char, kControlBytes> control;
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t n = restart(
      [&] { return ::recvmsg(sock, &header, MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT)); });
  if (n < 0) {
    if (errno == EAGAIN) {
      return std::unexpected(Error{
          .code = Code::unavailable, .sys = EAGAIN, .message = "no message waits", .field = {}});
    }
    return fail_sys(errno, "receive a message");
  }
  Message message{.size = static_cast<std::size_t>(n), .fds = {}};
  // First every descriptor gets an owner, then the message is judged: nothing leaks on refusal.
  for (cmsghdr* item = CMSG_FIRSTHDR(&header); item != nullptr; item = CMSG_NXTHDR(&header, item)) {
    if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const std::size_t count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(item) + i * sizeof(int), sizeof(int));
      message.fds.emplace_back(fd);
    }
  }
  if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    return fail(Code::io, "receive a message: truncated");
  }
  return message;
}

}  // namespace talon
