#include "isolate/sandbox.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/fault.h"
#include "isolate/exec_request.h"
#include "isolate/kernel/pidfd.h"
#include "isolate/sandbox_impl.h"

namespace talon::isolate {

namespace {

constexpr std::size_t kEventBytes = 1024;  // no frame that init sends after Ready is larger

// What a sandbox that has ended leaves in the kernel, and its removal. What cannot be removed keeps
// its id lease, and the next start's sweep() takes it.
struct Remains {
  CgroupTree cgroup;
  std::string run_dir;
  std::shared_ptr<LeasePool> leases;
  std::uint32_t lease = 0;
  MountFd files;

  void operator()() {
    // Init's end kills its pid namespace, but a process that was moved out of it cannot be
    // there; the kill is for the group as a whole and costs nothing.
    fault::stop("end.cgroup");
    const bool gone = cgroup.kill() && cgroup.remove();
    fault::stop("end.run_dir");
    (void)remove_run_dir(run_dir);
    fault::stop("end.lease");
    if (gone) {
      leases->release(lease);
    }
    files.reset();
  }
};

class Live final : public Sandbox {
 public:
  explicit Live(SandboxParts parts) : p_(std::move(parts)) {}
  ~Live() override {
    if (p_.files) {
      p_.closer->close(p_.identity.id, std::move(p_.files));
    }
  }

  const Identity& identity() const override { return p_.identity; }
  int init_fd() const override { return p_.conn.get(); }
  int pid_fd() const override { return p_.pidfd.get(); }
  int event_fd() const override { return p_.event.get(); }
  int files_fd() const override { return p_.files.get(); }
  const CgroupApplied& limits() const override { return p_.cgroup.applied(); }
  DiskApplied disk() const override { return p_.disk; }
  const std::vector<StepTime>& step_times() const override { return p_.step_times; }

  Result<std::uint64_t> exec(const ExecSpec& spec) override {
    ExecSpec limited = spec;
    const auto inherit = [](auto& own, const auto& from) {
      if (!own) {
        own = from;
      }
    };
    inherit(limited.limits.memory_bytes, p_.limits.memory_bytes);
    inherit(limited.limits.cpu_cores, p_.limits.cpu_cores);
    inherit(limited.limits.pids, p_.limits.pids);
    TALON_TRY(request, pack_exec(limited));
    std::vector<int> fds;
    for (const UniqueFd& fd : request.fds) {
      fds.push_back(fd.get());
    }
    std::string body{reinterpret_cast<const char*>(&request.frame), sizeof(request.frame)};
    body += request.strings;
    return send(wire::Type::exec, std::as_bytes(std::span{body}), fds);
  }

  Result<std::uint64_t> send_stdin(std::string_view px, std::uint64_t offset,
                                   std::string_view bytes, bool close) override {
    if (bytes.size() > wire::kStdinFrame) {
      return fail(Code::too_large,
                  fmt::format("at most {} bytes of stdin in one request", wire::kStdinFrame));
    }
    wire::StdinData frame{};
    TALON_CHECK(name(frame.px, px));
    frame.offset = offset;
    frame.flags = close ? wire::kStdinClose : 0;
    frame.length = static_cast<std::uint32_t>(bytes.size());
    std::string body{reinterpret_cast<const char*>(&frame), sizeof(frame)};
    body += bytes;
    return send(wire::Type::stdin_data, std::as_bytes(std::span{body}), {});
  }

  Result<std::uint64_t> signal(std::string_view px, int number, wire::Scope scope) override {
    if (number < 1 || number > 64) {
      return bad_field("signal", "a signal number is 1 to 64");
    }
    wire::Signal frame{};
    TALON_CHECK(name(frame.px, px));
    frame.number = number;
    frame.scope = static_cast<std::uint32_t>(scope);
    return send(wire::Type::signal, std::as_bytes(std::span{&frame, 1}), {});
  }

  Result<std::uint64_t> end_exec(std::string_view px, std::chrono::milliseconds grace) override {
    wire::EndExec frame{};
    TALON_CHECK(name(frame.px, px));
    frame.grace_ms = static_cast<std::uint64_t>(std::max<std::int64_t>(grace.count(), 0));
    return send(wire::Type::end_exec, std::as_bytes(std::span{&frame, 1}), {});
  }

  Result<std::uint64_t> resize(std::string_view px, std::uint16_t cols,
                               std::uint16_t rows) override {
    wire::Resize frame{};
    TALON_CHECK(name(frame.px, px));
    frame.cols = cols;
    frame.rows = rows;
    return send(wire::Type::resize, std::as_bytes(std::span{&frame, 1}), {});
  }

  Result<> flow(std::string_view px, std::uint64_t limit) override {
    wire::Flow frame{};
    TALON_CHECK(name(frame.px, px));
    frame.limit = limit;
    TALON_CHECK(send(wire::Type::flow, std::as_bytes(std::span{&frame, 1}), {}));
    return {};
  }

  Result<std::uint64_t> mark(bool paused) override {
    const wire::Mark frame{.paused = paused ? 1u : 0u, .reserved = 0};
    return send(wire::Type::mark, std::as_bytes(std::span{&frame, 1}), {});
  }

  Result<> freeze(bool frozen, std::chrono::milliseconds deadline) override {
    return p_.cgroup.freeze(frozen, deadline);
  }
  bool paused() const override { return p_.paused || p_.cgroup.frozen(); }

  Result<std::optional<Event>> receive() override {
    if (!p_.conn) {
      return std::nullopt;
    }
    alignas(8) std::array<std::byte, kEventBytes> buffer;
    auto message = receive_message(p_.conn.get(), buffer, false);
    if (!message) {
      if (message.error().sys == EAGAIN) {
        return std::nullopt;
      }
      return closed(message.error().message);
    }
    if (message->size == 0) {
      return closed("init closed its connection");
    }
    auto event = decode_event(std::span{buffer}.first(message->size));
    if (!event) {
      return closed(event.error().message);
    }
    return std::move(*event);
  }

  Result<> kill(std::chrono::milliseconds deadline) override {
    TALON_CHECK(fault::point("end.kill"));
    auto held = hold_mounts(p_.pidfd.get(), p_.identity.host_pid);
    TALON_CHECK(p_.cgroup.kill());
    TALON_TRY(ended, kernel::wait_readable(p_.pidfd.get(), deadline));
    p_.closer->later(p_.identity.id, [kept = std::move(held)]() mutable { kept.clear(); });
    if (!ended) {
      return fail(Code::timeout, fmt::format("sandbox {} did not end within {} ms after SIGKILL",
                                             p_.identity.id, deadline.count()));
    }
    return {};
  }

  Result<> remove() override {
    if (removed_) {
      return {};
    }
    TALON_TRY(ended, kernel::wait_readable(p_.pidfd.get(), std::chrono::milliseconds{0}));
    if (!ended) {
      return fail(Code::wrong_state, fmt::format("sandbox {} still runs", p_.identity.id));
    }
    TALON_CHECK(fault::point("end.handed_on"));
    p_.closer->later(p_.identity.id, Remains{.cgroup = std::move(p_.cgroup),
                                             .run_dir = p_.run_dir,
                                             .leases = p_.leases,
                                             .lease = p_.identity.lease,
                                             .files = std::move(p_.files)});
    removed_ = true;
    return {};
  }

  Result<CgroupStats> stats() const override { return p_.cgroup.stats(); }

  std::optional<int> init_status() const override {
    if (!kernel::wait_readable(p_.pidfd.get(), std::chrono::milliseconds{0}).value_or(false)) {
      return std::nullopt;
    }
    if (const auto spawner = p_.spawner.lock()) {
      if (const auto status = spawner->reaped(p_.identity.host_pid)) {
        return status;
      }
    }
    // Known from when its parent has reaped it, which may be a moment later.
    for (int tries = 20;; --tries) {
      const auto status = kernel::exit_status(p_.pidfd.get());
      if (status || tries == 0) {
        return status;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds{10});
    }
  }

 private:
  static Result<> name(char (&out)[wire::kIdSize], std::string_view px) {
    if (px.empty() || px.size() >= sizeof(out)) {
      return bad_field("id", "not an exec id");
    }
    px.copy(out, sizeof(out) - 1);
    return {};
  }

  Result<std::optional<Event>> closed(std::string reason) {
    p_.conn.reset();
    return Event{event::Closed{.reason = std::move(reason)}};
  }

  Result<std::uint64_t> send(wire::Type type, std::span<const std::byte> body,
                             std::span<const int> fds) {
    if (!p_.conn) {
      return fail(Code::unavailable, fmt::format("sandbox {} has no init", p_.identity.id));
    }
    const std::uint64_t request = ++requests_;
    const wire::Header head{.version = wire::kVersion,
                            .type = static_cast<std::uint16_t>(type),
                            .length = static_cast<std::uint32_t>(body.size()),
                            .request = request};
    std::string bytes{reinterpret_cast<const char*>(&head), sizeof(head)};
    bytes.append(reinterpret_cast<const char*>(body.data()), body.size());
    auto sent = send_message(p_.conn.get(), std::as_bytes(std::span{bytes}), fds);
    if (!sent) {
      // Full (a slow or frozen init), or gone: either way the caller may come again.
      Error error = std::move(sent).error();
      error.code = Code::unavailable;
      return std::unexpected(std::move(error).in("sandbox " + p_.identity.id));
    }
    return request;
  }

  SandboxParts p_;
  std::uint64_t requests_ = 0;
  bool removed_ = false;
};

}  // namespace

std::unique_ptr<Sandbox> make_sandbox(SandboxParts parts) {
  return std::make_unique<Live>(std::move(parts));
}

Result<> remove_run_dir(const std::string& run_dir) {
  for (const std::string& path : {run_dir + "/init.sock", run_dir}) {
    if (::remove(path.c_str()) != 0 && errno != ENOENT) {
      return fail_sys(errno, "remove " + path);
    }
  }
  return {};
}

Result<Event> Sandbox::wait_event(std::chrono::milliseconds deadline) {
  const auto until = std::chrono::steady_clock::now() + deadline;
  for (;;) {
    TALON_TRY(event, receive());
    if (event) {
      return std::move(*event);
    }
    if (init_fd() < 0) {
      return fail(Code::unavailable, "the connection to init is closed");
    }
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    TALON_TRY(readable, kernel::wait_readable(init_fd(), std::max(left, {})));
    if (!readable) {
      return fail(Code::timeout, "no event from init in time");
    }
  }
}

}  // namespace talon::isolate
