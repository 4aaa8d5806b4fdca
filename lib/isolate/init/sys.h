#pragma once
// Raw system calls for talon-init: no libc, no errno. Every call returns the kernel's answer: a
// value >= 0 or -errno. Constants and structs come from the kernel's own uapi headers; the few
// that live in libc's headers only are spelled out here (source: the man page named beside them).

#include <asm/errno.h>
#include <asm/fcntl.h>
#include <asm/signal.h>
#include <asm/stat.h>
#include <asm/unistd.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/eventpoll.h>
#include <linux/mman.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <linux/prctl.h>
#include <linux/resource.h>
#include <linux/sched.h>
#include <linux/time.h>
#include <linux/wait.h>
#include <stddef.h>
#include <stdint.h>

namespace talon::init {

inline long raw(long n, long a, long b, long c, long d, long e, long f) {
#if defined(__x86_64__)
  long ret;
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  asm volatile("syscall"
               : "=a"(ret)
               : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return ret;
#elif defined(__aarch64__)
  register long x8 asm("x8") = n;
  register long x0 asm("x0") = a;
  register long x1 asm("x1") = b;
  register long x2 asm("x2") = c;
  register long x3 asm("x3") = d;
  register long x4 asm("x4") = e;
  register long x5 asm("x5") = f;
  asm volatile("svc 0"
               : "+r"(x0)
               : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
               : "memory");
  return x0;
#else
#error "talon-init knows x86_64 and aarch64"
#endif
}

template <class T>
inline long as_arg(T value) {
  return (long)value;
}

template <class... A>
inline long sys(long n, A... args) {
  long a[6] = {as_arg(args)...};
  return raw(n, a[0], a[1], a[2], a[3], a[4], a[5]);
}

// socket(7), sendmsg(2), cmsg(3): only in libc's headers.
struct IoVec {
  const void* base;
  size_t size;
};
struct MsgHdr {
  void* name;
  uint32_t name_size;
  uint32_t pad;
  IoVec* iov;
  size_t iov_count;
  void* control;
  size_t control_size;
  int32_t flags;
  uint32_t pad2;
};
struct CmsgHdr {
  size_t size;
  int32_t level;
  int32_t type;
};
inline constexpr int kSolSocket = 1;
inline constexpr int kScmRights = 1;
inline constexpr int kMsgCtrunc = 0x8;
inline constexpr int kMsgTrunc = 0x20;
inline constexpr int kMsgDontwait = 0x40;
inline constexpr int kMsgNosignal = 0x4000;
inline constexpr int kMsgCmsgCloexec = 0x40000000;

inline constexpr int kModeType = 0170000;
inline constexpr int kModeRegular = 0100000;
inline constexpr int kModeChar = 0020000;
inline constexpr int kModeDir = 0040000;

// fcntl(2): F_ADD_SEALS and friends are in linux/fcntl.h, which clashes with asm/fcntl.h.
inline constexpr int kFGetSeals = 1034;
inline constexpr int kSealShrink = 0x2;
inline constexpr int kSealWrite = 0x8;
inline constexpr int kFDupfdCloexec = 1030;
inline constexpr int kAtFdcwd = -100;
inline constexpr int kAtRemovedir = 0x200;
inline constexpr int kAtSymlinkNofollow = 0x100;
inline constexpr int kAtEmptyPath = 0x1000;

inline long close(int fd) { return fd >= 0 ? sys(__NR_close, fd) : 0; }
inline void close_fd(int& fd) {
  if (fd >= 0) {
    sys(__NR_close, fd);
    fd = -1;
  }
}
inline long read(int fd, void* buf, size_t n) { return sys(__NR_read, fd, buf, n); }
inline long write(int fd, const void* buf, size_t n) { return sys(__NR_write, fd, buf, n); }
inline long openat(int dir, const char* path, int flags, int mode = 0) {
  return sys(__NR_openat, dir, path, flags | O_CLOEXEC, mode);
}
inline long dup_from(int fd, int lowest) { return sys(__NR_fcntl, fd, kFDupfdCloexec, lowest); }
inline bool is_err(const void* p) { return (unsigned long)p > (unsigned long)-4096L; }
inline void* map(size_t size, int prot, int flags, int fd) {
  return (void*)sys(__NR_mmap, nullptr, size, prot, flags, fd, 0);
}
inline void unmap(void* p, size_t size) { sys(__NR_munmap, p, size); }
[[noreturn]] inline void exit_group(int code) {
  for (;;) {
    sys(__NR_exit_group, code);
  }
}
inline uint64_t clock_ns(int clock) {
  struct __kernel_timespec ts = {0, 0};
  sys(__NR_clock_gettime, clock, &ts);
  return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

// capset(2), version 3: two 32-bit words each.
inline long set_caps(uint64_t permitted, uint64_t effective, uint64_t inheritable) {
  __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2];
  for (int i = 0; i < 2; ++i) {
    data[i].permitted = (uint32_t)(permitted >> (32 * i));
    data[i].effective = (uint32_t)(effective >> (32 * i));
    data[i].inheritable = (uint32_t)(inheritable >> (32 * i));
  }
  return sys(__NR_capset, &head, data);
}

// entry.S: clone3(2) whose child calls fn(arg) on the stack given in `args` and never returns.
extern "C" long talon_clone3(const struct clone_args* args, size_t size, void (*fn)(void*),
                             void* arg);

}  // namespace talon::init
