// F3 (CVE-2019-5736): writing to /proc/self/exe, /proc/1/exe, and to init's file by way of a
// script whose interpreter is /proc/self/exe, which makes init's own child execute itself.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "security/attack.h"

using namespace talon;
using namespace talon::testing;

namespace {

std::size_t hash_of(const std::string& path) { return std::hash<std::string>{}(read_text(path)); }

std::string init_exe(Attacker& a) {
  return "/proc/" + std::to_string(a.box->identity().host_pid) + "/exe";
}

// As a client would: asks for the trap again and again while a process inside lies in wait.
std::vector<Finding> spring(Attacker& a) {
  isolate::ExecSpec catcher;
  catcher.argv = {"/bin/sh", "-c",
                  "/bin/probe catch-exe 20 > /tmp/caught; echo > /tmp/caught-done"};
  catcher.user = a.user;
  catcher.id = "pxcatcher";
  REQUIRE(a.box->exec(catcher).has_value());
  for (int i = 0; i < 400; ++i) {
    a.run({"/bin/trap"});
    if (i % 10 == 9 && a.run({"/bin/test", "-e", "/tmp/caught-done"}).code == 0) {
      break;
    }
  }
  return parse_findings(a.run({"/bin/cat", "/tmp/caught"}).out);
}

}  // namespace

TEST_CASE("F3: init's and the daemon's programs cannot be overwritten") {
  TALON_NEED_SANDBOXES();
  const std::size_t daemon = hash_of("/proc/self/exe");
  from_every_side([&](Attacker& a) {
    const std::size_t init = hash_of(init_exe(a));
    CHECK(a.attempt({"exe-write"}) == (a.root() ? "ETXTBSY" : "EACCES"));
    CHECK(a.attempt({"init-exe-write"}) == "EACCES");
    CHECK(a.look({"read", "/proc/1/exe"})["name"] == "EACCES");
    CHECK(hash_of(init_exe(a)) == init);
    // Even the host's root cannot: every seal is set.
    const int fd = open(init_exe(a).c_str(), O_RDONLY | O_CLOEXEC);
    REQUIRE(fd >= 0);
    const int all = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    CHECK((fcntl(fd, F_GET_SEALS) & all) == all);
    close(fd);
  });
  CHECK(hash_of("/proc/self/exe") == daemon);
}

TEST_CASE("F3: a script run by /proc/self/exe does not open init's program for writing") {
  TALON_NEED_SANDBOXES();
  from_every_side(
      [](Attacker& a) {
        const std::size_t init = hash_of(init_exe(a));
        const Ran ran = a.run({"/bin/trap"});
        CHECK(ran.code != 0);
        CHECK(ran.out == "");
        const auto caught = spring(a);
        // Whether the race was won is luck; what a winner can do is not.
        for (const Finding& end : caught) {
          INFO("opened " << end["opened"] << ", written " << end["written"]);
          CHECK((end["opened"] != "OK" || end["written"] == "EPERM"));
          CHECK((end["opened"] != "OK" || end["truncated"] == "EPERM"));
        }
        CHECK(hash_of(init_exe(a)) == init);
        a.lab.sh(a.box, "rm -f /tmp/caught /tmp/caught-done");
      },
      {.image = [](const auto& image) {
        std::ofstream{image / "bin/trap"} << "#!/proc/self/exe\n";
        chmod((image / "bin/trap").c_str(), 0755);
      }});
}
