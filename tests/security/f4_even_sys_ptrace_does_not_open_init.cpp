// F4 with SYS_PTRACE granted: a process in the sandbox's namespaces that holds every capability of
// the user namespace. Init was executed outside of it, so its memory belongs to the host's.

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "security/attack.h"

using namespace talon::testing;

namespace {

// Runs the probe as root of the sandbox's user namespace with all capabilities of that namespace:
// more than any workload can get. The caller reads what it prints.
std::vector<Finding> from_inside_with_all(pid_t init, const Args& args) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const std::string ns = "/proc/" + std::to_string(init) + "/ns/";
  const int pid_ns = open((ns + "pid").c_str(), O_RDONLY | O_CLOEXEC);
  const int mount_ns = open((ns + "mnt").c_str(), O_RDONLY | O_CLOEXEC);
  const int user_ns = open((ns + "user").c_str(), O_RDONLY | O_CLOEXEC);
  const pid_t child = fork();
  if (child == 0) {
    if (setns(pid_ns, 0) != 0 || setns(mount_ns, 0) != 0 || setns(user_ns, 0) != 0 ||
        setresgid(0, 0, 0) != 0 || setresuid(0, 0, 0) != 0) {
      _exit(99);
    }
    const pid_t inside = fork();  // only a child is in the pid namespace
    if (inside == 0) {
      std::vector<char*> argv;
      char name[] = "/bin/probe";
      argv.push_back(name);
      for (const std::string& arg : args) {
        argv.push_back(const_cast<char*>(arg.c_str()));
      }
      argv.push_back(nullptr);
      dup2(ends[1], 1);
      execv(name, argv.data());
      _exit(98);
    }
    int status = 0;
    waitpid(inside, &status, 0);
    _exit(WEXITSTATUS(status));
  }
  for (const int fd : {ends[1], pid_ns, mount_ns, user_ns}) {
    close(fd);
  }
  std::string text;
  char buffer[4096];
  for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(n));
  }
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return parse_findings(text);
}

}  // namespace

TEST_CASE("F4: with every capability of its namespace a process still cannot open init") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  add_probe(lab.image());
  Box box = lab.create();
  const pid_t init = box->identity().host_pid;
  const Finding caps = from_inside_with_all(init, {"caps"}).at(0);
  CHECK(Attacker::number(caps, "no_new_privs") == 0);
  CHECK((std::stoull(caps["effective"], nullptr, 16) >> 19 & 1) == 1);  // SYS_PTRACE is there
  for (const char* name :
       {"ptrace-init", "ptrace-seize-init", "vm-read-init", "vm-write-init", "pidfd-getfd-init"}) {
    INFO(name);
    CHECK(outcome(from_inside_with_all(init, {"try", name})) == "EPERM");
  }
  CHECK(outcome(from_inside_with_all(init, {"try", "open-init-mem"})) == "EACCES");
  CHECK(outcome(from_inside_with_all(init, {"try", "ptrace-child"})) == "OK");
  CHECK(lab.run(box, {"/bin/echo", "alive"}).out == "alive\n");
  lab.destroy(box);
}
