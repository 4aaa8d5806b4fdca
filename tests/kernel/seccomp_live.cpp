// The filter as the kernel applies it, asked by a program inside.

#include <catch2/catch.hpp>

#include <filesystem>

#include "kernel/sandbox_support.h"

using namespace talon;
using namespace talon::testing;

TEST_CASE("S6, S7: namespaces and mounts are refused for root inside") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  Box box = lab.create();
  for (const char* flag : {"-m", "-u", "-i", "-n", "-U", "-p"}) {
    INFO(flag);
    const Ran ran = lab.run(box, {"/bin/unshare", flag, "/bin/true"});
    CHECK(ran.code != 0);
    CHECK(ran.err.find("Operation not permitted") != std::string::npos);
  }
  CHECK(lab.run(box, {"/bin/mount", "-t", "tmpfs", "x", "/tmp"}).code != 0);
  CHECK(lab.run(box, {"/bin/mount", "-t", "proc", "x", "/tmp"}).code != 0);
  CHECK(lab.run(box, {"/bin/umount", "/proc/sys"}).code != 0);
  CHECK(lab.run(box, {"/bin/umount", "/proc/keys"}).code != 0);
  CHECK(lab.run(box, {"/bin/chroot", "/", "/bin/true"}).code != 0);
  lab.destroy(box);
}

TEST_CASE("the opt-out runs without a filter, and still without capabilities") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  auto spec = lab.spec();
  spec.unconfined_seccomp = true;
  Box box = lab.create(spec);
  const std::string status = lab.run(box, {"/bin/cat", "/proc/self/status"}).out;
  CHECK(status_field(status, "Seccomp") == "0");
  CHECK(status_field(status, "NoNewPrivs") == "1");
  CHECK(status_field(status, "CapEff") == "00000000000000fb");
  // Without the filter the namespace's own limit answers: ENOSPC.
  const Ran ran = lab.run(box, {"/bin/unshare", "-U", "/bin/true"});
  CHECK(ran.code != 0);
  CHECK(ran.err.find("No space left") != std::string::npos);
  CHECK(lab.run(box, {"/bin/unshare", "-n", "/bin/true"}).code != 0);
  lab.destroy(box);
}
