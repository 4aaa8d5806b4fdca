// R4 (CVE-2021-30465, CVE-2025-31133 and kin): a hostile image whose mount points are links to
// the host or into proc.

#include <fstream>

#include "security/attack.h"

using namespace talon;
using namespace talon::testing;
namespace fs = std::filesystem;

TEST_CASE("R4: a link in place of a mount point fails the create, names it, and leads nowhere") {
  TALON_NEED_SANDBOXES();
  in_every_column(
      [](Field& field) {
        Lab& lab = field.lab;
        const Canary canary{lab};
        const std::string mounts = read_text("/proc/self/mountinfo");
        for (const auto storage : {field.column.storage, isolate::Storage::readonly}) {
          for (const char* name : {"dev", "proc", "sys", "tmp", "workspace"}) {
            for (const std::string& to :
                 {std::string{"../../etc"}, std::string{"/etc"}, std::string{"/proc/sys/kernel"},
                  std::string{"../.."} + canary.dir().string(), canary.dir().string(),
                  std::string{"../host-only"}, std::string{"bin"},
                  std::string{"/proc/self/root"}}) {
              INFO(name << " -> " << to);
              const fs::path at = lab.image() / name;
              fs::remove_all(at);
              fs::create_symlink(to, at);
              auto spec = field.spec();
              spec.storage = storage;
              auto made = lab.try_create(spec);
              REQUIRE_FALSE(made.has_value());
              CHECK(made.error().code == Code::invalid_request);
              CHECK(made.error().message.find(std::string{"/"} + name) != std::string::npos);
              fs::remove(at);
              fs::create_directory(at);
              fs::remove_all(lab.root_of(spec.id));
            }
          }
        }
        CHECK(canary.untouched());
        CHECK(read_text("/proc/self/mountinfo") == mounts);
        CHECK(fs::is_empty(lab.dir() / "run"));
        Box box = field.create();  // and the launcher serves on
        CHECK(lab.run(box, {"/bin/echo", "ok"}).out == "ok\n");
        lab.destroy(box);
      },
      {.left_out = {{"user", "nothing runs: the create fails"}}});
}
