// Entry points of talon-init: _start (x86_64 and aarch64 process entry: psABI) and the one call
// that C++ cannot make, a clone3 whose child goes on upon another stack.
#if defined(__x86_64__)
.text
.globl _start
.type _start,@function
_start:
  xor %ebp, %ebp
  and $-16, %rsp
  call talon_init_main
  ud2

// long talon_clone3(args, size, fn, arg): rdi rsi rdx rcx. The kernel keeps all but rax, rcx, r11.
.globl talon_clone3
.type talon_clone3,@function
talon_clone3:
  mov %rcx, %r9
  mov $435, %eax
  syscall
  test %rax, %rax
  jz 1f
  ret
1:
  xor %ebp, %ebp
  mov %r9, %rdi
  call *%rdx
  ud2
#elif defined(__aarch64__)
.text
.globl _start
.type _start,%function
_start:
  mov x29, #0
  mov x30, #0
  bl talon_init_main
  brk #1

// long talon_clone3(args, size, fn, arg): x0 x1 x2 x3. The kernel keeps all but x0.
.globl talon_clone3
.type talon_clone3,%function
talon_clone3:
  mov x8, #435
  svc #0
  cbz x0, 1f
  ret
1:
  mov x29, #0
  mov x30, #0
  mov x0, x3
  blr x2
  brk #1
#endif
.section .note.GNU-stack,"",%progbits
