// R7: what would help an attacker on the host (addresses, boot line, keys, timing) is empty or
// absent.

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("R7: files of proc and sys that tell of the host are empty or absent") {
  TALON_NEED_SANDBOXES();
  const char* secret[] = {"/proc/kcore",      "/proc/keys",        "/proc/key-users",
                          "/proc/timer_list", "/proc/sched_debug", "/proc/latency_stats",
                          "/proc/interrupts", "/proc/kmsg",        "/proc/kallsyms",
                          "/proc/cmdline",    "/proc/config.gz",   "/proc/modules"};
  const char* absent[] = {"/sys/firmware",
                          "/sys/devices/virtual/powercap",
                          "/sys/kernel",
                          "/sys/devices/system/cpu/cpu0",
                          "/sys/module",
                          "/sys/class",
                          "/sys/fs/cgroup/system.slice",
                          "/dev/kmsg",
                          "/dev/mem"};
  from_every_side([&](Attacker& a) {
    for (const char* path : secret) {
      const Finding got = a.look({"read", path});
      INFO(path << " " << got["name"]);
      // A mask is a device on a nodev mount, which cannot even be opened.
      CHECK((got["name"] == "ENOENT" || got["name"] == "EACCES"));
    }
    for (const char* path : absent) {
      INFO(path);
      CHECK(a.look({"stat", path})["name"] == "ENOENT");
    }
    for (const char* dir : {"/proc/acpi", "/proc/asound", "/proc/scsi"}) {
      for (const Finding& entry : a.probe({"list", dir})) {
        INFO(dir);
        CHECK(entry["name"] == "ENOENT");
      }
    }
    CHECK(a.attempt({"syslog"}) == "EPERM");
  });
  // The control: on the host these are not empty.
  for (const Finding& got :
       outside({"read", "/proc/kallsyms", "/proc/cmdline", "/proc/interrupts"})) {
    INFO(got["path"]);
    CHECK(Attacker::number(got, "read") > 0);
  }
}
