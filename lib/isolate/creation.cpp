#include "isolate/creation.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/fault.h"
#include "isolate/kernel/mount.h"
#include "isolate/kernel/pidfd.h"

namespace talon::isolate {

namespace {

constexpr std::chrono::milliseconds kReadyDeadline{10'000};
constexpr std::uint64_t kInert = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
constexpr std::uint64_t kMinInodes = 65536;

std::uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

Result<> make_dir(int parent, const char* name, unsigned mode) {
  if (mkdirat(parent, name, mode) != 0 && errno != EEXIST) {
    return fail_sys(errno, std::string{"make directory "} + name);
  }
  return {};
}

// Logs of an earlier life belong to that life's range (decision 2): init owns them again.
Result<> own_files(int dir, std::uint32_t id) {
  const int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* stream = copy < 0 ? nullptr : fdopendir(copy);
  if (stream == nullptr) {
    return fail_sys(errno, "read the logs directory");
  }
  Result<> done;
  while (const dirent* entry = readdir(stream)) {
    if (entry->d_type == DT_REG && fchownat(dir, entry->d_name, id, id, AT_SYMLINK_NOFOLLOW) != 0) {
      done = fail_sys(errno, "give the logs to init");
      break;
    }
  }
  closedir(stream);
  return done;
}

// A directory for init: a detached mount, because `..` of a plain descriptor leads to the host's
// root, chroot or not (decision 7).
Result<MountFd> confine(int dir) {
  TALON_TRY(mount, kernel::clone_mount(dir));
  TALON_CHECK(kernel::change_mount(mount.get(), {.set = kInert}));
  return mount;
}

Result<sockaddr_un> socket_address(int dir, const char* name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = fmt::format("/proc/self/fd/{}/{}", dir, name);
  if (path.size() >= sizeof(address.sun_path)) {
    return fail(Code::internal, "socket name too long");
  }
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  return address;
}

}  // namespace

Result<UniqueFd> bind_unix(int dir, const char* name) {
  UniqueFd sock{socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!sock) {
    return fail_sys(errno, "make init.sock");
  }
  TALON_TRY(address, socket_address(dir, name));
  fchmod(sock.get(), 0600);  // the name gets this mode (unix(7)); its directory is closed as well
  if (bind(sock.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return fail_sys(errno, "bind init.sock");
  }
  return sock;
}

Result<UniqueFd> connect_unix(const std::string& dir, const char* name) {
  TALON_TRY(at, open_at(AT_FDCWD, dir, O_PATH | O_DIRECTORY | O_NOFOLLOW));
  UniqueFd sock{socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!sock) {
    return fail_sys(errno, "make a socket");
  }
  TALON_TRY(address, socket_address(at.get(), name));
  if (connect(sock.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return fail_sys(errno, "connect to init.sock");
  }
  return sock;
}

bool parse_nonce(std::string_view text, std::uint8_t (&out)[16]) {
  if (text.size() != 2 * sizeof(out)) {
    return false;
  }
  for (std::size_t i = 0; i < sizeof(out); ++i) {
    const char* at = text.data() + 2 * i;
    const auto got = std::from_chars(at, at + 2, out[i], 16);
    if (got.ec != std::errc{} || got.ptr != at + 2) {
      return false;
    }
  }
  return true;
}

Creation::Creation(Launcher::Impl& launcher, SandboxSpec spec)
    : launcher_(launcher), spec_(std::move(spec)) {
  last_mark_ = monotonic_ns();
}

Creation::~Creation() {
  if (done_) {
    return;
  }
  bool ended = true;
  if (!parts_.cgroup.path().empty()) {
    (void)parts_.cgroup.kill();
    if (parts_.pidfd) {
      ended = kernel::wait_readable(parts_.pidfd.get(), kReadyDeadline).value_or(false);
    }
    (void)parts_.cgroup.remove();  // sweep() takes what is left at the next start
  }
  if (!parts_.run_dir.empty()) {
    (void)remove_run_dir(parts_.run_dir);
  }
  if (lease_ && ended) {
    launcher_.leases->release(lease_->number);
  }
}

void Creation::mark(std::string what) {
  const std::uint64_t now = monotonic_ns();
  fault::stop(what);  // "mark"
  parts_.step_times.push_back({std::move(what), now - last_mark_});
  last_mark_ = now;
}

Result<> Creation::make_upper(const SandboxDirs& dirs) {
  if (spec_.storage != Storage::disk) {
    return {};
  }
  TALON_CHECK(make_dir(dirs.root->get(), "upper", 0755));
  return make_dir(dirs.root->get(), "work", 0755);
}

Result<> Creation::make_logs(const SandboxDirs& dirs) {
  const int root = dirs.root->get();
  TALON_CHECK(make_dir(root, "logs", 0700));
  TALON_TRY(logs, open_at(root, "logs", O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  const std::uint32_t id = lease_->init_id();
  if (fchown(logs.get(), id, id) != 0) {
    return fail_sys(errno, "give logs/ to init");
  }
  TALON_CHECK(own_files(logs.get(), id));
  TALON_TRY(journal,
            open_at(logs.get(), "journal", O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW, 0600));
  if (fchown(journal.get(), id, id) != 0) {
    return fail_sys(errno, "give the journal to init");
  }
  TALON_TRY(confined, confine(logs.get()));
  logs_ = std::move(confined);
  journal_ = std::move(journal);
  return {};
}

Result<> Creation::make_run_dir() {
  const std::string path = launcher_.config.run_dir + "/" + spec_.id;
  if (mkdir(path.c_str(), 0700) != 0) {
    return errno == EEXIST ? fail(Code::conflict, path + " exists: is the sandbox running?")
                           : fail_sys(errno, "make " + path);
  }
  parts_.run_dir = path;
  TALON_TRY(dir, open_at(AT_FDCWD, path, O_PATH | O_DIRECTORY));
  TALON_TRY(listener, bind_unix(dir.get(), "init.sock"));
  listener_ = std::move(listener);
  return {};
}

Result<> Creation::make_cgroup() {
  TALON_TRY(tree, launcher_.cgroups->make(spec_.id, spec_.limits, lease_->init_id()));
  parts_.cgroup = std::move(tree);
  return {};
}

Result<MountFd> Creation::limited_mount(const disk::Place& place, std::uint64_t bytes,
                                        DiskLimit& applied) {
  TALON_TRY(limited, disk::limit(place, bytes));
  applied = {.bytes = bytes, .method = limited.method};
  MountFd mount = std::move(limited.mount);
  limited_.push_back(std::move(limited));
  return mount;
}

Result<MountFd> Creation::upper_mount(const DirFd& root) {
  if (!spec_.disk_bytes) {
    return kernel::clone_mount(root.get());
  }
  return limited_mount(
      {.dir = root.get(), .trees = {"upper", "work"}, .image_dir = root.get(), .image = "root.img"},
      *spec_.disk_bytes, parts_.disk.root);
}

Result<MountFd> Creation::workspace_mount(const SandboxDirs& dirs) {
  if (!spec_.workspace_bytes) {
    return kernel::clone_mount(dirs.workspace->get());
  }
  TALON_TRY(home, open_at(dirs.workspace->get(), "..", O_RDONLY | O_DIRECTORY));
  return limited_mount({.dir = dirs.workspace->get(),
                        .trees = {},
                        .image_dir = home.get(),
                        .image = dirs.workspace_image},
                       *spec_.workspace_bytes, parts_.disk.workspace);
}

Result<> Creation::ask_tree(const SandboxDirs& dirs) {
  TALON_CHECK(make_upper(dirs));
  wire::Tree request{};
  request.storage =
      static_cast<std::uint32_t>(spec_.storage == Storage::disk     ? wire::TreeStorage::disk
                                 : spec_.storage == Storage::memory ? wire::TreeStorage::memory
                                                                    : wire::TreeStorage::readonly);
  request.id_base = lease_->base;
  const std::uint64_t in_memory = spec_.disk_bytes.value_or(spec_.memory_root_bytes);
  if (spec_.disk_bytes && spec_.storage != Storage::disk) {
    parts_.disk.root = {.bytes = in_memory, .method = DiskMethod::tmpfs};
  }
  request.upper_bytes = in_memory;
  request.upper_inodes = std::max(kMinInodes, in_memory / 4096);
  request.shm_bytes = spec_.shm_bytes;
  request.tmp_bytes = spec_.storage == Storage::readonly ? in_memory : 0;
  request.has_workspace = dirs.workspace != nullptr ? 1 : 0;
  request.idmapped_tmpfs = launcher_.host.idmapped_tmpfs ? 1 : 0;
  std::vector<MountFd> mounts;
  std::vector<int> fds = {userns_.get()};
  const auto add = [&](Result<MountFd> made) -> Result<> {
    TALON_TRY(mount, std::move(made));
    fds.push_back(mount.get());
    mounts.push_back(std::move(mount));
    return {};
  };
  TALON_CHECK(add(kernel::clone_mount(dirs.image->get())));
  if (spec_.storage == Storage::disk) {
    TALON_CHECK(add(upper_mount(*dirs.root)));
  }
  if (dirs.workspace != nullptr) {
    TALON_CHECK(add(workspace_mount(dirs)));
  }
  const auto& builder = spawner_->builder();
  TALON_TRY(ticket, builder->send(builder, wire::SpawnOp::tree, request, fds));
  tree_ticket_.emplace(std::move(ticket));
  return {};
}

Result<> Creation::make_plan_file() {
  plan_ = make_plan(spec_, launcher_.host, lease_->base);
  std::array<std::byte, 16> nonce;
  if (getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size())) {
    return fail_sys(errno, "getrandom");
  }
  for (const std::byte byte : nonce) {
    parts_.identity.nonce += fmt::format("{:02x}", static_cast<unsigned>(byte));
  }
  TALON_TRY(filter, launcher_.filter_for(spec_));
  const std::string bytes = encode(plan_, std::as_bytes(filter), nonce);
  TALON_TRY(file, sealed_memfd("talon-plan", std::as_bytes(std::span{bytes})));
  plan_file_ = std::move(file);

  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    return fail_sys(errno, "make init's socket");
  }
  parts_.conn = UniqueFd{pair[0]};
  init_conn_ = UniqueFd{pair[1]};
  if (fcntl(parts_.conn.get(), F_SETFL, O_NONBLOCK) != 0) {
    return fail_sys(errno, "fcntl");
  }
  parts_.event = UniqueFd{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  if (!parts_.event) {
    return fail_sys(errno, "eventfd");
  }
  return {};
}

Result<> Creation::clone() {
  TALON_TRY(init_group, parts_.cgroup.open_init());
  TALON_TRY(execs_dir, parts_.cgroup.open_execs());
  TALON_TRY(execs, confine(execs_dir.get()));
  using wire::Slot;
  // In the order of Slot; all are given.
  const std::array<int, static_cast<std::size_t>(Slot::count)> slots = {
      init_conn_.get(), listener_.get(), parts_.event.get(), lease_->lock.get(),
      logs_.get(),      journal_.get(),  execs.get(),        parts_.files.get(),
      tree_.get(),      userns_.get(),   cgroupns_.get()};
  std::vector<int> fds = {init_group.get(), plan_file_.get()};
  fds.insert(fds.end(), slots.begin(), slots.end());
  const wire::Clone request{.slot_mask = (1ull << slots.size()) - 1};
  TALON_TRY(ticket, spawner_->send(spawner_, wire::SpawnOp::clone, request, fds));
  TALON_TRY(reply, ticket.wait(1));
  parts_.pidfd = std::move(reply.fds[0]);
  parts_.identity.host_pid = reply.pid;
  // Only init may hold these from here on: its end must be seen on the socket, and the lease
  // must end with it.
  init_conn_.reset();
  listener_.reset();
  lease_->lock.reset();
  for (UniqueFd* fd : {&plan_file_, &userns_, &cgroupns_, &journal_}) {
    fd->reset();
  }
  logs_.reset();
  tree_.reset();
  return {};
}

Result<> Creation::take_net_ns() {
  TALON_TRY(netns, netns_ticket_->wait(1));
  netns_ticket_.reset();
  netns_ = std::move(netns.fds[0]);
  mark("net_ns");
  return {};
}

Result<> Creation::give_net_ns() {
  const std::byte message{};
  if (auto sent = send_message(parts_.conn.get(), std::span{&message, 1}, std::array{netns_.get()});
      !sent && sent.error().sys != EPIPE) {  // init has ended: wait_ready() says why
    return sent;
  }
  netns_.reset();
  return {};
}

Result<> Creation::explain_end() {
  TALON_TRY(ended, kernel::wait_readable(parts_.pidfd.get(), kReadyDeadline));
  const auto status = spawner_->reaped(parts_.identity.host_pid);
  std::string how = ended ? "ended" : "closed its socket";
  if (status && WIFSIGNALED(*status)) {
    how += fmt::format(" by signal {}", WTERMSIG(*status));
  } else if (status && WIFEXITED(*status)) {
    how += fmt::format(" with code {}", WEXITSTATUS(*status));
  }
  return fail(Code::internal, "init " + how + " before it was ready");
}

void Creation::record(const wire::Ready& ready) {
  std::uint64_t before = ready.start_ns;
  parts_.step_times.push_back({"exec_init", before > last_mark_ ? before - last_mark_ : 0});
  for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
    const Step& step = plan_.steps[i];
    std::string name{to_string(step.op)};
    if (!step.text.empty()) {
      name += " " + step.text;
    }
    const std::uint64_t at = ready.step_ns[i];
    parts_.step_times.push_back({std::move(name), at > before ? at - before : 0});
    before = at;
  }
}

Result<> Creation::wait_ready() {
  TALON_TRY(readable, kernel::wait_readable(parts_.conn.get(), kReadyDeadline));
  if (!readable) {
    return fail(Code::timeout, "init was not ready in time");
  }
  alignas(8) std::array<std::byte, 2048> buffer;
  auto message = receive_message(parts_.conn.get(), buffer, false);
  if (!message || message->size < sizeof(wire::Header)) {
    return explain_end();
  }
  wire::Header head{};
  std::memcpy(&head, buffer.data(), sizeof(head));
  const std::byte* body = buffer.data() + sizeof(head);
  const std::size_t size = message->size - sizeof(head);
  if (head.type == static_cast<std::uint16_t>(wire::Type::ready) && size == sizeof(wire::Ready)) {
    wire::Ready ready;
    std::memcpy(&ready, body, sizeof(ready));
    record(ready);
    return {};
  }
  if (head.type == static_cast<std::uint16_t>(wire::Type::failed) && size == sizeof(wire::Failed)) {
    wire::Failed failed;
    std::memcpy(&failed, body, sizeof(failed));
    std::string step = "settle descriptors";
    if (failed.step < plan_.steps.size()) {
      const Step& at = plan_.steps[failed.step];
      step = fmt::format("step {} {}{}{}", failed.step, to_string(at.op),
                         at.text.empty() ? "" : " ", at.text);
    }
    return fail_sys(failed.error, step);
  }
  return fail(Code::internal, "init's first message is not ready");
}

Result<> Creation::make_parts(const SandboxDirs& dirs, Ahead stage) {
  launcher_.closer->settle(spec_.id);
  TALON_TRY(lease, launcher_.leases->take());
  lease_ = std::move(lease);

  const wire::UserNs ids{.base = lease_->base, .count = limits::kIdRange - 1};
  TALON_TRY(userns_ticket, spawner_->send(spawner_, wire::SpawnOp::user_ns, ids, {}));
  TALON_CHECK(make_cgroup());
  constexpr std::span<const std::byte> kNothing;
  TALON_TRY(cgroupns_ticket, spawner_->send(spawner_, wire::SpawnOp::cgroup_ns, kNothing,
                                            std::array{parts_.cgroup.dir().get()}));
  mark("cgroup");

  TALON_TRY(userns, userns_ticket.wait(1));
  userns_ = std::move(userns.fds[0]);
  mark("user_ns");
  // In the order in which init needs them; the rest is made beside them.
  if (stage != Ahead::parts) {
    TALON_CHECK(ask_tree(dirs));
  }
  const auto& network = spawner_->network();
  TALON_TRY(netns_ticket, network->send(network, wire::SpawnOp::net_ns, kNothing, {}));
  netns_ticket_.emplace(std::move(netns_ticket));
  mark("ask_parts");
  TALON_CHECK(make_logs(dirs));
  TALON_CHECK(make_run_dir());
  mark("directories");
  if (stage == Ahead::warm) {
    TALON_CHECK(make_plan_file());
    mark("plan");
  }
  TALON_TRY(cgroupns, cgroupns_ticket.wait(1));
  cgroupns_ = std::move(cgroupns.fds[0]);
  TALON_CHECK(parts_.cgroup.enable_controllers(launcher_.cgroups->controllers()));
  mark("cgroup_ns");
  return stage == Ahead::warm ? Result<>{} : take_net_ns();  // what rests is whole
}

Result<> Creation::take_tree() {
  TALON_TRY(tree, tree_ticket_->wait(2));
  tree_ = std::move(tree.fds[0]);
  parts_.files = std::move(tree.fds[1]);
  for (disk::Limited& limited : limited_) {
    TALON_CHECK(limited.settle());
  }
  limited_.clear();
  mark("tree");
  return {};
}

Result<> Creation::start_init() {
  TALON_CHECK(clone());
  mark("clone");
  if (netns_ticket_) {
    TALON_CHECK(take_net_ns());
  }
  TALON_CHECK(give_net_ns());
  TALON_CHECK(wait_ready());
  TALON_CHECK(fault::point("isolate.ready"));
  TALON_TRY(started, kernel::start_time(parts_.identity.host_pid));
  parts_.identity.id = spec_.id;
  parts_.identity.start_time = started;
  parts_.identity.cgroup = parts_.cgroup.path();
  parts_.identity.boot_id = launcher_.host.boot_id;
  parts_.identity.lease = lease_->number;
  parts_.leases = launcher_.leases;
  parts_.closer = launcher_.closer;
  return {};
}

Result<> Creation::advance(Ahead stage, const SandboxDirs& dirs) {
  if (parts_.pidfd) {
    return {};  // it is warm
  }
  TALON_TRY(spawner, launcher_.live_spawner());
  spawner_ = std::move(spawner);
  if (!lease_) {
    TALON_CHECK(make_parts(dirs, stage));
  }
  if (stage == Ahead::parts) {
    return {};
  }
  if (!tree_ && !tree_ticket_) {
    TALON_CHECK(ask_tree(dirs));
  }
  if (stage == Ahead::warm && !plan_file_) {
    TALON_CHECK(make_plan_file());  // while the builder works
    mark("plan");
  }
  if (!tree_) {
    TALON_CHECK(take_tree());
  }
  return stage == Ahead::warm ? start_init() : Result<>{};
}

bool Creation::fits(const SandboxSpec& spec) const {
  const Ahead stage = parts_.pidfd ? Ahead::warm : tree_ ? Ahead::tree : Ahead::parts;
  return spec.id == spec_.id && same_shape(stage, spec_, spec);
}

bool Creation::init_ended() const {
  return parts_.pidfd &&
         kernel::wait_readable(parts_.pidfd.get(), std::chrono::milliseconds{0}).value_or(true);
}

Result<> Creation::take_spec(const SandboxSpec& spec) {
  last_mark_ = monotonic_ns();
  parts_.step_times.clear();
  if (spec.limits != spec_.limits) {
    TALON_CHECK(launcher_.cgroups->limit(parts_.cgroup, spec.limits));
    mark("limits");
  }
  spec_ = spec;
  return {};
}

std::unique_ptr<Sandbox> Creation::finish() {
  parts_.limits = parts_.cgroup.repeated();
  parts_.spawner = spawner_;
  done_ = true;
  return make_sandbox(std::move(parts_));
}

}  // namespace talon::isolate
