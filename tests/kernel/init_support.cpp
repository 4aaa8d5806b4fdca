#include "kernel/init_support.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

extern "C" const unsigned char talon_init_begin[];
extern "C" const unsigned char talon_init_end[];

namespace talon::test {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kWorkloadCaps = 0xfb;  // CHOWN DAC_OVERRIDE FOWNER..SETUID as decision 3

std::string cgroup2_mount() {
  std::ifstream mounts("/proc/self/mounts");
  std::string line;
  while (std::getline(mounts, line)) {
    const auto first = line.find(' ');
    const auto second = line.find(' ', first + 1);
    if (line.compare(second + 1, 8, "cgroup2 ") == 0) {
      return line.substr(first + 1, second - first - 1);
    }
  }
  return "";
}

UniqueFd bytes_memfd(std::span<const std::byte> bytes) {
  auto fd = sealed_memfd("test", bytes);
  return fd ? std::move(*fd) : UniqueFd();
}

UniqueFd plan_memfd(const BoxOptions& options) {
  std::vector<wire::PlanStep> steps;
  wire::PlanStep step{};
  if (options.open_files != 0) {
    step.op = static_cast<std::uint32_t>(wire::Op::rlimit_nofile);
    step.a = step.b = options.open_files;
    steps.push_back(step);
  }
  step = {};
  step.op = static_cast<std::uint32_t>(wire::Op::listen);
  step.a = 16;
  steps.push_back(step);
  wire::PlanHeader head{};
  head.magic = wire::kPlanMagic;
  head.version = wire::kVersion;
  head.size = static_cast<std::uint32_t>(sizeof head + steps.size() * sizeof step);
  head.step_count = static_cast<std::uint32_t>(steps.size());
  head.flags = options.flags;
  head.live_execs = options.live_execs;
  head.workload_caps = kWorkloadCaps;
  head.init_caps = ~0ull;
  head.log_budget = options.log_budget;
  std::memcpy(head.nonce, kNonce, sizeof kNonce);
  options.default_cwd.copy(head.default_cwd, sizeof head.default_cwd - 1);
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  bytes.append(reinterpret_cast<const char*>(steps.data()), steps.size() * sizeof step);
  return bytes_memfd(std::as_bytes(std::span(bytes)));
}

// Only system calls from here to the execve: the child is a fork of a threaded program.
[[noreturn]] void become_init(const std::vector<std::pair<int, int>>& table, int elf) {
  for (const auto& [from, to] : table) {
    ::dup2(from, to);
  }
  char name[] = "talon-init";
  char* argv[] = {name, nullptr};
  char* envp[] = {nullptr};
  ::syscall(SYS_execveat, elf, "", argv, envp, AT_EMPTY_PATH);
  ::_exit(99);
}

void remove_groups(const std::string& group) {
  const bool gone = InitBox::eventually([&] {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(group + "/x", ignored)) {
      if (entry.is_directory()) {
        ::rmdir(entry.path().c_str());
      }
    }
    ::rmdir((group + "/x").c_str());
    return ::rmdir(group.c_str()) == 0 || errno == ENOENT;
  });
  if (!gone) {
    std::fprintf(stderr, "left behind: %s\n", group.c_str());
  }
}

}  // namespace

std::string why_not() { return ::geteuid() == 0 ? "" : "needs root"; }

InitBox::InitBox(BoxOptions options) { up_ = start(options); }

bool InitBox::start(const BoxOptions& options) {
  char name[] = "/tmp/talon-init-test-XXXXXX";
  if (::mkdtemp(name) == nullptr) {
    return false;
  }
  dir_ = name;
  logs_dir_ = options.logs_dir.empty() ? dir_ + "/logs" : options.logs_dir;
  ::mkdir(logs_dir_.c_str(), 0700);
  logs_.reset(::open(logs_dir_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  UniqueFd journal(::openat(logs_.get(), "journal", O_CREAT | O_RDWR | O_APPEND | O_CLOEXEC, 0600));
  event_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const std::string mount = options.cgroups ? cgroup2_mount() : "";
  if (!mount.empty()) {
    group_ = mount + "/" + std::filesystem::path(dir_).filename().string();
    if (::mkdir(group_.c_str(), 0755) == 0 && ::mkdir((group_ + "/x").c_str(), 0755) == 0) {
      execs_.reset(::open((group_ + "/x").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    }
  }
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    return false;
  }
  conn_.reset(pair[0]);
  UniqueFd theirs(pair[1]);
  socket_path_ = dir_ + "/init.sock";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socket_path_.copy(address.sun_path, sizeof address.sun_path - 1);
  UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    return false;
  }
  UniqueFd plan = plan_memfd(options);
  UniqueFd elf = bytes_memfd(std::as_bytes(std::span(talon_init_begin, talon_init_end)));
  auto slot = [](wire::Slot s) { return wire::kFdBase + static_cast<int>(s); };
  // Sources are moved above the target range first, so that no dup2 overwrites a later source.
  std::vector<UniqueFd> high;
  std::vector<std::pair<int, int>> table;
  auto give = [&](const UniqueFd& fd, int to) {
    if (fd) {
      high.emplace_back(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 100));
      table.emplace_back(high.back().get(), to);
    }
  };
  give(plan, wire::kPlanFd);
  give(theirs, slot(wire::Slot::conn));
  give(listener, slot(wire::Slot::listener));
  give(event_, slot(wire::Slot::event));
  give(logs_, slot(wire::Slot::logs));
  give(journal, slot(wire::Slot::journal));
  give(execs_, slot(wire::Slot::execs));
  UniqueFd program(::fcntl(elf.get(), F_DUPFD_CLOEXEC, 200));

  int pidfd = -1;
  clone_args args{};
  args.flags = CLONE_NEWPID | CLONE_PIDFD | CLONE_CLEAR_SIGHAND;
  args.pidfd = reinterpret_cast<std::uint64_t>(&pidfd);
  args.exit_signal = SIGCHLD;
  const long pid = ::syscall(SYS_clone3, &args, sizeof args);
  if (pid == 0) {
    become_init(table, program.get());
  }
  if (pid < 0) {
    return false;
  }
  pid_ = static_cast<int>(pid);
  pidfd_.reset(pidfd);
  theirs.reset();
  high.clear();
  return wait_type(wire::Type::ready).has_value();
}

InitBox::~InitBox() {
  if (pid_ > 0) {
    ::syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
    ::waitpid(pid_, nullptr, __WALL);
  }
  if (!group_.empty()) {
    remove_groups(group_);
  }
  std::error_code ignored;
  if (!dir_.empty()) {
    std::filesystem::remove_all(dir_, ignored);
  }
}

UniqueFd InitBox::connect() const {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socket_path_.copy(address.sun_path, sizeof address.sun_path - 1);
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    fd.reset();
  }
  return fd;
}

bool InitBox::send(int fd, wire::Type type, std::uint64_t request, const void* payload,
                   std::size_t size, const std::vector<int>& fds) {
  wire::Header head{wire::kVersion, static_cast<std::uint16_t>(type),
                    static_cast<std::uint32_t>(size), request};
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  bytes.append(static_cast<const char*>(payload), size);
  return send_message(fd, std::as_bytes(std::span(bytes)), fds).has_value();
}

std::optional<Frame> InitBox::receive(int fd, milliseconds deadline) {
  pollfd poll_fd{fd, POLLIN, 0};
  if (::poll(&poll_fd, 1, static_cast<int>(deadline.count())) != 1) {
    return std::nullopt;
  }
  std::string buffer(wire::kMaxMessage, '\0');
  auto message = receive_message(fd, std::as_writable_bytes(std::span(buffer)), false);
  if (!message || message->size < sizeof(wire::Header)) {
    return std::nullopt;
  }
  Frame frame;
  buffer.copy(reinterpret_cast<char*>(&frame.head), sizeof frame.head);
  frame.payload = buffer.substr(sizeof frame.head, message->size - sizeof frame.head);
  return frame;
}

std::uint64_t InitBox::exec(const std::string& px, const ExecOptions& options, int script) {
  wire::Exec request{};
  std::string data(1, '\0');  // offset 0 is the empty string
  auto put = [&](const std::string& text) {
    const auto at = static_cast<std::uint32_t>(data.size());
    data.append(text).push_back('\0');
    return at;
  };
  px.copy(request.px, sizeof request.px - 1);
  request.flags = options.flags | (script >= 0 ? wire::kExecScript : 0u);
  request.argc = static_cast<std::uint32_t>(options.argv.size());
  request.envc = static_cast<std::uint32_t>(options.env.size());
  request.argv_off = static_cast<std::uint32_t>(data.size());
  for (const auto& arg : options.argv) {
    put(arg);
  }
  request.env_off = static_cast<std::uint32_t>(data.size());
  for (const auto& value : options.env) {
    put(value);
  }
  request.cwd_off = put(options.cwd);
  request.user_off = put(options.user);
  request.stdin_off = data.size();
  request.stdin_len = options.input.size();
  data += options.input;
  request.cols = options.cols;
  request.rows = options.rows;
  request.timeout_ms = options.timeout_ms;
  request.grace_ms = options.grace_ms;
  request.max_output = options.max_output;
  request.log_cap = options.log_cap;
  UniqueFd memfd = bytes_memfd(std::as_bytes(std::span(data)));
  std::vector<int> fds = {memfd.get()};
  if (script >= 0) {
    fds.push_back(script);
  }
  send(conn(), wire::Type::exec, ++last_request_, &request, sizeof request, fds);
  return last_request_;
}

std::uint64_t InitBox::shell(const std::string& px, const std::string& text, ExecOptions options) {
  options.argv = {"/bin/sh", "-c", text};
  return exec(px, options);
}

std::uint64_t InitBox::input(const std::string& px, std::uint64_t offset, const std::string& bytes,
                             bool close) {
  wire::StdinData data{};
  px.copy(data.px, sizeof data.px - 1);
  data.offset = offset;
  data.flags = close ? wire::kStdinClose : 0;
  data.length = static_cast<std::uint32_t>(bytes.size());
  std::string payload(reinterpret_cast<const char*>(&data), sizeof data);
  payload += bytes;
  send(conn(), wire::Type::stdin_data, ++last_request_, payload.data(), payload.size());
  return last_request_;
}

int InitBox::signal(const std::string& px, int number, wire::Scope scope) {
  wire::Signal payload{};
  px.copy(payload.px, sizeof payload.px - 1);
  payload.number = number;
  payload.scope = static_cast<std::uint32_t>(scope);
  const std::uint64_t id = request(wire::Type::signal, payload);
  auto frame =
      wait([&](const Frame& f) { return f.type() == wire::Type::done && f.head.request == id; });
  return frame ? frame->as<wire::Done>().error : -1;
}

std::optional<Frame> InitBox::wait(const std::function<bool(const Frame&)>& want,
                                   milliseconds deadline) {
  for (auto it = kept_.begin(); it != kept_.end(); ++it) {
    if (want(*it)) {
      Frame frame = std::move(*it);
      kept_.erase(it);
      return frame;
    }
  }
  const auto end = Clock::now() + deadline;
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
    auto frame = receive(conn(), std::max(left, milliseconds(0)));
    if (!frame) {
      return std::nullopt;
    }
    if (want(*frame)) {
      return frame;
    }
    kept_.push_back(std::move(*frame));
  }
}

std::optional<Frame> InitBox::wait_type(wire::Type type, const std::string& px,
                                        milliseconds deadline) {
  return wait(
      [&](const Frame& f) {
        return f.type() == type && (px.empty() || std::string(f.payload.c_str()) == px);
      },
      deadline);
}

std::optional<wire::ExitInfo> InitBox::wait_exit(const std::string& px, milliseconds deadline) {
  auto frame = wait(
      [&](const Frame& f) {
        return (f.type() == wire::Type::exited || f.type() == wire::Type::exec_failed) &&
               std::string(f.payload.c_str()) == px;
      },
      deadline);
  if (!frame || frame->type() != wire::Type::exited) {
    return std::nullopt;
  }
  return frame->as<wire::Exited>().info;
}

std::optional<wire::ExitInfo> InitBox::run(const std::string& px, const std::string& text,
                                           ExecOptions options) {
  shell(px, text, std::move(options));
  return wait_exit(px);
}

std::vector<isolate::LogEntry> InitBox::entries(const std::string& px) const {
  std::vector<isolate::LogEntry> all;
  auto reader = isolate::LogReader::open(logs(), px);
  while (reader) {
    auto more = reader->read(all);
    if (!more || !*more) {
      break;
    }
  }
  return all;
}

std::string InitBox::output(const std::string& px, wire::Kind kind) const {
  std::string text;
  for (const auto& entry : entries(px)) {
    if (entry.kind == kind) {
      text += entry.bytes;
    }
  }
  return text;
}

std::vector<wire::JournalRecord> InitBox::journal() const {
  std::uint64_t offset = 0;
  auto chunk = isolate::read_journal(logs(), offset);
  return chunk ? chunk->records : std::vector<wire::JournalRecord>{};
}

std::vector<std::string> InitBox::log_files() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(logs_dir_)) {
    if (!entry.path().filename().string().starts_with(".spare")) {  // made when nothing waits
      names.push_back(entry.path().filename().string());
    }
  }
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> InitBox::exec_groups() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(group_ + "/x")) {
    if (entry.is_directory()) {
      names.push_back(entry.path().filename().string());
    }
  }
  return names;
}

bool InitBox::init_alive() const {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == 0;
}

bool InitBox::eventually(const std::function<bool()>& done, milliseconds deadline) {
  const auto end = Clock::now() + deadline;
  while (!done()) {
    if (Clock::now() > end) {
      return false;
    }
    std::this_thread::sleep_for(milliseconds(5));
  }
  return true;
}

}  // namespace talon::test
