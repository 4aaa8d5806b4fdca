// D1: what talond, its spawner, its builder and its networker gave up at their start: capabilities,
// new privileges, dangerous calls, core files, and access to their memory. Also the spawner that
// follows one that was killed.

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>

#include "isolate/harden.h"
#include "support/daemon.h"
#include "support/machine.h"

using namespace talon::test;

namespace {

std::string proc(pid_t pid) { return "/proc/" + std::to_string(pid); }

std::string field(const std::string& status, const std::string& name) {
  const auto at = status.find("\n" + name + ":\t");
  const auto begin = at + name.size() + 3;
  return at == std::string::npos ? "" : status.substr(begin, status.find('\n', begin) - begin);
}

std::uint64_t set_of(const std::string& status, const std::string& name) {
  const std::string text = field(status, name);
  return text.empty() ? ~std::uint64_t{0} : std::stoull(text, nullptr, 16);
}

pid_t child_called(pid_t parent, const std::string& name) {
  for (const std::string& thread : machine::entries(proc(parent) + "/task")) {
    std::istringstream children(machine::read_file(proc(parent) + "/task/" + thread + "/children"));
    for (pid_t pid; children >> pid;) {
      if (machine::comm(pid) == name) {
        return pid;
      }
    }
  }
  return -1;
}

void must_be_closed(pid_t pid, std::uint64_t capabilities) {
  REQUIRE(pid > 0);
  const std::uint64_t ours = set_of(machine::read_file("/proc/self/status"), "CapBnd");
  // One that has just started may not have come to it yet.
  CHECK(eventually(Seconds(10), [&] {
    return set_of(machine::read_file(proc(pid) + "/status"), "CapPrm") == (capabilities & ours);
  }));
  for (const std::string& thread : machine::entries(proc(pid) + "/task")) {
    const std::string status = machine::read_file(proc(pid) + "/task/" + thread + "/status");
    INFO(status);
    for (const char* set : {"CapBnd", "CapPrm", "CapEff"}) {
      CHECK(set_of(status, set) == (capabilities & ours));
    }
    CHECK(set_of(status, "CapInh") == 0);
    CHECK(set_of(status, "CapAmb") == 0);
    CHECK(field(status, "NoNewPrivs") == "1");
    CHECK(field(status, "Seccomp") == "2");
  }
  std::istringstream limits(machine::read_file(proc(pid) + "/limits"));
  for (std::string line; std::getline(limits, line);) {
    if (line.starts_with("Max core file size")) {
      std::istringstream words(line.substr(18));
      std::string soft;
      std::string hard;
      words >> soft >> hard;
      CHECK(soft == "0");
      CHECK(hard == "0");
    }
  }
}

// Whether root without CAP_SYS_PTRACE, but with all else, may look into the process: what decides
// that (ptrace(2), "access mode checking") decides over its memory and descriptors alike.
bool may_look_into(pid_t pid) {
  const pid_t child = fork();
  if (child == 0) {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2]{};
    syscall(SYS_capget, &header, data);
    const auto without = ~(1u << CAP_SYS_PTRACE);
    data[0].permitted &= without;
    data[0].effective &= without;
    const bool lowered = syscall(SYS_capset, &header, data) == 0;
    char target[16];
    _exit(lowered && readlink((proc(pid) + "/exe").c_str(), target, sizeof target) >= 0 ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status) == 1;
}

// A process like any other, for the control; it has given up CAP_SYS_PTRACE, too.
class Plain {
 public:
  Plain() : pid_(fork()) {
    if (pid_ == 0) {
      __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
      __user_cap_data_struct none[2]{};
      syscall(SYS_capset, &header, none);
      prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
      for (;;) {
        pause();
      }
    }
  }
  ~Plain() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Plain(const Plain&) = delete;
  Plain& operator=(const Plain&) = delete;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

void all_must_be_closed(const Daemon& daemon) {
  const pid_t spawner = child_called(daemon.pid(), "talon-spawner");
  const pid_t builder = child_called(spawner, "talon-builder");
  const pid_t networker = child_called(spawner, "talon-network");
  must_be_closed(daemon.pid(), talon::isolate::kDaemonCapabilities);
  must_be_closed(spawner, talon::isolate::kSpawnerCapabilities);
  must_be_closed(builder, talon::isolate::kBuilderCapabilities);
  must_be_closed(networker, talon::isolate::kNetworkerCapabilities);
  for (const pid_t pid : {daemon.pid(), spawner, builder, networker}) {
    CHECK_FALSE(may_look_into(pid));
  }
}

}  // namespace

TEST_CASE("D1: talond, spawner, builder and networker keep only what they use") {
  Daemon daemon;
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  all_must_be_closed(daemon);
  const Plain plain;
  CHECK(eventually(Seconds(5), [&] { return may_look_into(plain.pid()); }));

  // The next spawner comes out of a daemon that has given all this up, and still makes sandboxes.
  REQUIRE(kill(child_called(daemon.pid(), "talon-spawner"), SIGKILL) == 0);
  const auto second = make_sandbox(client);
  REQUIRE(eventually(Seconds(20), [&] {
    const pid_t spawner = child_called(daemon.pid(), "talon-spawner");
    return spawner > 0 && child_called(spawner, "talon-builder") > 0 &&
           child_called(spawner, "talon-network") > 0;
  }));
  all_must_be_closed(daemon);

  for (const auto& sandbox : {id, second}) {
    // What the daemon's filter takes from everyone must be nothing that programs inside need.
    CHECK(exit_code(run_in(client, sandbox, "sh -c 'exit 7'")) == 7);
    CHECK(client.del("/v1/sandboxes/" + sandbox).status == 204);
  }
}

TEST_CASE("D1: a daemon without the sandboxes' filter keeps its own") {
  Daemon::Options options;
  options.env["TALON_UNCONFINED_SECCOMP"] = "1";
  Daemon daemon(options);
  must_be_closed(daemon.pid(), talon::isolate::kDaemonCapabilities);
  const auto client = daemon.client();
  const auto id = make_sandbox(client);
  const auto status = run_in(client, id, "cat /proc/self/status").text("stdout");
  CHECK(field(status, "Seccomp") == "2");
  CHECK(field(status, "Seccomp_filters") == "1");
  CHECK(client.del("/v1/sandboxes/" + id).status == 204);
}

TEST_CASE("D1: the unit's bounding set is the daemon's") {
  std::istringstream unit(
      machine::read_file(std::string(TALON_SOURCE_DIR) + "/packaging/talond.service"));
  std::set<std::string> named;
  for (std::string line; std::getline(unit, line);) {
    const std::string key = "CapabilityBoundingSet=";
    if (line.starts_with(key)) {
      std::istringstream words(line.substr(key.size()));
      for (std::string word; words >> word;) {
        named.insert(word);
      }
    }
  }
  const std::map<std::string, unsigned> numbers = {
      {"CAP_CHOWN", CAP_CHOWN},           {"CAP_DAC_OVERRIDE", CAP_DAC_OVERRIDE},
      {"CAP_FOWNER", CAP_FOWNER},         {"CAP_DAC_READ_SEARCH", CAP_DAC_READ_SEARCH},
      {"CAP_FSETID", CAP_FSETID},         {"CAP_KILL", CAP_KILL},
      {"CAP_SETGID", CAP_SETGID},         {"CAP_SETUID", CAP_SETUID},
      {"CAP_SETPCAP", CAP_SETPCAP},       {"CAP_NET_BIND_SERVICE", CAP_NET_BIND_SERVICE},
      {"CAP_NET_ADMIN", CAP_NET_ADMIN},   {"CAP_SYS_CHROOT", CAP_SYS_CHROOT},
      {"CAP_SYS_PTRACE", CAP_SYS_PTRACE}, {"CAP_SYS_ADMIN", CAP_SYS_ADMIN},
      {"CAP_SYS_NICE", CAP_SYS_NICE},     {"CAP_SYS_RESOURCE", CAP_SYS_RESOURCE},
      {"CAP_MKNOD", CAP_MKNOD},           {"CAP_SETFCAP", CAP_SETFCAP}};
  std::uint64_t set = 0;
  for (const std::string& name : named) {
    INFO(name);
    REQUIRE(numbers.contains(name));
    set |= std::uint64_t{1} << numbers.at(name);
  }
  CHECK(set == talon::isolate::kDaemonCapabilities);
}
