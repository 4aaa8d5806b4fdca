// R8: /proc/sys and its dangerous neighbours take no write, from root inside either.

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("R8: sysctl, sysrq and their like refuse every write") {
  TALON_NEED_SANDBOXES();
  struct Setting {
    const char* path;
    const char* value;
  };
  const Setting settings[] = {{"/proc/sys/kernel/core_pattern", "|/tmp/evil"},
                              {"/proc/sys/kernel/hostname", "evil"},
                              {"/proc/sys/kernel/ns_last_pid", "1"},
                              {"/proc/sys/kernel/shmmax", "1"},
                              {"/proc/sys/vm/drop_caches", "0"},
                              {"/proc/sys/fs/mqueue/msg_max", "1"},
                              {"/proc/sys/net/ipv4/ip_forward", "1"},
                              {"/proc/sys/net/ipv4/ip_unprivileged_port_start", "1024"},
                              {"/proc/sys/user/max_user_namespaces", "1000"},
                              {"/proc/sys/user/max_net_namespaces", "1000"},
                              {"/proc/sysrq-trigger", "h"},
                              {"/proc/pressure/cpu", "some 500000 2000000"},
                              {"/proc/irq/default_smp_affinity", "1"}};
  const std::string pattern = read_text("/proc/sys/kernel/core_pattern");
  const auto attack = [&](Attacker& a) {
    for (const Setting& setting : settings) {
      if (a.look({"stat", setting.path})["name"] == "ENOENT") {
        continue;  // this kernel has none
      }
      const Finding got = a.look({"write-to", setting.path, setting.value});
      INFO(setting.path << " " << got["name"]);
      CHECK(got["opened"] == "false");
      CHECK((got["name"] == "EROFS" || got["name"] == "EACCES"));
    }
    CHECK(a.run({"/bin/cat", "/proc/sys/user/max_user_namespaces"}).out == "0\n");
    CHECK(a.attempt({"remount", "/proc/sys"}) == "EPERM");
  };
  from_every_side(attack);
  from_every_side(attack, {.spec = without_filter});
  CHECK(read_text("/proc/sys/kernel/core_pattern") == pattern);
}
