#include "kernel/sandbox_support.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>

#include "base/id.h"
#include "isolate/log_reader.h"

namespace talon::testing {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

namespace {

constexpr const char* kBusybox = "/bin/busybox";

bool is_static_elf(const char* path) {
  // A dynamic program names its loader in a PT_INTERP segment near the start.
  std::ifstream in{path, std::ios::binary};
  std::string head(4096, '\0');
  in.read(head.data(), static_cast<std::streamsize>(head.size()));
  return head.starts_with("\177ELF") && head.find("/ld-linux") == std::string::npos;
}

void write_text(const fs::path& path, const std::string& text) { std::ofstream{path} << text; }

void make_image(const fs::path& root) {
  for (const char* dir :
       {"bin", "etc", "dev", "proc", "sys", "tmp", "workspace", "root", "home/user"}) {
    fs::create_directories(root / dir);
  }
  fs::permissions(root / "tmp", fs::perms{01777});
  fs::copy_file(kBusybox, root / "bin/busybox");
  for (const char* name :
       {"sh",    "cat",     "ls",     "true",     "id",    "touch", "stat",  "mount", "umount",
        "mknod", "sleep",   "echo",   "readlink", "grep",  "rm",    "mkdir", "ip",    "hostname",
        "kill",  "unshare", "chroot", "head",     "dd",    "test",  "ps",    "pwd",   "find",
        "tail",  "seq",     "df",     "wc",       "chown", "printf"}) {
    fs::create_symlink("busybox", root / "bin" / name);
  }
  write_text(root / "etc/passwd",
             "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n");
  write_text(root / "etc/group", "root:x:0:\ntty:x:5:\nuser:x:1000:\n");
  write_text(root / "etc/marker", "from the image\n");
}

[[noreturn]] void give_up(const std::string& what) {
  throw std::runtime_error("sandbox tests: " + what);  // Catch2 reports it; the Lab cleans up
}

DirFd open_dir(const fs::path& path) {
  auto fd = open_at(AT_FDCWD, path, O_RDONLY | O_DIRECTORY);
  if (!fd) {
    give_up(fd.error().message);
  }
  return std::move(*fd);
}

std::size_t count_entries(const char* path) {
  DIR* dir = opendir(path);
  std::size_t count = 0;
  while (readdir(dir) != nullptr) {
    ++count;
  }
  closedir(dir);
  return count;
}

}  // namespace

std::string missing_for_sandboxes() {
  if (geteuid() != 0) {
    return "needs root";
  }
  if (!fs::exists(kBusybox) || !is_static_elf(kBusybox)) {
    return "needs a static /bin/busybox (apt-get install busybox-static)";
  }
  const auto facts = isolate::probe_host("");
  if (!facts) {
    return facts.error().message;
  }
  if (!facts->cgroup_problem.empty()) {
    return facts->cgroup_problem;
  }
  return facts->overlayfs ? "" : "needs overlayfs";
}

Lab::Lab() {
  dir_ = fs::temp_directory_path() / ("talon-kernel-" + random_hex(6));
  fs::create_directories(dir_ / "run");
  make_image(image());
  config_ = {.run_dir = dir_ / "run",
             .cgroup_path = "",
             .instance = "test" + random_hex(4),
             .data_dir = dir_,
             .lease_dir = dir_ / "ids"};
  restart_launcher();
}

Lab::~Lab() {
  if (launcher_ != nullptr) {
    launcher_->sweep({});
    rmdir(launcher_->cgroup_path().c_str());
    launcher_.reset();
  }
  std::error_code ignored;
  fs::remove_all(dir_, ignored);
}

void Lab::restart_launcher() {
  launcher_.reset();
  auto started = isolate::Launcher::start(config_);
  if (!started) {
    give_up(started.error().message);
  }
  launcher_ = std::move(*started);
}

isolate::SandboxSpec Lab::spec() {
  isolate::SandboxSpec spec;
  spec.id = new_id(IdKind::sandbox);
  spec.on_orphan = isolate::OnOrphan::die;  // a test that is killed leaves no process
  return spec;
}

Result<Box> Lab::try_create(const isolate::SandboxSpec& spec, bool workspace) {
  fs::create_directories(root_of(spec.id) / "workspace");
  Box box;
  box.image = open_dir(image());
  box.root = open_dir(root_of(spec.id));
  box.workspace = open_dir(root_of(spec.id) / "workspace");
  const isolate::SandboxDirs dirs{
      .image = &box.image, .root = &box.root, .workspace = workspace ? &box.workspace : nullptr};
  const auto make = [&]() -> Result<std::unique_ptr<isolate::Sandbox>> {
    if (!ahead) {
      return launcher_->create(spec, dirs);
    }
    isolate::SandboxSpec unlimited = spec;
    unlimited.limits = {};
    TALON_TRY(prepared, launcher_->prepare(*ahead, unlimited, dirs));
    return launcher_->create(spec, dirs, std::move(prepared));
  };
  TALON_TRY(sandbox, make());
  box.sandbox = std::move(sandbox);
  return box;
}

Box Lab::create(const isolate::SandboxSpec& spec, bool workspace) {
  auto box = try_create(spec, workspace);
  if (!box) {
    give_up(box.error().message);
  }
  return std::move(*box);
}

void Lab::destroy(Box& box) {
  if (auto done = box->kill(10s); !done) {
    give_up(done.error().message);
  }
  if (auto done = box->remove(); !done) {
    give_up(done.error().message);
  }
  box.sandbox.reset();
  launcher_->drain();
}

Ran Lab::run(Box& box, std::vector<std::string> argv, const std::string& user) {
  isolate::ExecSpec spec;
  spec.argv = std::move(argv);
  spec.user = user;
  return run_spec(box, std::move(spec));
}

Ran Lab::run_spec(Box& box, isolate::ExecSpec spec) {
  spec.id = new_id(IdKind::exec);
  isolate::add_default_env(spec.env);
  Ran ran;
  auto request = box->exec(spec);
  if (!request) {
    ran.err = "exec: " + request.error().message;
    return ran;
  }
  for (;;) {
    auto event = box->wait_event(30s);
    if (!event) {
      ran.err = "event: " + event.error().message;
      return ran;
    }
    if (const auto* failed = std::get_if<isolate::event::ExecFailed>(&*event);
        failed != nullptr && failed->px == spec.id) {
      ran.err = "exec failed: stage " + std::to_string(static_cast<unsigned>(failed->stage)) +
                " errno " + std::to_string(failed->error);
      return ran;
    }
    if (const auto* closed = std::get_if<isolate::event::Closed>(&*event)) {
      ran.err = "closed: " + closed->reason;
      return ran;
    }
    if (const auto* exited = std::get_if<isolate::event::Exited>(&*event);
        exited != nullptr && exited->px == spec.id) {
      ran.code = exited->info.code;
      ran.signal = exited->info.signal;
      break;
    }
  }
  const DirFd logs = open_dir(root_of(box->identity().id) / "logs");
  auto reader = isolate::LogReader::open(logs.get(), spec.id);
  if (!reader) {
    ran.err = "log: " + reader.error().message;
    return ran;
  }
  std::vector<isolate::LogEntry> entries;
  while (reader->read(entries).value_or(false)) {
  }
  for (const auto& entry : entries) {
    if (entry.kind == wire::Kind::out || entry.kind == wire::Kind::tty) {
      ran.out += entry.bytes;
    } else if (entry.kind == wire::Kind::err) {
      ran.err += entry.bytes;
    }
  }
  return ran;
}

Ran Lab::sh(Box& box, const std::string& text, const std::string& user) {
  return run(box, {"/bin/sh", "-c", text}, user);
}

std::string trim(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) {
    text.pop_back();
  }
  return text;
}

std::string status_field(const std::string& text, const std::string& name) {
  const auto at = ("\n" + text).find("\n" + name + ":");
  if (at == std::string::npos) {
    return "(no " + name + ")";
  }
  const auto begin = text.find_first_not_of(" \t", at + name.size() + 1);
  return text.substr(begin, text.find('\n', begin) - begin);
}

std::size_t count_own_fds() { return count_entries("/proc/self/fd"); }

std::size_t count_own_mounts() {
  std::ifstream in{"/proc/self/mountinfo"};
  return static_cast<std::size_t>(std::count(std::istreambuf_iterator<char>{in}, {}, '\n'));
}

}  // namespace talon::testing
