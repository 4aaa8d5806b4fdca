#include "isolate/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <mutex>

#include "base/fault.h"
#include "isolate/cgroup_tree.h"
#include "isolate/creation.h"
#include "isolate/disk.h"
#include "isolate/kernel/pidfd.h"
#include "isolate/launch_impl.h"

namespace talon::isolate {

namespace {

// Ids name paths and cgroups: letters and digits only.
Result<> check_id(std::string_view id) {
  const bool good =
      !id.empty() && id.size() < wire::kIdSize &&
      std::ranges::all_of(
          id, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); });
  return good ? Result<>{} : bad_field("id", "a sandbox id is lower-case letters and digits");
}

Result<> check_spec(const SandboxSpec& spec) {
  TALON_CHECK(check_id(spec.id));
  if (spec.hostname.empty() || spec.hostname.size() > 63 ||
      !std::ranges::all_of(spec.hostname, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '-' || c == '.';
      })) {
    return bad_field("hostname", "a hostname is 1 to 63 letters, digits, '-' and '.'");
  }
  if (spec.default_cwd.size() >= sizeof(wire::PlanHeader::default_cwd) ||
      !spec.default_cwd.starts_with('/')) {
    return bad_field("cwd", "the default directory is an absolute path of at most 63 bytes");
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<SpawnerClient>> Launcher::Impl::live_spawner() {
  const std::lock_guard guard{spawner_mutex};
  if (spawner == nullptr || !spawner->alive()) {
    spawner.reset();
    if (auto early = std::move(config.early.spawner); early != nullptr && early->alive()) {
      spawner = std::move(early);
    } else {
      TALON_TRY(started, SpawnerClient::start());
      spawner = std::move(started);
    }
    ++spawner_starts;
  }
  return spawner;
}

Result<std::span<const sock_filter>> Launcher::Impl::filter_for(const SandboxSpec& spec) {
  if (spec.unconfined_seccomp) {
    return std::span<const sock_filter>{};
  }
  return spec.compat32 ? seccomp::compat32_filter()
                       : Result<std::span<const sock_filter>>{seccomp::native_filter()};
}

Launcher::Launcher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Launcher::~Launcher() {
  if (impl_ != nullptr && impl_->cgroups) {
    impl_->closer->drain();
    // Stays while a sandbox lives in it (EBUSY), which is the daemon's usual end.
    ::rmdir(impl_->cgroups->path().c_str());
  }
}

EarlyStart start_early(const std::string& cgroup_path) {
  EarlyStart early;
  if (geteuid() != 0) {
    return early;
  }
  // Before the fork: the spawner inherits the group that a delegated place moves talond to.
  auto place = choose_cgroup_place(cgroup_path, Place::take);
  if (!place) {
    return early;
  }
  early.cgroup_place = std::move(*place);
  if (auto spawner = SpawnerClient::start(SpawnerClient::By::fork)) {
    early.spawner = std::move(*spawner);
  }
  return early;
}

Result<std::unique_ptr<Launcher>> Launcher::start(LauncherConfig config) {
  auto impl = std::make_unique<Impl>();
  const bool early = config.early.spawner != nullptr;
  TALON_TRY(facts, early ? probe_kernel() : probe_host(config.cgroup_path));
  impl->host = std::move(facts);
  if (!impl->host.root) {
    return fail(Code::forbidden, "making sandboxes needs root: run talond with sudo");
  }
  if (!impl->host.at_least(6, 1)) {
    return fail(Code::unenforceable, "Linux " + impl->host.kernel + " is older than 6.1");
  }
  TALON_TRY(leases, LeasePool::open(config.lease_dir, config.id_base, config.id_leases));
  impl->leases = std::move(leases);
  // Before the spawner starts: it inherits the group that a delegated place moves talond to.
  auto place = config.early.cgroup_place.empty()
                   ? choose_cgroup_place(config.cgroup_path, Place::take)
                   : Result<std::string>{config.early.cgroup_place};
  if (place) {
    TALON_TRY(root, CgroupRoot::open(*place, config.instance, disk_of(config.data_dir)));
    impl->host.controllers = root.controllers();
    impl->host.cgroup_problem.clear();
    impl->cgroups = std::move(root);
  } else {
    impl->host.cgroup_problem = place.error().message;
  }
  std::error_code error;
  std::filesystem::create_directories(config.run_dir, error);
  if (error) {
    return fail_sys(error.value(), "make " + config.run_dir);
  }
  impl->config = std::move(config);
  TALON_TRY(spawner, impl->live_spawner());
  if (!early) {
    // A daemon learns at its start what would fail later; who makes one sandbox learns it then.
    TALON_CHECK(seccomp::check_filters());
    TALON_CHECK(spawner->ready());
  }
  return std::unique_ptr<Launcher>{new Launcher{std::move(impl)}};
}

const HostFacts& Launcher::host() const { return impl_->host; }

std::string Launcher::cgroup_path() const {
  return impl_->cgroups ? impl_->cgroups->path() : std::string{};
}

Result<> Launcher::check_limits(const Limits& limits) const {
  if (!impl_->cgroups) {
    return fail(Code::unenforceable, "no sandbox can be made without a cgroup: " +
                                         impl_->host.cgroup_problem + "; see `talond doctor`");
  }
  return impl_->cgroups->check(limits);
}

Result<> Launcher::check_sizes(const SandboxSpec& spec) const {
  const bool root = spec.disk_bytes && spec.storage == Storage::disk;
  if (!root && !spec.workspace_bytes) {
    return {};
  }
  TALON_TRY(data, open_at(AT_FDCWD, impl_->config.data_dir, O_RDONLY | O_DIRECTORY));
  auto method = disk::method_for(data.get());
  if (!method) {
    Error error = std::move(method).error();
    error.field = root ? "resources.disk" : "workspace.new.size";
    return std::unexpected(std::move(error));
  }
  return {};
}

bool same_shape(Ahead stage, const SandboxSpec& a, const SandboxSpec& b) {
  if (stage == Ahead::parts) {
    return true;
  }
  SandboxSpec shape = a;
  shape.id = b.id;
  shape.limits = b.limits;  // the host's to write, at any time
  if (stage == Ahead::tree) {
    // Init's, not the tree's.
    shape.hostname = b.hostname;
    shape.proc = b.proc;
    shape.on_orphan = b.on_orphan;
    shape.open_files = b.open_files;
    shape.default_cwd = b.default_cwd;
    shape.compat32 = b.compat32;
    shape.unconfined_seccomp = b.unconfined_seccomp;
    shape.pivot_root = b.pivot_root;
  }
  return shape == b;
}

Prepared::Prepared(std::unique_ptr<Creation> creation) : creation_(std::move(creation)) {}
Prepared::~Prepared() = default;
Prepared::Prepared(Prepared&&) noexcept = default;
bool Prepared::fits(const SandboxSpec& spec) const { return creation_->fits(spec); }
bool Prepared::dead() const { return creation_->init_ended(); }

Result<> Launcher::Impl::check(const SandboxSpec& spec, const SandboxDirs& dirs,
                               Ahead stage) const {
  TALON_CHECK(check_spec(spec));
  if (!cgroups) {
    return fail(Code::unenforceable, "no sandbox can be made without a cgroup: " +
                                         host.cgroup_problem + "; see `talond doctor`");
  }
  TALON_CHECK(cgroups->check(spec.limits));
  if (dirs.root == nullptr || (dirs.image == nullptr && stage != Ahead::parts)) {
    return fail(Code::internal, "create needs the image's and the sandbox's directory");
  }
  if (!host.seccomp && !spec.unconfined_seccomp) {
    return fail(Code::unenforceable, "this kernel has no seccomp filters; see `talond doctor`");
  }
  return {};
}

Result<std::unique_ptr<Sandbox>> Launcher::create(const SandboxSpec& spec,
                                                  const SandboxDirs& dirs) {
  TALON_CHECK(impl_->check(spec, dirs, Ahead::warm));
  return impl_->count(spec, impl_->make(spec, dirs));
}

Result<std::unique_ptr<Sandbox>> Launcher::Impl::make(const SandboxSpec& spec,
                                                      const SandboxDirs& dirs) {
  const Slot slot{*this};
  auto once = [&]() -> Result<std::unique_ptr<Sandbox>> {
    Creation creation{*this, spec};
    TALON_CHECK(creation.advance(Ahead::warm, dirs));
    return creation.finish();
  };
  auto made = once();
  if (!made && made.error().code == Code::unavailable) {
    // The spawner had died (it may have before this call). Everything was cleaned up.
    made = once();
  }
  return made;
}

Result<std::unique_ptr<Sandbox>> Launcher::Impl::count(const SandboxSpec& spec,
                                                       Result<std::unique_ptr<Sandbox>> made) {
  if (!made) {
    ++failed;
    return std::unexpected(std::move(made).error().in("create sandbox " + spec.id));
  }
  ++created;
  return made;
}

Result<Prepared> Launcher::prepare(Ahead stage, const SandboxSpec& spec, const SandboxDirs& dirs) {
  TALON_CHECK(impl_->check(spec, dirs, stage));
  const Impl::Slot slot{*impl_, false};
  auto creation = std::make_unique<Creation>(*impl_, spec);
  if (auto made = creation->advance(stage, dirs); !made) {
    return std::unexpected(std::move(made).error().in("prepare sandbox " + spec.id));
  }
  return Prepared{std::move(creation)};
}

Result<std::unique_ptr<Sandbox>> Launcher::create(const SandboxSpec& spec, const SandboxDirs& dirs,
                                                  Prepared prepared) {
  TALON_CHECK(impl_->check(spec, dirs, Ahead::warm));
  if (!prepared.fits(spec)) {
    return fail(Code::internal, "sandbox " + spec.id + " was prepared for another spec");
  }
  auto made = [&]() -> Result<std::unique_ptr<Sandbox>> {
    const Impl::Slot slot{*impl_};
    TALON_CHECK(prepared.creation_->take_spec(spec));
    TALON_CHECK(prepared.creation_->advance(Ahead::warm, dirs));
    return prepared.creation_->finish();
  }();
  if (!made) {
    // Whatever became of what was made ahead (the kernel may have killed its init), the create does
    // not suffer for it. Nothing of it is left when it is gone.
    prepared.creation_.reset();
    made = impl_->make(spec, dirs);
  }
  return impl_->count(spec, std::move(made));
}

namespace {

Result<> verify_peer(int sock, const Identity& identity, std::uint32_t init_id) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return fail_sys(errno, "ask who serves init.sock");
  }
  if (peer.pid != identity.host_pid || peer.uid != init_id) {
    return fail(Code::not_found, fmt::format("init.sock is served by pid {} uid {}, not by {} uid "
                                             "{}",
                                             peer.pid, peer.uid, identity.host_pid, init_id));
  }
  return {};
}

// Proves that we know the nonce; init proves that it is init by answering at all on a socket
// whose peer was checked.
Result<wire::HelloOk> say_hello(int sock, const Identity& identity) {
  struct {
    wire::Header head;
    wire::Hello body;
  } message{};
  message.head = {.version = wire::kVersion,
                  .type = static_cast<std::uint16_t>(wire::Type::hello),
                  .length = sizeof(message.body),
                  .request = 0};
  if (!parse_nonce(identity.nonce, message.body.nonce)) {
    return fail(Code::invalid_request, "the recorded nonce is not 32 hex digits");
  }
  TALON_CHECK(send_message(sock, std::as_bytes(std::span{&message, 1}), {}));
  TALON_TRY(readable, kernel::wait_readable(sock, kHelloDeadline));
  if (!readable) {
    return fail(Code::timeout, "init did not answer hello");
  }
  struct {
    wire::Header head;
    wire::HelloOk body;
  } answer{};
  TALON_TRY(got, receive_message(sock, std::as_writable_bytes(std::span{&answer, 1}), false));
  if (got.size != sizeof(answer) ||
      answer.head.type != static_cast<std::uint16_t>(wire::Type::hello_ok)) {
    return fail(Code::not_found, "init refused hello");
  }
  if (answer.body.version != wire::kVersion) {
    return fail(Code::not_found, fmt::format("init speaks version {}, which this talond does not "
                                             "know",
                                             answer.body.version));
  }
  return answer.body;
}

}  // namespace

Result<std::unique_ptr<Sandbox>> Launcher::adopt(const Identity& identity) {
  TALON_CHECK(check_id(identity.id));
  auto adopted = [&]() -> Result<std::unique_ptr<Sandbox>> {
    if (identity.boot_id != impl_->host.boot_id) {
      return fail(Code::gone, "the host was restarted");
    }
    if (identity.lease >= impl_->leases->count()) {
      return fail(Code::invalid_request, "no such id lease");
    }
    SandboxParts parts;
    parts.identity = identity;
    // The pidfd first: what is checked afterwards is about the process it names.
    TALON_TRY(pidfd, kernel::open_pidfd(identity.host_pid));
    TALON_TRY(started, kernel::start_time(identity.host_pid));
    if (started != identity.start_time) {
      return fail(Code::not_found, "its pid belongs to another process now");
    }
    TALON_CHECK(fault::point("adopt.pid"));
    parts.run_dir = impl_->config.run_dir + "/" + identity.id;
    TALON_TRY(sock, connect_unix(parts.run_dir, "init.sock"));
    const std::uint32_t init_id = impl_->leases->base_of(identity.lease) + limits::kIdRange - 1;
    TALON_CHECK(verify_peer(sock.get(), identity, init_id));
    TALON_CHECK(fault::point("adopt.hello"));
    TALON_TRY(hello, say_hello(sock.get(), identity));
    parts.paused = hello.paused != 0;
    // Init still counts appended output on the eventfd of its first daemon.
    TALON_TRY(event, kernel::copy_descriptor(pidfd.get(),
                                             wire::kFdBase + static_cast<int>(wire::Slot::event)));
    TALON_TRY(files, kernel::copy_descriptor(pidfd.get(),
                                             wire::kFdBase + static_cast<int>(wire::Slot::files)));
    TALON_CHECK(fault::point("adopt.cgroup"));
    TALON_TRY(cgroup, CgroupTree::open(identity.cgroup));
    parts.pidfd = std::move(pidfd);
    parts.conn = std::move(sock);
    parts.event = std::move(event);
    parts.files = std::move(files);
    parts.cgroup = std::move(cgroup);
    parts.limits = parts.cgroup.repeated();
    parts.leases = impl_->leases;
    parts.closer = impl_->closer;
    impl_->leases->adopt(identity.lease);
    return make_sandbox(std::move(parts));
  }();
  if (!adopted) {
    return std::unexpected(std::move(adopted).error().in("adopt sandbox " + identity.id));
  }
  return adopted;
}

std::vector<std::string> Launcher::sweep(const std::vector<std::string>& keep) {
  drain();
  std::vector<std::string> report;
  const auto kept = [&keep](const std::string& name) {
    return std::ranges::find(keep, name) != keep.end();
  };
  if (impl_->cgroups) {
    const auto groups = impl_->cgroups->list();
    for (const std::string& name : groups ? *groups : std::vector<std::string>{}) {
      if (kept(name)) {
        continue;
      }
      const std::string path = impl_->cgroups->path() + "/" + name;
      auto tree = CgroupTree::open(path);
      auto done = tree ? tree->kill() : Result<>{};
      if (done && tree) {
        done = tree->remove();
      }
      report.push_back(done ? "ended and removed cgroup " + path
                            : "cgroup " + path + " is left: " + done.error().message);
    }
  }
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator{impl_->config.run_dir, error}) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("sb") || kept(name) || !entry.is_directory(error)) {
      continue;
    }
    auto done = remove_run_dir(entry.path());
    report.push_back(done ? "removed " + entry.path().string()
                          : entry.path().string() + " is left: " + done.error().message);
  }
  return report;
}

bool Launcher::busy() const { return impl_->creating != 0; }

void Launcher::drain() { impl_->closer->drain(); }

Launcher::Counters Launcher::counters() const {
  return {
      .spawner_starts = impl_->spawner_starts, .created = impl_->created, .failed = impl_->failed};
}

}  // namespace talon::isolate
