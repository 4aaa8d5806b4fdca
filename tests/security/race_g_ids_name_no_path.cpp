// Race g: ids become names of directories, groups and logs. One that is not lower-case letters and
// digits is refused before anything is made, by the daemon and by init.

#include <fcntl.h>

#include "base/fd.h"
#include "security/attack.h"

using namespace talon;
using namespace talon::testing;
namespace fs = std::filesystem;

TEST_CASE("race g: an id that could name a path is refused before anything is made") {
  TALON_NEED_SANDBOXES();
  const std::string wicked[] = {"",
                                "..",
                                "../canary",
                                "sb/../../x",
                                "/etc",
                                "sb.x",
                                "SB1",
                                "sb\n1",
                                "sb 1",
                                "sb-1",
                                "sb\xc3\xa4",
                                std::string(64, 'a'),
                                std::string{"sb\0x", 4}};
  in_every_column([&](Field& field) {
    Lab& lab = field.lab;
    const Canary canary{lab};
    Box box = field.create();
    const auto logs = lab.root_of(box->identity().id) / "logs";
    const std::size_t runs = static_cast<std::size_t>(
        std::distance(fs::directory_iterator{lab.dir() / "run"}, fs::directory_iterator{}));
    for (const std::string& id : wicked) {
      INFO("id '" << id << "'");
      auto spec = field.spec();
      spec.id = id;
      const DirFd image = *open_at(AT_FDCWD, lab.image(), O_RDONLY | O_DIRECTORY);
      const DirFd root = *open_at(AT_FDCWD, canary.dir(), O_RDONLY | O_DIRECTORY);
      auto made = lab.launcher().create(spec, {.image = &image, .root = &root});
      REQUIRE_FALSE(made.has_value());
      CHECK(made.error().code == Code::invalid_request);

      isolate::ExecSpec exec;
      exec.id = id;
      exec.argv = {"/bin/true"};
      exec.user = field.column.user;
      auto asked = box->exec(exec);
      if (asked) {  // then init refused it
        auto event = box->wait_event(std::chrono::seconds{10});
        REQUIRE(event.has_value());
        CHECK(std::holds_alternative<isolate::event::ExecFailed>(*event));
      }
    }
    CHECK(canary.untouched());
    CHECK(static_cast<std::size_t>(std::distance(fs::directory_iterator{lab.dir() / "run"},
                                                 fs::directory_iterator{})) == runs);
    for (const auto& entry : fs::directory_iterator{logs}) {
      CHECK(entry.path().filename().string().find_first_of("/ \n") == std::string::npos);
    }
    CHECK(field.run(box, {"/bin/echo", "alive"}).out == "alive\n");
    lab.destroy(box);
  });
}
