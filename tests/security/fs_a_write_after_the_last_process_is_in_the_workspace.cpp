// FS: after the last process is gone its mounts are, too. What the daemon then writes by its own
// clone of the tree must land in the workspace, not in the layer beneath it.

#include <fcntl.h>
#include <signal.h>
#include <sys/fsuid.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/limits.h"
#include "security/attack.h"

using namespace talon;
using namespace talon::testing;

TEST_CASE("FS: a write to the workspace after the last process is in the workspace") {
  TALON_NEED_SANDBOXES();
  in_every_column(
      [](Field& field) {
        Box box = field.create();
        const auto home = field.lab.root_of(box->identity().id);
        const int files = box->files_fd();
        REQUIRE(files >= 0);
        REQUIRE(kill(box->identity().host_pid, SIGKILL) == 0);
        for (;;) {
          auto event = box->wait_event(std::chrono::seconds{10});
          REQUIRE(event.has_value());
          if (std::holds_alternative<isolate::event::Closed>(*event)) {
            break;
          }
        }
        // An idmapped mount takes new files of the range's ids only.
        const auto base =
            static_cast<uid_t>(limits::kIdBase + box->identity().lease * limits::kIdRange);
        setfsgid(base);
        setfsuid(base);
        const UniqueFd late{
            openat(files, "workspace/late", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)};
        setfsuid(0);
        setfsgid(0);
        REQUIRE(late.get() >= 0);
        CHECK(write(late.get(), "late\n", 5) == 5);
        CHECK(read_text(home / "workspace/late") == "late\n");
        CHECK_FALSE(std::filesystem::exists(home / "upper/workspace/late"));
        // The clone holds no way to proc, sys or devices.
        CHECK(faccessat(files, "proc/self", F_OK, 0) != 0);
        CHECK(faccessat(files, "dev/null", F_OK, 0) != 0);
        field.lab.destroy(box);
      },
      {.left_out = {{"user", "the daemon writes, not a process inside"}}});
}
