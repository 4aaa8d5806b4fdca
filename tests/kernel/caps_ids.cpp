// I1-I7, I10: ids, capabilities and privileges of init and of execs, read from inside and from
// the host's /proc.

#include <catch2/catch.hpp>

#include <fcntl.h>

#include <algorithm>

#include "base/fd.h"
#include "kernel/sandbox_support.h"

using namespace talon;
using namespace talon::testing;

namespace {

std::string init_status(Box& box) {
  return read_file_at(AT_FDCWD, "/proc/" + std::to_string(box->identity().host_pid) + "/status")
      .value();
}

constexpr const char* kNone = "0000000000000000";
constexpr const char* kWorkload = "00000000000000fb";
constexpr const char* kInit = "00000000000001fb";

}  // namespace

TEST_CASE("I1: init holds its unmapped id and exactly the planned capabilities") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  Box box = lab.create();
  const std::string status = init_status(box);
  const std::string id = std::to_string(1'000'000'000ull + box->identity().lease * 65537 + 65536);
  const std::string four = id + "\t" + id + "\t" + id + "\t" + id;
  CHECK(status_field(status, "Uid") == four);
  CHECK(status_field(status, "Gid") == four);
  CHECK(status_field(status, "Groups") == "");
  CHECK(status_field(status, "CapInh") == kNone);
  CHECK(status_field(status, "CapPrm") == kInit);
  CHECK(status_field(status, "CapEff") == kInit);
  CHECK(status_field(status, "CapBnd") == kInit);
  CHECK(status_field(status, "CapAmb") == kNone);
  CHECK(status_field(status, "NoNewPrivs") == "1");
  CHECK(status_field(status, "Seccomp") == "2");
  CHECK(status_field(status, "Seccomp_filters") == "1");
  // Seen from inside, init's id is nobody's.
  const std::string inside = lab.run(box, {"/bin/cat", "/proc/1/status"}).out;
  CHECK(status_field(inside, "Uid") == "65534\t65534\t65534\t65534");
  lab.destroy(box);
}

TEST_CASE("I1, I3, I6: an exec as root has the workload's set, clean signals and no groups") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  Box box = lab.create();
  const std::string status = lab.run(box, {"/bin/cat", "/proc/self/status"}).out;
  CHECK(status_field(status, "Uid") == "0\t0\t0\t0");
  CHECK(status_field(status, "Gid") == "0\t0\t0\t0");
  CHECK(status_field(status, "CapInh") == kNone);
  CHECK(status_field(status, "CapPrm") == kWorkload);
  CHECK(status_field(status, "CapEff") == kWorkload);
  CHECK(status_field(status, "CapBnd") == kWorkload);
  CHECK(status_field(status, "CapAmb") == kNone);
  CHECK(status_field(status, "NoNewPrivs") == "1");
  CHECK(status_field(status, "Seccomp") == "2");
  CHECK(status_field(status, "SigBlk") == kNone);
  CHECK(status_field(status, "SigIgn") == kNone);
  CHECK(status_field(status, "SigCgt") == kNone);
  CHECK(status_field(status, "Umask") == "0022");
  CHECK(trim(lab.run(box, {"/bin/cat", "/proc/self/oom_score_adj"}).out) == "500");
  CHECK(trim(lab.run(box, {"/bin/pwd"}).out) == "/workspace");
  lab.destroy(box);
}

TEST_CASE("I1: an exec as a user has no capability at all") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  Box box = lab.create();
  const std::string status = lab.run(box, {"/bin/cat", "/proc/self/status"}, "user").out;
  CHECK(status_field(status, "Uid") == "1000\t1000\t1000\t1000");
  for (const char* field : {"CapInh", "CapPrm", "CapEff", "CapAmb"}) {
    CHECK(status_field(status, field) == kNone);
  }
  CHECK(lab.run(box, {"/bin/touch", "/etc/x"}, "user").code != 0);
  CHECK(lab.run(box, {"/bin/chown", "0", "/tmp"}, "user").code != 0);
  lab.destroy(box);
}

TEST_CASE("I4: the map covers 65536 ids from 0 and the host's root is not among them") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  Box one = lab.create();
  Box two = lab.create();
  CHECK(one->identity().lease != two->identity().lease);
  const auto map = [&](Box& box) {
    return read_file_at(AT_FDCWD, "/proc/" + std::to_string(box->identity().host_pid) + "/uid_map")
        .value();
  };
  const std::string base = std::to_string(1'000'000'000ull + one->identity().lease * 65537);
  CHECK(map(one).find(" " + base + " ") != std::string::npos);
  CHECK(map(one).find(" 65536\n") != std::string::npos);
  CHECK(map(one) != map(two));
  lab.destroy(one);
  lab.destroy(two);
}

TEST_CASE("I7: limits cannot be raised, core files are off") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  auto spec = lab.spec();
  spec.open_files = 512;
  Box box = lab.create(spec);
  const std::string text = lab.sh(box, "ulimit -n; ulimit -Hn; ulimit -Hc").out;
  CHECK(text == "512\n512\n0\n");
  CHECK(lab.sh(box, "ulimit -Hn 1024").code != 0);
  CHECK(lab.sh(box, "echo -1 > /proc/self/oom_score_adj").code != 0);
  if (lab.launcher().host().cap_sys_resource) {
    // The kernel keeps a floor only when one with SYS_RESOURCE set the value.
    CHECK(lab.sh(box, "echo 499 > /proc/self/oom_score_adj").code != 0);
  }
  lab.destroy(box);
}

TEST_CASE("I10, F4: init can be neither read nor ended from inside") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  Box box = lab.create();
  for (const char* text : {"ls /proc/1/fd", "cat /proc/1/environ", "cat /proc/1/maps",
                           "head -c1 /proc/1/mem", "readlink /proc/1/exe", "readlink /proc/1/root",
                           "readlink /proc/1/cwd", "ls /proc/1/root/"}) {
    INFO(text);
    const Ran ran = lab.sh(box, text);
    CHECK(ran.code != 0);
    CHECK(ran.out == "");
  }
  // A signal without a handler does not reach a namespace's init; KILL from inside neither.
  lab.sh(box, "kill -9 1; kill -TERM 1");
  CHECK(lab.run(box, {"/bin/echo", "alive"}).out == "alive\n");
  lab.destroy(box);
}
