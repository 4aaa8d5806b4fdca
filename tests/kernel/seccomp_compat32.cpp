// S3: 32-bit x86 calls end the process, unless the sandbox asked for compat32.

#include <catch2/catch.hpp>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "kernel/sandbox_support.h"

using namespace talon;
using namespace talon::testing;

namespace {

// A whole 32-bit ELF program: exit(7) by int 0x80.
std::string exit7_elf() {
  const unsigned char code[] = {0xb8, 1, 0, 0, 0, 0xbb, 7, 0, 0, 0, 0xcd, 0x80};
  const std::uint32_t base = 0x08048000;
  const std::uint32_t size = 52 + 32 + sizeof(code);
  std::string out("\177ELF\1\1\1\0\0\0\0\0\0\0\0\0", 16);
  const auto half = [&out](std::uint16_t v) {
    out.append(reinterpret_cast<const char*>(&v), sizeof(v));
  };
  const auto word = [&out](std::uint32_t v) {
    out.append(reinterpret_cast<const char*>(&v), sizeof(v));
  };
  half(2), half(3), word(1), word(base + 84), word(52), word(0), word(0);
  half(52), half(32), half(1), half(0), half(0), half(0);
  word(1), word(0), word(base), word(base), word(size), word(size), word(5), word(0x1000);
  out.append(reinterpret_cast<const char*>(code), sizeof(code));
  return out;
}

}  // namespace

TEST_CASE("S3: int 0x80 is SIGSYS, and works under compat32") {
  TALON_NEED_SANDBOXES();
#if !defined(__x86_64__)
  WARN("SKIP: 32-bit x86 only");
#else
  Lab lab;
  const auto program = lab.image() / "bin/exit7";
  std::ofstream{program, std::ios::binary} << exit7_elf();
  std::filesystem::permissions(program, std::filesystem::perms{0755});
  auto spec = lab.spec();
  spec.compat32 = true;
  Box with = lab.create(spec);
  const Ran allowed = lab.run(with, {"/bin/exit7"});
  if (allowed.code == 126) {
    WARN("SKIP: this kernel runs no 32-bit programs");
    lab.destroy(with);
    return;
  }
  CHECK(allowed.code == 7);
  CHECK(lab.run(with, {"/bin/echo", "64 bit too"}).out == "64 bit too\n");
  Box without = lab.create();
  const Ran refused = lab.run(without, {"/bin/exit7"});
  CHECK(refused.code == -1);
  CHECK(refused.signal == SIGSYS);
  lab.destroy(with);
  lab.destroy(without);
#endif
}
