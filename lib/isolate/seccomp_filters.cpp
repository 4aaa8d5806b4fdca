#include "isolate/seccomp.h"
// Made while talond is built, by seccomp_generate.cpp: kNative, kCompat32.
#include <seccomp_filters.inc>

namespace talon::isolate::seccomp {

std::span<const sock_filter> native_filter() { return kNative; }

Result<std::span<const sock_filter>> compat32_filter() {
  if (kCompat32.empty()) {
    return fail(Code::unenforceable, "32-bit x86 calls exist on x86_64 only");
  }
  return kCompat32;
}

Result<> check_filters() {
  TALON_CHECK(self_check(kNative, std::array{native_policy()}));
  return kCompat32.empty() ? Result<>{}
                           : self_check(kCompat32, std::array{native_policy(), compat32_policy()});
}

}  // namespace talon::isolate::seccomp
