#include "support/daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "support/machine.h"

namespace fs = std::filesystem;

namespace talon::test {
namespace {

const std::string kPlace = std::string(TALON_BUILD_DIR) + "/e2e";
const std::string kImages = kPlace + "/images";

// What the child does about mounts before it executes: nothing, join a namespace, or make one
// with a tmpfs (`options`) at `place`.
struct MountPlan {
  int join = -1;
  std::string place;
  std::string options;
};

bool apply(const MountPlan& plan) {
  if (plan.join >= 0) {
    return setns(plan.join, CLONE_NEWNS) == 0;
  }
  return plan.place.empty() ||
         (unshare(CLONE_NEWNS) == 0 &&
          mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
          mount("talon-test", plan.place.c_str(), "tmpfs", 0, plan.options.c_str()) == 0);
}

// fork + exec of `args`, both output streams to `out`. The environment is exactly `env`.
pid_t start_process(const std::vector<std::string>& args,
                    const std::map<std::string, std::string>& env, int out,
                    const MountPlan& mounts = {}) {
  std::vector<std::string> pairs;
  for (const auto& [name, value] : env) {
    pairs.push_back(name + "=" + value);
  }
  std::vector<char*> argv;
  std::vector<char*> envp;
  for (const auto& arg : args) {
    argv.push_back(const_cast<char*>(arg.c_str()));
  }
  for (const auto& pair : pairs) {
    envp.push_back(const_cast<char*>(pair.c_str()));
  }
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    if (!apply(mounts)) {
      _exit(125);
    }
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(null, 0);
    dup2(out, 1);
    dup2(out, 2);
    // talond must not die of a terminal's signals, and the test must not of its.
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that is killed takes its daemon along
    execve(argv[0], argv.data(), envp.data());
    _exit(126);
  }
  return pid;
}

int wait_for(pid_t pid, Seconds deadline) {
  int status = 0;
  const bool ended = eventually(deadline, [&] { return waitpid(pid, &status, WNOHANG) == pid; });
  if (!ended) {
    return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::map<std::string, std::string> small_environment() {
  return {{"PATH", "/usr/sbin:/usr/bin:/sbin:/bin"}, {"HOME", "/root"}, {"LANG", "C.UTF-8"}};
}

std::string make_temp(const std::string& pattern) {
  std::string path = pattern + "XXXXXX";
  REQUIRE(mkdtemp(path.data()) != nullptr);
  return path;
}

}  // namespace

void nap(Seconds time) { std::this_thread::sleep_for(time); }

std::vector<std::string> Snapshot::added(const Snapshot& after) const {
  std::vector<std::string> more;
  for (const auto& line : after.lines) {
    if (!lines.contains(line)) {
      more.push_back(line);
    }
  }
  return more;
}

std::string Daemon::binary() {
  const char* given = std::getenv("TALON_TEST_BIN");
  return given && *given ? given : test_binary();
}

std::string Daemon::test_binary() { return std::string(TALON_BUILD_DIR) + "/talond"; }

Daemon::Daemon(Options options) : options_(std::move(options)) {
  fs::create_directories(kPlace);
  data_ = make_temp(kPlace + "/d.");
  run_ = make_temp("/tmp/talon-e2e.");
  const auto mount = machine::cgroup2_mount();
  REQUIRE_FALSE(mount.empty());
  cgroup_ = make_temp(mount + "/talon-e2e-");
  if (options_.image) {
    take_image();
  }
  if (options_.start) {
    start();
  }
}

Daemon::~Daemon() {
  if (pid_ > 0) {
    kill_hard();
  }
  machine::end_group(cgroup_);
  give_image_back();
  machine::remove_tree(data_);
  machine::remove_tree(run_);
  machine::remove_tree(run_ + ".log");
}

void Daemon::take_image() {
  std::error_code ec;
  if (fs::exists(kImages)) {
    fs::rename(kImages, data_ + "/images", ec);
  }
}

void Daemon::give_image_back() {
  std::error_code ec;
  if (options_.image && fs::exists(data_ + "/images") && !fs::exists(kImages)) {
    fs::rename(data_ + "/images", kImages, ec);
  }
}

std::vector<std::string> Daemon::serve_args() const {
  std::vector<std::string> args = {"serve",     "--listen", "127.0.0.1:0", "--data-dir", data_,
                                   "--run-dir", run_,       "--cgroup",    cgroup_};
  args.insert(args.end(), options_.args.begin(), options_.args.end());
  return args;
}

void Daemon::start() {
  const bool listens = start_or_end();
  INFO("talond said:\n" << this->log());
  REQUIRE(listens);
}

void Daemon::set_env(const std::string& name, const std::string& value) {
  if (value.empty()) {
    options_.env.erase(name);
  } else {
    options_.env[name] = value;
  }
}

bool Daemon::start_or_end() {
  std::error_code ec;
  fs::remove(run_ + "/address", ec);
  const int log = open((run_ + ".log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  REQUIRE(log >= 0);
  auto env = small_environment();
  // What is made ahead comes and goes by itself, so tests that count what is there do without.
  env["TALON_POOLS_HIGH"] = "0";
  env["TALON_POOLS_LOW"] = "0";
  for (const auto& [name, value] : options_.env) {
    env[name] = value;
  }
  std::vector<std::string> args = serve_args();
  const bool faults = std::ranges::any_of(
      options_.env, [](const auto& set) { return set.first.starts_with("TALON_TEST_"); });
  args.insert(args.begin(), faults ? test_binary() : binary());
  MountPlan mounts;
  if (options_.small_disk_mib != 0) {
    mounts.place = data_;
    mounts.options = "size=" + std::to_string(options_.small_disk_mib) + "m";
  }
  pid_ = start_process(args, env, log, mounts);
  close(log);
  REQUIRE(pid_ > 0);
  std::string address;
  bool ended = false;
  // The first start of all makes the host image, which takes seconds on a busy machine.
  eventually(Seconds(180), [&] {
    if (wait_for(pid_, Seconds(0)) >= 0) {
      ended = true;
      return true;
    }
    address = machine::read_file(run_ + "/address");
    key_ = machine::read_file(data_seen() + "/keys/admin.key");
    return !address.empty() && address.find('\n') != std::string::npos && !key_.empty();
  });
  INFO("talond said:\n" << this->log());
  if (ended) {
    pid_ = -1;
    return false;
  }
  REQUIRE_FALSE(address.empty());
  while (!key_.empty() && std::isspace(static_cast<unsigned char>(key_.back()))) {
    key_.pop_back();
  }
  const auto line = address.substr(0, address.find('\n'));
  port_ = static_cast<std::uint16_t>(std::stoi(line.substr(line.rfind(':') + 1)));
  return true;
}

void Daemon::signal(int number) {
  if (pid_ > 0) {
    kill(pid_, number);
  }
}

int Daemon::wait(Seconds deadline) {
  const int code = wait_for(pid_, deadline);
  if (code >= 0) {
    pid_ = -1;
  }
  return code;
}

int Daemon::stop() {
  signal(SIGTERM);
  return wait(Seconds(60));
}

void Daemon::kill_hard() {
  signal(SIGKILL);
  wait(Seconds(20));
}

void Daemon::reboot(const std::string& boot_id) {
  power_off(boot_id);
  start();
}

void Daemon::power_off(const std::string& boot_id) {
  kill_hard();
  machine::end_group(cgroup_);
  machine::remove_tree(run_);
  options_.env["TALON_TEST_BOOT_ID"] = boot_id;
}

std::string Daemon::data_seen() const {
  return options_.small_disk_mib == 0 ? data_ : "/proc/" + std::to_string(pid_) + "/root" + data_;
}

std::string Daemon::log() const { return machine::read_file(run_ + ".log"); }

ProcessUse Daemon::use() const {
  ProcessUse use;
  const auto proc = "/proc/" + std::to_string(pid_);
  use.fds = machine::entries(proc + "/fd").size();
  use.threads = machine::entries(proc + "/task").size();
  std::istringstream statm(machine::read_file(proc + "/statm"));
  std::uint64_t size = 0;
  std::uint64_t resident = 0;
  statm >> size >> resident;
  use.rss_bytes = resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return use;
}

Snapshot Daemon::snapshot() const {
  Snapshot snap;
  for (const auto& group : machine::groups_below(cgroup_)) {
    // The daemon's own instance group stays as long as it lives; what is below counts.
    snap.lines.insert("cgroup " + group);
  }
  for (const pid_t pid : machine::processes_below(cgroup_)) {
    snap.lines.insert("process " + std::to_string(pid) + " " + machine::comm(pid));
  }
  for (const auto& mount : machine::mounts()) {
    snap.lines.insert("mount " + mount);
  }
  for (const auto* folder : {"/sandboxes", "/trash", "/workspaces"}) {
    for (const auto& name : machine::entries(data_seen() + folder)) {
      snap.lines.insert("data " + std::string(folder) + "/" + name);
    }
  }
  for (const auto& name : machine::entries(run_)) {
    snap.lines.insert("run " + name);
  }
  for (const auto& name : machine::entries("/run/netns")) {
    snap.lines.insert("netns " + name);
  }
  return snap;
}

std::vector<std::string> Daemon::settled(const Snapshot& before, Seconds deadline) const {
  std::vector<std::string> left;
  eventually(deadline, [&] {
    left = before.added(snapshot());
    return left.empty();
  });
  return left;
}

std::string Daemon::group_of(const std::string& sandbox) const {
  for (const auto& group : machine::groups_below(cgroup_)) {
    if (fs::path(group).filename() == sandbox) {
      return group;
    }
  }
  return {};
}

std::vector<pid_t> Daemon::processes(const std::string& sandbox) const {
  const auto group = sandbox.empty() ? cgroup_ : group_of(sandbox);
  return group.empty() ? std::vector<pid_t>() : machine::processes_below(group);
}

Daemon::Ran Daemon::run_talond(const std::vector<std::string>& args, Seconds deadline,
                               pid_t beside) {
  Ran ran;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return ran;
  }
  std::vector<std::string> all = args;
  all.insert(all.begin(), binary());
  MountPlan mounts;
  if (beside > 0) {
    const auto path = "/proc/" + std::to_string(beside) + "/ns/mnt";
    mounts.join = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  }
  const pid_t pid = start_process(all, small_environment(), ends[1], mounts);
  close(ends[1]);
  if (mounts.join >= 0) {
    close(mounts.join);
  }
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  int status = 0;
  bool ended = false;
  eventually(deadline, [&] {
    ended = waitpid(pid, &status, WNOHANG) == pid;
    char bytes[4096];
    for (ssize_t n; (n = read(ends[0], bytes, sizeof(bytes))) > 0;) {
      ran.output.append(bytes, static_cast<std::size_t>(n));
    }
    return ended;
  });
  if (ended) {
    ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  } else {
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
  }
  close(ends[0]);
  return ran;
}

std::string make_sandbox(const Client& client, boost::json::object body) {
  const auto reply = client.post("/v1/sandboxes?wait=running", body);
  INFO("create: " << reply.status << " " << reply.error << " " << reply.body);
  REQUIRE(reply.status == 201);
  REQUIRE(reply.text("state") == "running");
  const auto id = reply.text("id");
  REQUIRE(id.starts_with("sb"));
  return id;
}

Reply run_in(const Client& client, const std::string& sandbox, boost::json::object body) {
  auto reply = client.post("/v1/sandboxes/" + sandbox + "/run", body);
  INFO("run: " << reply.status << " " << reply.error << " " << reply.body.substr(0, 2000));
  REQUIRE(reply.status == 200);
  return reply;
}

Reply run_in(const Client& client, const std::string& sandbox, const std::string& command) {
  return run_in(client, sandbox, boost::json::object{{"command", command}});
}

std::string spawn_in(const Client& client, const std::string& sandbox, boost::json::object body) {
  const auto reply = client.post("/v1/sandboxes/" + sandbox + "/processes", body);
  INFO("spawn: " << reply.status << " " << reply.error << " " << reply.body.substr(0, 2000));
  REQUIRE(reply.status == 201);
  const auto id = reply.text("id");
  REQUIRE(id.starts_with("px"));
  return id;
}

Reply wait_exec(const Client& client, const std::string& sandbox, const std::string& px,
                Seconds deadline) {
  Reply reply;
  eventually(deadline, [&] {
    reply = client.get("/v1/sandboxes/" + sandbox + "/processes/" + px);
    const auto state = reply.text("state");
    return reply.status != 200 || (state != "running" && state != "starting");
  });
  return reply;
}

int exit_code(const Reply& reply) {
  const auto code = reply.at("exit_code");
  return code.is_number() ? code.to_number<int>() : -1;
}

int rounds(int usual) {
  const char* given = std::getenv("TALON_TEST_ROUNDS");
  return given && *given ? std::atoi(given) : usual;
}

}  // namespace talon::test
