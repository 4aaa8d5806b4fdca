// System calls that a sandbox has no business with (S2 to S5, S9, S12), most with arguments that
// the kernel would refuse anyhow, so that the answer shows who refused: EPERM is the filter or a
// missing capability, EFAULT or EINVAL means that the kernel itself looked at it.
#include <errno.h>
#include <linux/keyctl.h>
#include <stdio.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/quota.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "probe.h"

#define UNUSED (void)argc, (void)argv
#define CALL(function, ...)                     \
  static long function(int argc, char** argv) { \
    UNUSED;                                     \
    return syscall(__VA_ARGS__);                \
  }

static char zeros[256];

CALL(k_bpf, SYS_bpf, 0, zeros, sizeof zeros)
CALL(k_perf, SYS_perf_event_open, zeros, 0, -1, -1, 0)
CALL(k_uffd, SYS_userfaultfd, 0)
CALL(k_uring_setup, SYS_io_uring_setup, 1, zeros)
CALL(k_uring_enter, SYS_io_uring_enter, -1, 0, 0, 0, NULL, 0)
CALL(k_uring_register, SYS_io_uring_register, -1, 0, NULL, 0)
CALL(k_keyctl_session, SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL, 0, 0, 0)
CALL(k_keyctl_id, SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0, 0, 0)
CALL(k_add_key, SYS_add_key, "user", "probe", "x", 1, KEY_SPEC_SESSION_KEYRING)
CALL(k_request_key, SYS_request_key, "user", "probe", NULL, 0)
CALL(k_kexec, SYS_kexec_load, 0, 0, NULL, 0)
CALL(k_kexec_file, SYS_kexec_file_load, -1, -1, 0, NULL, 0)
CALL(k_init_module, SYS_init_module, zeros, 0, "")
CALL(k_finit_module, SYS_finit_module, -1, "", 0)
CALL(k_delete_module, SYS_delete_module, "probe", 0)
CALL(k_reboot, SYS_reboot, 0, 0, 0, NULL)  // wrong magic: EINVAL even for the mighty
CALL(k_swapon, SYS_swapon, "/nonexistent", 0)
CALL(k_swapoff, SYS_swapoff, "/nonexistent")
CALL(k_acct, SYS_acct, "/nonexistent")
CALL(k_settimeofday, SYS_settimeofday, NULL, NULL)
CALL(k_quotactl, SYS_quotactl, QCMD(Q_SYNC, USRQUOTA), NULL, 0, NULL)
CALL(k_syslog, SYS_syslog, 10, NULL, 0)
CALL(k_sethostname, SYS_sethostname, "probe", 5)
CALL(k_setdomainname, SYS_setdomainname, "probe", 5)
CALL(k_lookup_dcookie, SYS_lookup_dcookie, 0ull, zeros, sizeof zeros)
CALL(k_nfsservctl, SYS_nfsservctl, 0, NULL, NULL)
CALL(k_vhangup, SYS_vhangup)
CALL(k_unknown, 9999)
CALL(k_unknown_near, 600)
CALL(k_kcmp, SYS_kcmp, 1, getpid(), 0, 0, 0)
CALL(k_move_pages, SYS_move_pages, 1, 0, NULL, NULL, NULL, 0)
CALL(k_migrate_pages, SYS_migrate_pages, 1, 0, NULL, NULL)
CALL(k_mbind, SYS_mbind, 0, 0, 0, NULL, 0, 0)
CALL(k_set_mempolicy, SYS_set_mempolicy, 0, NULL, 0)
CALL(k_fanotify, SYS_fanotify_init, 0, 0)
CALL(k_name_to_handle, SYS_name_to_handle_at, -1, "", zeros, zeros, 0)
#ifdef __x86_64__
CALL(k_iopl, SYS_iopl, 3)
CALL(k_ioperm, SYS_ioperm, 0x80, 1, 1)
CALL(k_modify_ldt, SYS_modify_ldt, 0, zeros, 8)
CALL(k_uselib, SYS_uselib, "/nonexistent")
CALL(k_ustat, SYS_ustat, 0, zeros)
CALL(k_sysfs, SYS_sysfs, 3)
CALL(k_x32, 0x40000000 | SYS_getpid)

// 32-bit getpid (20). Where 32-bit calls are refused by killing, this ends by SIGSYS; where the
// kernel has no such entry, by SIGSEGV.
static long k_int80(int argc, char** argv) {
  UNUSED;
  long result;
  __asm__ volatile("int $0x80" : "=a"(result) : "a"(20L) : "memory", "r8", "r9", "r10", "r11");
  if (result < 0 && result > -4096) {
    errno = (int)-result;
    return -1;
  }
  return result;
}
#endif

static long k_clock_settime(int argc, char** argv) {
  UNUSED;
  const struct timespec bad = {.tv_sec = 0, .tv_nsec = -1};  // refused before it could be set
  return syscall(SYS_clock_settime, CLOCK_REALTIME, &bad);
}
static long k_clock_adjtime(int argc, char** argv) {
  UNUSED;
  static int timex[64];
  timex[0] = 0x0002;  // ADJ_FREQUENCY
  timex[1] = 0;
  return syscall(SYS_clock_adjtime, 9999, timex);
}

// personality(2): the argument is the wanted persona, default ADDR_NO_RANDOMIZE.
static long k_personality(int argc, char** argv) {
  return personality(argc > 1 ? (unsigned long)number_or_exit(argv[1]) : ADDR_NO_RANDOMIZE);
}
static long k_no_randomize(int argc, char** argv) {
  UNUSED;
  return personality(ADDR_NO_RANDOMIZE);
}
static long k_read_implies_exec(int argc, char** argv) {
  UNUSED;
  return personality(READ_IMPLIES_EXEC);
}

static long p_set_mm(int argc, char** argv) {
  UNUSED;
  return prctl(PR_SET_MM, PR_SET_MM_START_STACK, (unsigned long)&argc, 0, 0);
}
static long p_securebits(int argc, char** argv) {
  UNUSED;
  return prctl(PR_SET_SECUREBITS, 1, 0, 0, 0);
}
static long p_ambient(int argc, char** argv) {
  UNUSED;
  return prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 0 /* CAP_CHOWN */, 0, 0);
}
static long p_no_new_privs_off(int argc, char** argv) {
  UNUSED;
  return prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0);
}
static long p_seccomp_filter(int argc, char** argv) {
  UNUSED;
  return syscall(SYS_seccomp, 1, 0, NULL);  // SECCOMP_SET_MODE_FILTER: EFAULT if reached
}
// Any call by number, for policy tables: "syscall NUMBER [ARG…]".
static long k_syscall(int argc, char** argv) {
  long a[7] = {0};
  for (int i = 1; i < argc && i < 8; ++i) {
    a[i - 1] = (long)number_or_exit(argv[i]);
  }
  return syscall(a[0], a[1], a[2], a[3], a[4], a[5], a[6]);
}

#ifdef __x86_64__
// time(2) at its fixed address of old (vsyscall): the kernel emulates it, past the filter's entry.
static long k_vsyscall(int argc, char** argv) {
  UNUSED;
  long (*const old_time)(long*) = (long (*)(long*))0xffffffffff600400ul;
  return old_time(NULL) > 0 ? 0 : -1;
}
#endif

const struct attempt kernel_attempts[] = {
    {"bpf", "bpf", k_bpf},
    {"perf_event_open", "perf_event_open", k_perf},
    {"userfaultfd", "userfaultfd", k_uffd},
    {"io_uring_setup", "io_uring_setup", k_uring_setup},
    {"io_uring_enter", "io_uring_enter", k_uring_enter},
    {"io_uring_register", "io_uring_register", k_uring_register},
    {"keyctl-session", "a new session keyring", k_keyctl_session},
    {"keyctl-id", "the session keyring's id", k_keyctl_id},
    {"add_key", "add_key", k_add_key},
    {"request_key", "request_key", k_request_key},
    {"kexec_load", "kexec_load", k_kexec},
    {"kexec_file_load", "kexec_file_load", k_kexec_file},
    {"init_module", "init_module", k_init_module},
    {"finit_module", "finit_module", k_finit_module},
    {"delete_module", "delete_module", k_delete_module},
    {"reboot", "reboot, with wrong magic", k_reboot},
    {"swapon", "swapon", k_swapon},
    {"swapoff", "swapoff", k_swapoff},
    {"acct", "acct", k_acct},
    {"settimeofday", "settimeofday, changing nothing", k_settimeofday},
    {"clock_settime", "clock_settime, with an invalid time", k_clock_settime},
    {"clock_adjtime", "clock_adjtime, of an invalid clock", k_clock_adjtime},
    {"quotactl", "quotactl", k_quotactl},
    {"syslog", "syslog, size of the kernel's buffer", k_syslog},
    {"sethostname", "sethostname", k_sethostname},
    {"setdomainname", "setdomainname", k_setdomainname},
    {"lookup_dcookie", "lookup_dcookie", k_lookup_dcookie},
    {"nfsservctl", "nfsservctl", k_nfsservctl},
    {"vhangup", "vhangup", k_vhangup},
    {"unknown-syscall", "call 9999", k_unknown},
    {"future-syscall", "call 600", k_unknown_near},
    {"kcmp", "kcmp with init", k_kcmp},
    {"move_pages", "move_pages of init", k_move_pages},
    {"migrate_pages", "migrate_pages of init", k_migrate_pages},
    {"mbind", "mbind", k_mbind},
    {"set_mempolicy", "set_mempolicy", k_set_mempolicy},
    {"fanotify_init", "fanotify_init", k_fanotify},
    {"name_to_handle_at", "name_to_handle_at", k_name_to_handle},
#ifdef __x86_64__
    {"iopl", "iopl", k_iopl},
    {"ioperm", "ioperm", k_ioperm},
    {"modify_ldt", "modify_ldt", k_modify_ldt},
    {"uselib", "uselib", k_uselib},
    {"ustat", "ustat", k_ustat},
    {"sysfs", "sysfs", k_sysfs},
    {"vsyscall", "time by the vsyscall page", k_vsyscall},
    {"x32", "getpid by the x32 table", k_x32},
    {"int80", "getpid by int 0x80", k_int80},
#endif
    {"personality", "[PERSONA]: personality", k_personality},
    {"addr-no-randomize", "personality(ADDR_NO_RANDOMIZE)", k_no_randomize},
    {"read-implies-exec", "personality(READ_IMPLIES_EXEC)", k_read_implies_exec},
    {"prctl-set-mm", "prctl(PR_SET_MM)", p_set_mm},
    {"prctl-securebits", "prctl(PR_SET_SECUREBITS)", p_securebits},
    {"prctl-ambient", "prctl(PR_CAP_AMBIENT_RAISE)", p_ambient},
    {"prctl-no-new-privs-off", "prctl(PR_SET_NO_NEW_PRIVS, 0)", p_no_new_privs_off},
    {"seccomp", "seccomp(SET_MODE_FILTER)", p_seccomp_filter},
    {"syscall", "NUMBER [ARG…]: that call", k_syscall},
    {NULL, NULL, NULL},
};
