// The smallest program that ends well: what is measured is everything around it.
  .globl _start
_start:
#ifdef __x86_64__
  mov $231, %eax
  xor %edi, %edi
  syscall
#else
  mov x8, #94
  mov x0, #0
  svc #0
#endif
  .section .note.GNU-stack,"",%progbits
