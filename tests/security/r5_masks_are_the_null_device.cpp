// R5: a mask's source is a null device of our own, never a file of the image.

#include <fstream>

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("R5: every masked file is the device 1:3, whatever the image calls /dev/null") {
  TALON_NEED_SANDBOXES();
  from_every_side(
      [](Attacker& a) {
        int masks = 0;
        for (const char* name : {"kcore", "keys", "key-users", "timer_list", "interrupts",
                                 "kallsyms", "cmdline", "modules", "config.gz", "kmsg"}) {
          const Finding facts = a.look({"stat", std::string{"/proc/"} + name});
          if (facts["name"] == "ENOENT") {
            continue;  // this kernel has none
          }
          INFO(name);
          CHECK((Attacker::number(facts, "mode") & 0170000) == 0020000);
          CHECK(facts["rdev"] == "259");  // 1:3
          CHECK(facts["readonly"] == "true");
          ++masks;
        }
        CHECK(masks >= 6);
        for (const char* name : {"acpi", "asound", "scsi"}) {
          const std::string dir = std::string{"/proc/"} + name;
          const Finding facts = a.look({"stat", dir});
          if (facts["name"] == "ENOENT") {
            continue;
          }
          INFO(name);
          CHECK(facts["readonly"] == "true");
          CHECK(facts["fs_type"] == "0000000001021994");  // TMPFS_MAGIC
          CHECK(a.probe({"list", dir}).empty());
        }
      },
      {.image = [](const auto& image) { std::ofstream{image / "dev/null"} << "not null\n"; }});
}
