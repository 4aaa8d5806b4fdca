// F5: the program's path, its links and PATH are looked up in the sandbox's root.

#include <sys/stat.h>

#include <fstream>

#include "security/attack.h"

using namespace talon::testing;
namespace fs = std::filesystem;

TEST_CASE("F5: no host program can be named") {
  TALON_NEED_SANDBOXES();
  in_every_column([](Field& field) {
    Lab& lab = field.lab;
    const Canary canary{lab};
    const fs::path dir = lab.dir() / "programs";
    fs::create_directories(dir);
    fs::copy_file("/bin/busybox", dir / "host-tool");
    fs::create_symlink(dir / "host-tool", lab.image() / "bin/absolute");
    fs::create_symlink("../../../../../../../.." + (dir / "host-tool").string(),
                       lab.image() / "bin/relative");
    std::ofstream{lab.image() / "bin/script"} << "#!" << (dir / "host-tool").string() << "\n";
    chmod((lab.image() / "bin/script").c_str(), 0755);
    REQUIRE(fs::exists(lab.image() / "bin/absolute"));  // the control: on the host it leads there
    Box box = field.create();
    const auto ends = [&](const std::string& program, const std::string& path = "") {
      talon::isolate::ExecSpec spec;
      spec.argv = {program, "true"};
      spec.user = field.column.user;
      if (!path.empty()) {
        spec.env.emplace_back("PATH", path);
      }
      return lab.run(box, spec).code;
    };
    CHECK(ends("/bin/busybox") == 0);
    for (const std::string& program : {(dir / "host-tool").string(), std::string{"/bin/absolute"},
                                       std::string{"/bin/relative"}, std::string{"/bin/script"}}) {
      INFO(program);
      CHECK(ends(program) == 127);
    }
    CHECK(ends("host-tool", dir.string() + ":/proc/1/root" + dir.string() + ":/proc/1/cwd") != 0);
    CHECK(ends("busybox", "/bin") == 0);
    CHECK(canary.untouched());
    lab.destroy(box);
  });
}
