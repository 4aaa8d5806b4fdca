#pragma once
// clone3(2) for children that share the caller's memory (CLONE_VM): the child runs on a stack of
// its own and uses raw system calls only, because errno, locks and malloc belong to the parent.

#include <linux/sched.h>
#include <sys/syscall.h>

#include <cstddef>
#include <cstdint>

namespace talon::isolate::kernel {

// For functions that such a child runs: no sanitizer's per-thread state, which is the parent's.
#define TALON_CHILD_CODE __attribute__((disable_sanitizer_instrumentation))

// Raw system call: the result or -errno, no errno.
TALON_CHILD_CODE __attribute__((always_inline)) inline long raw_call(long number, long a = 0,
                                                                     long b = 0, long c = 0,
                                                                     long d = 0, long e = 0) {
#if defined(__x86_64__)
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  long result = 0;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
               : "rcx", "r11", "memory");
  return result;
#elif defined(__aarch64__)
  register long x8 asm("x8") = number;
  register long x0 asm("x0") = a;
  register long x1 asm("x1") = b;
  register long x2 asm("x2") = c;
  register long x3 asm("x3") = d;
  register long x4 asm("x4") = e;
  asm volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
  return x0;
#endif
}

// clone3; the child calls function(argument) on the stack that `args` names, then exits 0.
inline long clone_call(clone_args* args, void (*function)(void*), void* argument) {
#if defined(__x86_64__)
  register long r12 asm("r12") = reinterpret_cast<long>(function);
  register long r13 asm("r13") = reinterpret_cast<long>(argument);
  long result = SYS_clone3;
  asm volatile(
      "syscall\n"
      "test %%rax, %%rax\n"
      "jnz 1f\n"
      "xor %%ebp, %%ebp\n"
      "mov %%r13, %%rdi\n"
      "call *%%r12\n"
      "mov $60, %%eax\n"
      "xor %%edi, %%edi\n"
      "syscall\n"
      "ud2\n"
      "1:\n"
      : "+a"(result)
      : "D"(args), "S"(sizeof(*args)), "r"(r12), "r"(r13)
      : "rcx", "r11", "memory", "cc");
  return result;
#elif defined(__aarch64__)
  register long x8 asm("x8") = SYS_clone3;
  register long x0 asm("x0") = reinterpret_cast<long>(args);
  register long x1 asm("x1") = sizeof(*args);
  register long x20 asm("x20") = reinterpret_cast<long>(function);
  register long x21 asm("x21") = reinterpret_cast<long>(argument);
  asm volatile(
      "svc 0\n"
      "cbnz x0, 1f\n"
      "mov x29, xzr\n"
      "mov x0, x21\n"
      "blr x20\n"
      "mov x0, xzr\n"
      "mov x8, #93\n"
      "svc 0\n"
      "brk #1\n"
      "1:\n"
      : "+r"(x0)
      : "r"(x8), "r"(x1), "r"(x20), "r"(x21)
      : "memory", "cc", "x30");
  return x0;
#endif
}

// clone3, and the child's only act is execveat(file, "", argv, envp, AT_EMPTY_PATH). It never
// touches a stack, so it may share the parent's (args->stack 0); the parent goes on meanwhile, so
// argv and envp must not lie on its stack. A failed exec exits 126.
inline long clone_exec(clone_args* args, int file, char* const* argv, char* const* envp) {
#if defined(__x86_64__)
  register long r12 asm("r12") = file;
  register long r13 asm("r13") = reinterpret_cast<long>(argv);
  register long r14 asm("r14") = reinterpret_cast<long>(envp);
  register long r15 asm("r15") = reinterpret_cast<long>("");
  long result = SYS_clone3;
  asm volatile(
      "syscall\n"
      "test %%rax, %%rax\n"
      "jnz 1f\n"
      "mov $322, %%eax\n"  // execveat
      "mov %%r12, %%rdi\n"
      "mov %%r15, %%rsi\n"
      "mov %%r13, %%rdx\n"
      "mov %%r14, %%r10\n"
      "mov $0x1000, %%r8d\n"  // AT_EMPTY_PATH
      "syscall\n"
      "mov $231, %%eax\n"  // exit_group
      "mov $126, %%edi\n"
      "syscall\n"
      "ud2\n"
      "1:\n"
      : "+a"(result)
      : "D"(args), "S"(sizeof(*args)), "r"(r12), "r"(r13), "r"(r14), "r"(r15)
      : "rcx", "rdx", "r8", "r10", "r11", "memory", "cc");
  return result;
#elif defined(__aarch64__)
  register long x8 asm("x8") = SYS_clone3;
  register long x0 asm("x0") = reinterpret_cast<long>(args);
  register long x1 asm("x1") = sizeof(*args);
  register long x20 asm("x20") = file;
  register long x21 asm("x21") = reinterpret_cast<long>(argv);
  register long x22 asm("x22") = reinterpret_cast<long>(envp);
  register long x23 asm("x23") = reinterpret_cast<long>("");
  asm volatile(
      "svc 0\n"
      "cbnz x0, 1f\n"
      "mov x0, x20\n"
      "mov x1, x23\n"
      "mov x2, x21\n"
      "mov x3, x22\n"
      "mov x4, #0x1000\n"
      "mov x8, #281\n"
      "svc 0\n"
      "mov x0, #126\n"
      "mov x8, #94\n"
      "svc 0\n"
      "brk #1\n"
      "1:\n"
      : "+r"(x0)
      : "r"(x8), "r"(x1), "r"(x20), "r"(x21), "r"(x22), "r"(x23)
      : "memory", "cc", "x2", "x3", "x4");
  return x0;
#endif
}

}  // namespace talon::isolate::kernel
