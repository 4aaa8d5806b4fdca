// F9: `..` from any directory that a process inside or init holds. A plain directory descriptor
// would lead to the host's root, chroot or not.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "security/attack.h"

using namespace talon;
using namespace talon::testing;
namespace fs = std::filesystem;

namespace {

// Climbs `..` from an open directory as its holder could and looks for a host file there.
bool finds(int from, const fs::path& file) {
  UniqueFd at{openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (!at) {
    return false;
  }
  for (int i = 0; i < 64; ++i) {
    UniqueFd up{openat(at.get(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (!up) {
      break;
    }
    at = std::move(up);
  }
  return faccessat(at.get(), file.relative_path().c_str(), F_OK, 0) == 0;
}

}  // namespace

TEST_CASE("F9: no descriptor of init or of an exec reaches a host file by ..") {
  TALON_NEED_SANDBOXES();
  from_every_side([](Attacker& a) {
    const Canary canary{a.lab};
    int climbed = 0;
    for (const Finding& end : a.probe({"climb", canary.file(), "/etc/marker", "/init.scope"})) {
      INFO("from " << end["from"] << " " << end["path"]);
      CHECK(end["name"] == (end["path"] == "/etc/marker" ? "OK" : "ENOENT"));
      ++climbed;
    }
    CHECK(climbed == 3);  // from / alone: an exec holds no directory
    int directories = 0;
    const std::string fds = "/proc/" + std::to_string(a.box->identity().host_pid) + "/fd";
    for (const auto& entry : fs::directory_iterator{fds}) {
      struct stat facts{};
      if (stat(entry.path().c_str(), &facts) == 0 && S_ISDIR(facts.st_mode)) {
        const UniqueFd held{open(entry.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
        INFO(entry.path() << " -> " << fs::read_symlink(entry.path()));
        CHECK_FALSE(finds(held.get(), canary.file()));
        ++directories;
      }
    }
    CHECK(directories >= 3);  // logs, x/, the tree for files, and groups in x/
    // The control: a plain descriptor of the logs does climb there.
    const UniqueFd plain{open(a.lab.root_of(a.box->identity().id).c_str(), O_RDONLY | O_CLOEXEC)};
    CHECK(finds(plain.get(), canary.file()));
  });
}
