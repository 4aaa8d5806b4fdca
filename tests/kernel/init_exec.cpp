// Starting and ending execs: codes, signals, what could not be started, users, the journal.

#include <catch2/catch.hpp>

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "kernel/init_support.h"

using namespace talon;
using namespace talon::test;

#define NEED_BOX(...)                       \
  if (auto why = why_not(); !why.empty()) { \
    WARN("SKIP: " << why);                  \
    return;                                 \
  }                                         \
  InitBox box{__VA_ARGS__};                 \
  REQUIRE(box.up())

TEST_CASE("an exec prints, exits and is in the journal in that order") {
  NEED_BOX();
  const std::uint64_t request = box.shell("pxecho", "echo out; echo err >&2");
  auto started = box.wait_type(wire::Type::started, "pxecho");
  REQUIRE(started);
  CHECK(started->head.request == request);
  CHECK(started->as<wire::Started>().pid > 1);
  auto exit = box.wait_exit("pxecho");
  REQUIRE(exit);
  CHECK(exit->code == 0);
  CHECK(exit->signal == 0);
  CHECK(exit->flags == 0);
  CHECK(exit->out_bytes == 4);
  CHECK(exit->err_bytes == 4);
  CHECK(exit->duration_ns > 0);
  CHECK(box.output("pxecho") == "out\n");
  CHECK(box.output("pxecho", wire::Kind::err) == "err\n");
  REQUIRE(box.wait_type(wire::Type::ended, "pxecho"));
  auto entries = box.entries("pxecho");
  REQUIRE(entries.size() == 4);
  CHECK(entries[2].kind == wire::Kind::exit);
  CHECK(entries[2].exit.out_bytes == 4);
  CHECK(entries[3].kind == wire::Kind::end);
  auto journal = box.journal();
  REQUIRE(journal.size() == 3);
  CHECK(journal[0].type == static_cast<std::uint16_t>(wire::Record::init_start));
  CHECK(journal[1].type == static_cast<std::uint16_t>(wire::Record::started));
  CHECK(journal[1].value == static_cast<std::uint64_t>(started->as<wire::Started>().pid));
  CHECK(journal[2].type == static_cast<std::uint16_t>(wire::Record::exit));
  CHECK(std::string(journal[2].px) == "pxecho");
  if (box.has_cgroups()) {
    const auto own = std::to_string(started->as<wire::Started>().group);
    CHECK(own != "0");
    CHECK(InitBox::eventually(
        [&] { return box.exec_groups().size() == 1 && box.exec_groups().front() != own; }));
  }
}

TEST_CASE("exit codes and signals are told apart") {
  NEED_BOX();
  auto natural = box.run("px124", "exit 124");
  REQUIRE(natural);
  CHECK(natural->code == 124);
  CHECK(natural->flags == 0);
  natural = box.run("px137", "exit 137");
  REQUIRE(natural);
  CHECK(natural->code == 137);
  CHECK(natural->signal == 0);
  auto own = box.run("pxown", "kill -KILL $$");
  REQUIRE(own);
  CHECK(own->code == -1);
  CHECK(own->signal == SIGKILL);
  CHECK(own->flags == 0);
}

TEST_CASE("a missing command is 127 and names the file") {
  NEED_BOX();
  box.exec("pxmissing", {.argv = {"no-such-command"}});
  REQUIRE(box.wait_type(wire::Type::started, "pxmissing"));
  auto exit = box.wait_exit("pxmissing");
  REQUIRE(exit);
  CHECK(exit->code == 127);
  CHECK(exit->flags == wire::kNotStarted);
  CHECK(exit->exec_errno == ENOENT);
  CHECK(box.output("pxmissing", wire::Kind::err) ==
        "talon: no-such-command: No such file or directory\n");

  const std::string plain = box.dir() + "/plain";
  std::ofstream(plain) << "not executable";
  box.exec("pxplain", {.argv = {plain}});
  exit = box.wait_exit("pxplain");
  REQUIRE(exit);
  CHECK(exit->code == 126);
  CHECK(exit->exec_errno == EACCES);
  CHECK(box.output("pxplain", wire::Kind::err) == "talon: " + plain + ": Permission denied\n");
}

TEST_CASE("a missing interpreter is named as such") {
  NEED_BOX();
  const std::string script = box.dir() + "/script";
  std::ofstream(script) << "#!/no/such/interpreter\n";
  ::chmod(script.c_str(), 0755);
  box.exec("pxinterp", {.argv = {script}});
  auto exit = box.wait_exit("pxinterp");
  REQUIRE(exit);
  CHECK(exit->code == 127);
  CHECK(box.output("pxinterp", wire::Kind::err) ==
        "talon: " + script + ": its interpreter or loader is missing\n");
}

TEST_CASE("a file without #! runs under the shell") {
  NEED_BOX();
  const std::string script = box.dir() + "/script";
  std::ofstream(script) << "echo \"$0 $1\"\n";
  ::chmod(script.c_str(), 0755);
  box.exec("pxscript", {.argv = {script, "word"}});
  auto exit = box.wait_exit("pxscript");
  REQUIRE(exit);
  CHECK(exit->code == 0);
  CHECK(box.output("pxscript") == script + " word\n");
}

TEST_CASE("a missing cwd starts nothing and leaves nothing") {
  NEED_BOX();
  const std::uint64_t request = box.shell("pxcwd", "true", {.cwd = "/no/such/dir"});
  auto failed = box.wait_type(wire::Type::exec_failed, "pxcwd");
  REQUIRE(failed);
  CHECK(failed->head.request == request);
  CHECK(failed->as<wire::ExecFailed>().error == ENOENT);
  CHECK(failed->as<wire::ExecFailed>().stage == static_cast<std::uint32_t>(wire::Stage::cwd));
  CHECK(box.log_files() == std::vector<std::string>{"journal"});
  CHECK(box.journal().size() == 1);
  if (box.has_cgroups()) {
    CHECK(InitBox::eventually([&] { return box.exec_groups().size() == 1; }));
  }
  // The id is free again.
  auto exit = box.run("pxcwd", "pwd", {.cwd = "/usr"});
  REQUIRE(exit);
  CHECK(box.output("pxcwd") == "/usr\n");
}

TEST_CASE("the default cwd falls back to the root, a given one does not") {
  NEED_BOX(BoxOptions{.default_cwd = "/no/such/workspace"});
  REQUIRE(box.run("pxdefault", "pwd"));
  CHECK(box.output("pxdefault") == "/\n");
}

TEST_CASE("a cwd through a descriptor of init is refused") {
  NEED_BOX();
  for (int fd = 3; fd <= 40; ++fd) {
    const std::string px = "pxfd" + std::to_string(fd);
    box.shell(px, "pwd", {.cwd = "/proc/self/fd/" + std::to_string(fd)});
    auto failed = box.wait_type(wire::Type::exec_failed, px);
    REQUIRE(failed);
    CHECK(failed->as<wire::ExecFailed>().stage == static_cast<std::uint32_t>(wire::Stage::cwd));
  }
}

TEST_CASE("an exec sees descriptors 0 to 2 only, and 3 with a script") {
  NEED_BOX();
  // The shell's glob opens one descriptor of its own while it reads the directory.
  REQUIRE(box.run("pxfds",
                  "for f in 0 1 2 3 4 5 6 7 8 9; do "
                  "(eval \": <&$f\") 2>/dev/null && printf $f; done"));
  CHECK(box.output("pxfds") == "012");
  char name[] = "/tmp/talon-script-XXXXXX";
  UniqueFd script(::mkstemp(name));
  ::unlink(name);
  REQUIRE(write_all(script.get(), "echo from script $1\n"));
  ::lseek(script.get(), 0, SEEK_SET);
  box.exec("pxthree", {.argv = {"/bin/sh", "/proc/self/fd/3", "arg"}}, script.get());
  auto exit = box.wait_exit("pxthree");
  REQUIRE(exit);
  CHECK(box.output("pxthree") == "from script arg\n");
}

TEST_CASE("users are resolved inside") {
  NEED_BOX();
  const std::string show = "id -u; id -g; id -G; echo $HOME";
  REQUIRE(box.run("pxu1", show, {.user = "daemon"}));
  CHECK(box.output("pxu1").starts_with("1\n1\n"));
  REQUIRE(box.run("pxu2", show, {.user = "12345:23456"}));
  CHECK(box.output("pxu2") == "12345\n23456\n23456\n/tmp\n");
  REQUIRE(box.run("pxu3", show, {.user = "1:daemon"}));
  CHECK(box.output("pxu3").starts_with("1\n1\n1\n"));
  REQUIRE(box.run("pxu4", "echo $USER $LOGNAME $HOME"));
  CHECK(box.output("pxu4") == "root root /root\n");
  const std::pair<const char*, int> bad[] = {
      {"nobody-of-that-name", ENOENT}, {"65536", EINVAL}, {"1:70000", EINVAL},
      {"1:no-such-group", ENOENT},     {":1", EINVAL},    {"1:", EINVAL}};
  int n = 0;
  for (const auto& [user, error] : bad) {
    const std::string px = "pxbad" + std::to_string(n++);
    box.shell(px, "true", {.user = user});
    auto failed = box.wait_type(wire::Type::exec_failed, px);
    REQUIRE(failed);
    CHECK(failed->as<wire::ExecFailed>().error == error);
    CHECK(failed->as<wire::ExecFailed>().stage == static_cast<std::uint32_t>(wire::Stage::user));
  }
}

TEST_CASE("capabilities: root keeps the workload's set, others none") {
  NEED_BOX();
  const std::string show = "grep -E 'Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status | tr -d '\\t\\n'";
  REQUIRE(box.run("pxcap0", show));
  CHECK(box.output("pxcap0") ==
        "CapInh:0000000000000000CapPrm:00000000000000fbCapEff:00000000000000fb"
        "CapBnd:00000000000000fbCapAmb:0000000000000000");
  REQUIRE(box.run("pxcap1", show, {.user = "1"}));
  CHECK(box.output("pxcap1") ==
        "CapInh:0000000000000000CapPrm:0000000000000000CapEff:0000000000000000"
        "CapBnd:00000000000000fbCapAmb:0000000000000000");
  REQUIRE(box.run("pxsig",
                  "while read k v; do case $k in SigBlk:|SigIgn:) echo $v;; esac; done "
                  "</proc/self/status; umask",
                  {.user = "1"}));
  CHECK(box.output("pxsig") == "0000000000000000\n0000000000000000\n0022\n");
}

TEST_CASE("/dev/stdout can be opened by another user") {
  NEED_BOX();
  auto exit = box.run("pxdev", "echo one >/dev/stdout; echo two >/dev/stderr", {.user = "1"});
  REQUIRE(exit);
  CHECK(exit->code == 0);
  CHECK(box.output("pxdev") == "one\n");
  CHECK(box.output("pxdev", wire::Kind::err) == "two\n");
}

TEST_CASE("timeouts end the group and keep the output") {
  NEED_BOX();
  auto exit = box.run("pxslow", "echo partial; sleep 60 & wait", {.timeout_ms = 300});
  REQUIRE(exit);
  CHECK(exit->flags == wire::kTimedOut);
  CHECK(exit->signal == SIGKILL);
  CHECK(exit->duration_ns >= 300'000'000u);
  CHECK(exit->duration_ns < 5'000'000'000u);
  CHECK(box.output("pxslow") == "partial\n");
  REQUIRE(box.wait_type(wire::Type::ended, "pxslow"));

  exit = box.run("pxgrace", "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done",
                 {.timeout_ms = 300, .grace_ms = 20000});
  REQUIRE(exit);
  CHECK(exit->flags == wire::kTimedOut);
  CHECK(exit->code == 3);
  CHECK(box.output("pxgrace") == "up\nbye\n");
}

TEST_CASE("a pause stops the clock of timeouts") {
  NEED_BOX();
  const auto begin = std::chrono::steady_clock::now();
  box.shell("pxpause", "exec sleep 60", {.timeout_ms = 300});
  REQUIRE(box.wait_type(wire::Type::started, "pxpause"));
  box.request(wire::Type::mark, wire::Mark{1, 0});
  REQUIRE(box.wait_type(wire::Type::done));
  // Nothing may come while the pause lasts, however long.
  CHECK_FALSE(box.wait_type(wire::Type::exited, "pxpause", std::chrono::milliseconds(700)));
  box.request(wire::Type::mark, wire::Mark{0, 0});
  REQUIRE(box.wait_type(wire::Type::done));
  auto exit = box.wait_exit("pxpause");
  REQUIRE(exit);
  CHECK(exit->flags == wire::kTimedOut);
  CHECK(std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(900));
}

TEST_CASE("end_exec: TERM, grace, kill") {
  NEED_BOX();
  box.shell("pxend", "trap '' TERM; echo up; while :; do sleep 0.05; done");
  REQUIRE(InitBox::eventually([&] { return box.output("pxend") == "up\n"; }));
  wire::EndExec end{};
  std::string("pxend").copy(end.px, sizeof end.px);
  end.grace_ms = 200;
  box.request(wire::Type::end_exec, end);
  auto exit = box.wait_exit("pxend");
  REQUIRE(exit);
  CHECK(exit->signal == SIGKILL);
  CHECK(exit->flags == wire::kKilled);
}

TEST_CASE("signal scopes") {
  NEED_BOX();
  box.shell("pxproc",
            "trap 'echo parent' USR1; (trap 'echo child' USR1; echo c; "
            "while :; do sleep 0.05; done) & echo p; while :; do sleep 0.05; done");
  auto has = [&](const std::string& text) {
    return InitBox::eventually(
        [&] { return box.output("pxproc").find(text) != std::string::npos; });
  };
  REQUIRE(has("c\n"));
  REQUIRE(has("p\n"));
  CHECK(box.signal("pxproc", SIGUSR1, wire::Scope::process) == 0);
  REQUIRE(has("parent\n"));
  CHECK(box.output("pxproc").find("child") == std::string::npos);
  CHECK(box.signal("pxproc", 99, wire::Scope::process) == EINVAL);
  CHECK(box.signal("pxnone", SIGTERM, wire::Scope::process) == ESRCH);
  CHECK(box.signal("pxproc", SIGKILL, wire::Scope::all) == 0);
  auto exit = box.wait_exit("pxproc");
  REQUIRE(exit);
  CHECK(exit->signal == SIGKILL);
  CHECK(exit->flags == wire::kKilled);
  CHECK(box.wait_type(wire::Type::ended, "pxproc"));
}

TEST_CASE("limits and states refuse an exec") {
  NEED_BOX(BoxOptions{.live_execs = 2});
  box.shell("pxa", "sleep 60");
  box.shell("pxb", "sleep 60");
  REQUIRE(box.wait_type(wire::Type::started, "pxb"));
  box.shell("pxc", "true");
  auto failed = box.wait_type(wire::Type::exec_failed, "pxc");
  REQUIRE(failed);
  CHECK(failed->as<wire::ExecFailed>().error == EAGAIN);
  CHECK(failed->as<wire::ExecFailed>().stage == static_cast<std::uint32_t>(wire::Stage::too_many));
  box.shell("pxa", "true");
  failed = box.wait_type(wire::Type::exec_failed, "pxa");
  REQUIRE(failed);
  CHECK(failed->as<wire::ExecFailed>().error == EEXIST);
  CHECK(box.signal("pxa", SIGKILL, wire::Scope::all) == 0);
  REQUIRE(box.wait_exit("pxa"));
  box.request(wire::Type::mark, wire::Mark{1, 0});
  REQUIRE(box.wait_type(wire::Type::done));
  box.shell("pxd", "true");
  failed = box.wait_type(wire::Type::exec_failed, "pxd");
  REQUIRE(failed);
  CHECK(failed->as<wire::ExecFailed>().stage == static_cast<std::uint32_t>(wire::Stage::paused));
  box.request(wire::Type::mark, wire::Mark{0, 0});
  REQUIRE(box.wait_type(wire::Type::done));
  CHECK(box.run("pxd", "true"));
  std::vector<std::uint16_t> types;
  for (const auto& record : box.journal()) {
    types.push_back(record.type);
  }
  CHECK(std::ranges::count(types, static_cast<std::uint16_t>(wire::Record::paused)) == 1);
  CHECK(std::ranges::count(types, static_cast<std::uint16_t>(wire::Record::resumed)) == 1);
}

TEST_CASE("a hundred execs at once among orphans: none is lost, no zombie stays") {
  NEED_BOX();
  REQUIRE(
      box.run("pxorphans", "for i in 1 2 3 4 5 6 7 8 9 10; do (sleep 0.2 & sleep 0.2 &) ; done"));
  for (int i = 0; i < 100; ++i) {
    box.shell("px" + std::to_string(i), "echo " + std::to_string(i));
  }
  for (int i = 0; i < 100; ++i) {
    const std::string px = "px" + std::to_string(i);
    auto exit = box.wait_exit(px);
    REQUIRE(exit);
    CHECK(exit->code == 0);
    CHECK(box.output(px) == std::to_string(i) + "\n");
  }
  CHECK(InitBox::eventually([&] {
    std::ifstream children("/proc/" + std::to_string(box.host_pid()) + "/task/" +
                           std::to_string(box.host_pid()) + "/children");
    std::string all;
    std::getline(children, all);
    return all.empty();
  }));
}

TEST_CASE("a workload that stops everything does not delay init") {
  NEED_BOX();
  box.shell("pxstop", "while :; do kill -STOP -1; done");
  REQUIRE(box.wait_type(wire::Type::started, "pxstop"));
  wire::EndExec end{};
  std::string("pxstop").copy(end.px, sizeof end.px);
  const std::uint64_t id = box.request(wire::Type::end_exec, end);
  CHECK(box.wait(
      [&](const Frame& f) { return f.type() == wire::Type::done && f.head.request == id; }));
  auto exit = box.wait_exit("pxstop");
  REQUIRE(exit);
  CHECK(exit->signal == SIGKILL);
  CHECK(box.run("pxafter", "true"));
}

TEST_CASE("F10: execs are answered while a workload stops all others over and over") {
  NEED_BOX();
  box.shell("pxstopper", "while :; do kill -STOP -1; done");
  REQUIRE(box.wait_type(wire::Type::started, "pxstopper"));
  for (int i = 0; i < 20; ++i) {
    box.shell("px" + std::to_string(i), "true");
  }
  for (int i = 0; i < 20; ++i) {
    const std::string px = "px" + std::to_string(i);
    auto frame = box.wait([&](const Frame& f) {
      return (f.type() == wire::Type::started || f.type() == wire::Type::exec_failed) &&
             std::string(f.payload.c_str()) == px;
    });
    REQUIRE(frame);
    if (frame->type() == wire::Type::exec_failed) {
      CHECK(frame->as<wire::ExecFailed>().error == ETIMEDOUT);
    }
  }
  CHECK(box.signal("pxstopper", SIGKILL, wire::Scope::all) == 0);
  REQUIRE(box.wait_exit("pxstopper"));
  CHECK(box.run("pxafter", "true"));
}

TEST_CASE("F7: a child that makes init its tracer still ends") {
  NEED_BOX();
  const char* python = "/usr/bin/python3";
  if (::access(python, X_OK) != 0) {
    WARN("SKIP: needs python3");
    return;
  }
  box.exec("pxtrace",
           {.argv = {python, "-c",
                     "import ctypes,os,signal\n"
                     "ctypes.CDLL(None).ptrace(0,0,0,0)\n"
                     "signal.signal(signal.SIGUSR1, lambda *a: print('handled', flush=True))\n"
                     "os.kill(os.getpid(), signal.SIGUSR1)\n"
                     "print('went on', flush=True)\n"}});
  auto exit = box.wait_exit("pxtrace");
  REQUIRE(exit);
  CHECK(exit->code == 0);
  CHECK(box.output("pxtrace") == "handled\nwent on\n");
}

TEST_CASE("out of descriptors: refused, and well again afterwards") {
  NEED_BOX(BoxOptions{.open_files = 48});
  int started = 0;
  int refused = 0;
  for (int i = 0; i < 20; ++i) {
    const std::string px = "px" + std::to_string(i);
    box.shell(px, "exec sleep 60");
    auto frame = box.wait([&](const Frame& f) {
      return (f.type() == wire::Type::started || f.type() == wire::Type::exec_failed) &&
             std::string(f.payload.c_str()) == px;
    });
    REQUIRE(frame);
    if (frame->type() == wire::Type::started) {
      ++started;
    } else {
      ++refused;
      CHECK(frame->as<wire::ExecFailed>().error == EMFILE);
    }
  }
  CHECK(started > 2);
  CHECK(refused > 2);
  for (int i = 0; i < started; ++i) {
    CHECK(box.signal("px" + std::to_string(i), SIGKILL, wire::Scope::all) == 0);
    REQUIRE(box.wait_type(wire::Type::ended, "px" + std::to_string(i)));
  }
  CHECK(box.run("pxafter", "true"));
  if (box.has_cgroups()) {
    CHECK(InitBox::eventually([&] { return box.exec_groups().size() == 1; }));
  }
}

TEST_CASE("the budget of all logs removes the oldest ended ones") {
  NEED_BOX(BoxOptions{.log_budget = 300'000});
  for (int i = 0; i < 6; ++i) {
    auto exit = box.run("px" + std::to_string(i), "head -c 100000 /dev/zero");
    REQUIRE(exit);
    CHECK(exit->flags == 0);
    REQUIRE(box.wait_type(wire::Type::ended, "px" + std::to_string(i)));
  }
  CHECK(box.log_files() == std::vector<std::string>{"journal", "px4.0", "px5.0"});
  CHECK(box.journal().size() == 13);
}
