// I6: signals, timers, umask, priority and working directory of the daemon stay with the daemon.

#include <signal.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "security/attack.h"

using namespace talon::testing;

namespace {

// A daemon started from a careless shell.
class Careless {
 public:
  Careless() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGRTMIN + 3);
    sigprocmask(SIG_BLOCK, &set, &mask_);
    ignored_ = signal(SIGUSR2, SIG_IGN);
    pipe_ = signal(SIGPIPE, SIG_IGN);
    umask_ = umask(0);
    alarm(1000);
    personality(ADDR_NO_RANDOMIZE);
    setpriority(PRIO_PROCESS, 0, -7);
    setenv("TALON_SECRET", "of the daemon", 1);
  }
  ~Careless() {
    sigprocmask(SIG_SETMASK, &mask_, nullptr);
    signal(SIGUSR2, ignored_);
    signal(SIGPIPE, pipe_);
    umask(umask_);
    alarm(0);
    personality(0);
    setpriority(PRIO_PROCESS, 0, 0);
    unsetenv("TALON_SECRET");
  }
  Careless(const Careless&) = delete;
  Careless& operator=(const Careless&) = delete;

 private:
  sigset_t mask_{};
  sighandler_t ignored_ = SIG_DFL;
  sighandler_t pipe_ = SIG_DFL;
  mode_t umask_ = 022;
};

}  // namespace

TEST_CASE("I6: an exec starts clean whatever the daemon was started with") {
  TALON_NEED_SANDBOXES();
  const Careless careless;
  from_every_side([](Attacker& a) {
    const Finding got = a.look({"inherited"});
    for (const char* zero :
         {"blocked", "ignored", "handled", "alarm", "nice", "policy", "personality", "pdeathsig"}) {
      INFO(zero);
      CHECK(got[zero] == "0");
    }
    CHECK(got["timer"] == "false");
    CHECK(got["umask"] == "18");  // 022
    CHECK(got["cwd"] == "/workspace");
    for (const Finding& line : a.probe({"echo"})) {
      CHECK(line["environment"].find("TALON_SECRET") == std::string::npos);
    }
    const Finding init = a.look({"status", "1"});
    CHECK(init["SigIgn"] == "0000000000000000");
    CHECK(init["SigCgt"] == "0000000000000000");
  });
  const Finding control = outside({"inherited"}).at(0);
  CHECK(control["blocked"] == "2");
  CHECK(control["ignored"] == "2");
  CHECK(control["umask"] == "0");
  CHECK(control["nice"] == "-7");
  CHECK(control["personality"] == std::to_string(ADDR_NO_RANDOMIZE));
}
