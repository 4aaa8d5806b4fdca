// R4: the upper layer is the workload's. In its first life it replaces what it can of the mount
// points by links; starting it again must not follow them.

#include <unistd.h>

#include "security/attack.h"

using namespace talon;
using namespace talon::testing;
namespace fs = std::filesystem;

TEST_CASE("R4: links that a first life left in the upper layer fail the second, not the host") {
  TALON_NEED_SANDBOXES();
  in_every_column(
      [](Field& field) {
        Lab& lab = field.lab;
        const Canary canary{lab};
        for (const char* name : {"tmp", "dev", "proc", "sys", "workspace"}) {
          const auto spec = field.spec();
          Box box = lab.create(spec);
          const std::string target = canary.dir().string();
          field.sh(box, "rm -rf /" + std::string{name} + "; ln -s " + target + " /" + name);
          lab.destroy(box);
          // What is a mount while it runs can only be replaced from outside; do that for the
          // workload.
          const fs::path at = lab.root_of(spec.id) / "upper" / name;
          if (!fs::is_symlink(at)) {
            fs::remove_all(at);
            REQUIRE(symlink(target.c_str(), at.c_str()) == 0);
          }
          auto again = lab.try_create(spec);
          INFO(name);
          REQUIRE_FALSE(again.has_value());
          CHECK(again.error().message.find(std::string{"/"} + name) != std::string::npos);
          CHECK(canary.untouched());
        }
      },
      {.left_out = {{"memory", "its root ends with its first life"}}});
}
