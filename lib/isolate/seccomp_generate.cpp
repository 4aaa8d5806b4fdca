// A build step: compiles the system call filters, checks them against their policies and writes
// them as C++ constants into the file named. A filter costs `talond run` nothing then, where
// compiling it took as long as a tenth of the whole run.

#include <cstdio>

#include "isolate/seccomp.h"

namespace {

using namespace talon::isolate::seccomp;

bool write(std::FILE* out, const char* name, std::span<const Policy> policies) {
  Program program;
  if (!policies.empty()) {
    auto made = compile(policies);
    if (const auto good = made ? self_check(*made, policies) : talon::Result<>{}; !made || !good) {
      const talon::Error& error = made ? good.error() : made.error();
      std::fprintf(stderr, "seccomp_generate: %s\n", error.message.c_str());
      return false;
    }
    program = std::move(*made);
  }
  std::fprintf(out, "constexpr std::array<sock_filter, %zu> %s{{\n", program.size(), name);
  for (const sock_filter& in : program) {
    std::fprintf(out, "  {%#x, %u, %u, %#x},\n", in.code, in.jt, in.jf, in.k);
  }
  std::fputs("}};\n", out);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  std::FILE* out = argc == 2 ? std::fopen(argv[1], "w") : nullptr;
  if (out == nullptr) {
    return 2;
  }
  const std::array native{native_policy()};
  const std::array both{native_policy(), compat32_policy()};
  const bool has_compat32 = !both[1].entries.empty();
  const bool written =
      write(out, "kNative", native) &&
      write(out, "kCompat32",
            has_compat32 ? std::span<const Policy>{both} : std::span<const Policy>{});
  return std::fclose(out) == 0 && written ? 0 : 1;
}
