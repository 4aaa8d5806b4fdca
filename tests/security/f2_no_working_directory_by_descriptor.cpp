// F2 (CVE-2024-21626): an exec whose working directory is an inherited descriptor, or anything
// else outside the sandbox's root.

#include <fcntl.h>
#include <unistd.h>

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("F2: cwd /proc/self/fd/N is refused for every N, and so is /proc/1/cwd") {
  TALON_NEED_SANDBOXES();
  const int bait = open("/", O_RDONLY | O_DIRECTORY);  // inheritable, as in the CVE
  from_every_side([](Attacker& a) {
    const auto at = [&a](const std::string& cwd) {
      talon::isolate::ExecSpec spec;
      spec.argv = {"/bin/pwd"};
      spec.user = a.user;
      spec.cwd = cwd;
      const Ran ran = a.lab.run(a.box, spec);
      return ran.code == 0 ? "ran in " + ran.out : ran.err;
    };
    int pipes = 0;
    for (int fd = 3; fd <= 64; ++fd) {
      const std::string got = at("/proc/self/fd/" + std::to_string(fd));
      INFO(fd << ": " << got);
      // Stage 3 is the working directory; the status pipe is no directory, the rest is gone.
      CHECK((got == "exec failed: stage 3 errno 20" || got == "exec failed: stage 3 errno 2"));
      pipes += got.ends_with("errno 20") ? 1 : 0;
    }
    CHECK(pipes <= 1);
    CHECK(at("/proc/1/cwd") == "exec failed: stage 3 errno 13");
    CHECK(at("/proc/1/root") == "exec failed: stage 3 errno 13");
    CHECK(at("/proc/1/fd/20") == "exec failed: stage 3 errno 13");
    CHECK(at("/proc/self/root/../..") == "ran in /\n");
    // From within as well.
    CHECK(a.look({"try", "chdir-fds"})["result"] == "0");
  });
  close(bait);
}
