#pragma once
// Memory and text without libc. The four mem* functions exist because the compiler emits calls
// to them even in freestanding code.

#include <stddef.h>
#include <stdint.h>

extern "C" {
void* memcpy(void* to, const void* from, size_t n);
void* memmove(void* to, const void* from, size_t n);
void* memset(void* to, int value, size_t n);
int memcmp(const void* a, const void* b, size_t n);
}

namespace talon::init {

inline size_t length(const char* s) {
  size_t n = 0;
  while (s[n] != 0) {
    ++n;
  }
  return n;
}

inline bool equal(const char* a, const char* b) {
  while (*a != 0 && *a == *b) {
    ++a;
    ++b;
  }
  return *a == *b;
}

inline bool starts_with(const char* s, const char* prefix) {
  while (*prefix != 0) {
    if (*s++ != *prefix++) {
      return false;
    }
  }
  return true;
}

inline uint64_t min(uint64_t a, uint64_t b) { return a < b ? a : b; }

// Appends text to a fixed buffer; what does not fit is cut and the text stays terminated.
class Text {
 public:
  Text(char* buffer, size_t size) : at_(buffer), end_(buffer + size - 1), begin_(buffer) {
    *at_ = 0;
  }
  Text& add(const char* s) {
    while (*s != 0 && at_ < end_) {
      *at_++ = *s++;
    }
    cut_ = cut_ || *s != 0;
    *at_ = 0;
    return *this;
  }
  Text& add(uint64_t value) {
    char digits[21];
    int i = 20;
    digits[i] = 0;
    do {
      digits[--i] = (char)('0' + value % 10);
      value /= 10;
    } while (value != 0);
    return add(digits + i);
  }
  size_t size() const { return (size_t)(at_ - begin_); }
  bool cut() const { return cut_; }

 private:
  char* at_;
  char* end_;
  char* begin_;
  bool cut_ = false;
};

}  // namespace talon::init
