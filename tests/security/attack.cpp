#include "security/attack.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "security/tally.h"

namespace talon::testing {

namespace fs = std::filesystem;

namespace {

// A string from `at` (its opening quote) on; moves past the closing one. The probe escapes as
// \" \\ and \u00XX only.
std::string take_string(const std::string& line, std::size_t& at) {
  std::string out;
  for (++at; at < line.size() && line[at] != '"'; ++at) {
    if (line[at] != '\\') {
      out += line[at];
    } else if (line[++at] == 'u') {
      out += static_cast<char>(std::stoi(line.substr(at + 1, 4), nullptr, 16));
      at += 4;
    } else {
      out += line[at];
    }
  }
  ++at;
  return out;
}

Finding parse_line(const std::string& line) {
  Finding out;
  std::size_t at = 1;
  while (at < line.size() && line[at] == '"') {
    const std::string name = take_string(line, at);
    ++at;  // the colon
    if (line[at] == '"') {
      out.set(name, take_string(line, at));
    } else {
      const std::size_t end = line.find_first_of(",}", at);
      out.set(name, line.substr(at, end - at));
      at = end;
    }
    ++at;  // a comma or the end
  }
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& args) {
  std::vector<char*> out;
  for (std::string& arg : args) {
    out.push_back(arg.data());
  }
  out.push_back(nullptr);
  return out;
}

// What `child` writes to its argument until it ends; it never returns.
std::string output_of(const std::function<void(int)>& child) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    throw std::runtime_error("pipe");
  }
  const pid_t pid = fork();
  if (pid == 0) {
    child(ends[1]);
    _exit(97);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(n));
  }
  close(ends[0]);
  waitpid(pid, nullptr, 0);
  return text;
}

[[noreturn]] void run_inside(const std::string& ns, const std::vector<char*>& argv, int out,
                             const std::function<bool()>& first) {
  const int user_ns = open((ns + "user").c_str(), O_RDONLY | O_CLOEXEC);
  const int mount_ns = open((ns + "mnt").c_str(), O_RDONLY | O_CLOEXEC);
  for (const char* name : {"pid", "cgroup", "net", "ipc", "uts"}) {
    const int fd = open((ns + name).c_str(), O_RDONLY | O_CLOEXEC);
    if (setns(fd, 0) != 0) {
      _exit(99);
    }
  }
  if (setns(mount_ns, 0) != 0 || (first && !first()) || setns(user_ns, 0) != 0 ||
      setresgid(0, 0, 0) != 0 || setresuid(0, 0, 0) != 0) {
    _exit(99);
  }
  const pid_t inside = fork();  // only a child is in the pid namespace
  if (inside == 0) {
    dup2(out, 1);
    execv(argv[0], argv.data());
    _exit(98);
  }
  waitpid(inside, nullptr, 0);
  _exit(0);
}

[[noreturn]] void run_outside(const std::vector<char*>& argv, int out, unsigned uid) {
  if (unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS) != 0 ||
      mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 || dup2(out, 1) != 1) {
    _exit(99);
  }
  if (uid != 0 && (setresgid(uid, uid, uid) != 0 || setresuid(uid, uid, uid) != 0)) {
    _exit(99);
  }
  char allow[] = "PROBE_ON_HOST=1";
  char* const env[] = {allow, nullptr};
  execve(argv[0], argv.data(), env);
  _exit(98);
}

bool leaves_out(const Setup& setup, const std::string& column) {
  return std::ranges::any_of(setup.left_out, [&](const auto& out) { return out.column == column; });
}

}  // namespace

std::string Finding::operator[](const std::string& name) const {
  const auto at = members_.find(name);
  return at == members_.end() ? "" : at->second;
}

std::vector<Finding> parse_findings(const std::string& json_lines) {
  std::vector<Finding> out;
  std::istringstream in{json_lines};
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with('{') && line.ends_with('}')) {
      out.push_back(parse_line(line));
    }
  }
  return out;
}

std::string outcome(const std::vector<Finding>& findings) {
  if (findings.size() != 1) {
    return "the probe printed " + std::to_string(findings.size()) + " findings";
  }
  const Finding& only = findings.front();
  return only["signal"].empty() ? only["name"] : "signal " + only["signal"];
}

std::vector<Finding> Attacker::probe(const Args& args) {
  Args argv{"/bin/probe"};
  argv.insert(argv.end(), args.begin(), args.end());
  const Ran ran = run(std::move(argv));
  if (ran.code != 0) {
    Finding failed;
    failed.set("name", "probe ended with " + std::to_string(ran.code) + ", signal " +
                           std::to_string(ran.signal) + ", after " + ran.out + ran.err);
    return {failed};
  }
  return parse_findings(ran.out);
}

Finding Attacker::look(const Args& args) {
  const auto all = probe(args);
  return all.size() == 1 ? all.front() : Finding{};
}

std::string Attacker::attempt(const Args& args) {
  Args all{"try"};
  all.insert(all.end(), args.begin(), args.end());
  return outcome(probe(all));
}

long Attacker::number(const Finding& finding, const std::string& name) {
  const std::string text = finding[name];
  return text.empty() ? -1 : std::stol(text);
}

isolate::SandboxSpec Field::spec() {
  auto spec = lab.spec();
  spec.storage = column.storage;
  if (setup_.spec) {
    setup_.spec(spec);
  }
  return spec;
}

void in_every_column(const std::function<void(Field&)>& attack, const Setup& setup) {
  for (const LeftOut& out : setup.left_out) {
    tally_left_out(out);
  }
  for (const Column& column : kColumns) {
    if (leaves_out(setup, column.name)) {
      continue;
    }
    Lab lab;
    lab.ahead = column.ahead;
    add_probe(lab.image());
    if (setup.image) {
      setup.image(lab.image());
    }
    INFO("column " << column.name);
    Field field{lab, column, setup};
    attack(field);
    tally_ran(column.name);
  }
}

void from_every_side(const std::function<void(Attacker&)>& attack, const Setup& setup) {
  in_every_column(
      [&](Field& field) {
        Lab& lab = field.lab;
        const std::string only = field.column.user;
        Box box = field.create();
        const pid_t init = box->identity().host_pid;
        for (const std::string user : {"", "user"}) {
          if ((!only.empty() && user != only) || (!user.empty() && leaves_out(setup, user))) {
            continue;
          }
          INFO("as " << (user.empty() ? "root" : user));
          Attacker attacker{lab, box, user};
          attack(attacker);
          const Ran after = lab.run(box, {"/bin/echo", "alive"});
          INFO("code " << after.code << " signal " << after.signal << " stderr " << after.err);
          CHECK(after.out == "alive\n");
          CHECK(fs::exists("/proc/" + std::to_string(init)));
        }
        lab.destroy(box);
      },
      setup);
}

std::vector<Finding> outside(const Args& args, unsigned as_uid) {
  Args all{probe_path()};
  all.insert(all.end(), args.begin(), args.end());
  const auto argv = pointers(all);
  return parse_findings(output_of([&](int out) { run_outside(argv, out, as_uid); }));
}

std::vector<Finding> inside_with_all(pid_t init, const Args& args,
                                     const std::function<bool()>& first) {
  Args all{"/bin/probe"};
  all.insert(all.end(), args.begin(), args.end());
  const auto argv = pointers(all);
  const std::string ns = "/proc/" + std::to_string(init) + "/ns/";
  return parse_findings(output_of([&](int out) { run_inside(ns, argv, out, first); }));
}

std::vector<pid_t> inhabitants(pid_t init) {
  std::error_code gone;  // processes end while we look
  const fs::path home = fs::read_symlink("/proc/" + std::to_string(init) + "/ns/pid", gone);
  std::vector<pid_t> out;
  for (const auto& entry : fs::directory_iterator{"/proc", gone}) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") == std::string::npos && !home.empty() &&
        fs::read_symlink(entry.path() / "ns/pid", gone) == home) {
      out.push_back(std::stoi(name));
    }
  }
  return out;
}

std::string attempt_outside(Args args) {
  args.insert(args.begin(), "try");
  return outcome(outside(args));
}

std::string probe_path() { return TALON_BUILD_DIR "/tests/probe/probe"; }

void add_probe(const fs::path& image) {
  fs::copy_file(probe_path(), image / "bin/probe", fs::copy_options::overwrite_existing);
}

Canary::Canary(const Lab& lab) : dir_(lab.dir() / "host-only") {
  fs::create_directories(dir_);
  std::ofstream{file()} << "of the host\n";
}

bool Canary::untouched() const {
  std::size_t entries = 0;
  for (const auto& entry : fs::directory_iterator{dir_}) {
    entries += entry.path().empty() ? 0 : 1;
  }
  return entries == 1 && read_text(file()) == "of the host\n";
}

std::string read_text(const fs::path& path) {
  std::ifstream in{path};
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

}  // namespace talon::testing
