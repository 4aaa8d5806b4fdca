#include "isolate/spawner_client.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "isolate/launch.h"

namespace talon::isolate {

namespace {

constexpr int kSocketFd = 3;
constexpr int kBuilderSocketFd = 4;
constexpr int kNetworkerSocketFd = 5;
constexpr std::size_t kReapedKept = 256;
constexpr std::chrono::milliseconds kReapDeadline{200};
constexpr timeval kAnswerDeadline{30, 0};  // a spawner that takes longer hangs in the kernel

struct Sockets {
  UniqueFd ours;
  UniqueFd theirs;
};

Result<Sockets> make_sockets() {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    return fail_sys(errno, "make the spawner's socket");
  }
  Sockets made{UniqueFd{pair[0]}, UniqueFd{pair[1]}};
  setsockopt(made.ours.get(), SOL_SOCKET, SO_RCVTIMEO, &kAnswerDeadline, sizeof(kAnswerDeadline));
  // Clear of the numbers that they get in the spawner.
  for (UniqueFd* fd : {&made.ours, &made.theirs}) {
    if (fd->get() <= kNetworkerSocketFd) {
      const int moved = fcntl(fd->get(), F_DUPFD_CLOEXEC, kNetworkerSocketFd + 1);
      if (moved < 0) {
        return fail_sys(errno, "move the spawner's socket");
      }
      fd->reset(moved);
    }
  }
  return made;
}

Result<pid_t> fork_spawner(int socket, int builder, int networker) {
  const pid_t pid = fork();
  if (pid < 0) {
    return fail_sys(errno, "start the spawner");
  }
  if (pid == 0) {
    setsid();
    if (dup2(socket, kSocketFd) < 0 || dup2(builder, kBuilderSocketFd) < 0 ||
        dup2(networker, kNetworkerSocketFd) < 0) {
      _exit(1);
    }
    spawner_main();
  }
  return pid;
}

Result<pid_t> exec_spawner(int socket, int builder, int networker) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&actions, socket, kSocketFd);
  posix_spawn_file_actions_adddup2(&actions, builder, kBuilderSocketFd);
  posix_spawn_file_actions_adddup2(&actions, networker, kNetworkerSocketFd);
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  // A session of its own: the terminal's Ctrl-C is for talond.
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
  static char name[] = "talon-spawner";
  char* const argv[] = {name, nullptr};
  pid_t pid = -1;
  const int error = posix_spawn(&pid, "/proc/self/exe", &actions, &attributes, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    return fail_sys(error, "start the spawner");
  }
  return pid;
}

std::unexpected<Error> gone() { return fail(Code::unavailable, "the spawner process has ended"); }

std::string_view text_of(const wire::SpawnReply& reply) {
  return {reply.text, strnlen(reply.text, sizeof(reply.text))};
}

std::unexpected<Error> error_of(const wire::SpawnReply& reply) {
  Error error = fail_sys(reply.error, "").error();
  error.message = std::string{text_of(reply)};
  if (reply.detail == static_cast<std::uint32_t>(wire::SpawnDetail::image)) {
    error.code = Code::invalid_request;
    error.field = "image";
  }
  return std::unexpected(std::move(error));
}

}  // namespace

Result<std::shared_ptr<SpawnerClient>> SpawnerClient::start(By by) {
  TALON_TRY(spawner, make_sockets());
  TALON_TRY(builder, make_sockets());
  TALON_TRY(network, make_sockets());
  const auto begin = by == By::fork ? fork_spawner : exec_spawner;
  TALON_TRY(pid, begin(spawner.theirs.get(), builder.theirs.get(), network.theirs.get()));
  std::shared_ptr<SpawnerClient> client{new SpawnerClient{std::move(spawner.ours), pid}};
  client->builder_.reset(new SpawnerClient{std::move(builder.ours), -1});
  client->network_.reset(new SpawnerClient{std::move(network.ours), -1});
  return client;
}

Result<> SpawnerClient::ready() {
  std::unique_lock lock{mutex_};
  while (!up_ && !dead_) {
    receive_one(lock, true);
  }
  if (dead_) {
    return std::unexpected(why_dead_.value_or(
        fail(Code::unavailable,
             "the spawner did not start (does main call spawner_main_if_asked first?)")
            .error()));
  }
  lock.unlock();
  if (builder_ != nullptr) {
    TALON_CHECK(builder_->ready());
    TALON_CHECK(network_->ready());
  }
  return {};
}

SpawnerClient::~SpawnerClient() {
  socket_.reset();
  if (pid_ < 0) {
    return;
  }
  if (dead_ || !builder_->alive() || !network_->alive()) {
    ::kill(pid_, SIGKILL);  // it may hang; it is our child and not reaped, so the pid is its own
  }
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
}

Result<SpawnerClient::Ticket> SpawnerClient::send(std::shared_ptr<SpawnerClient> self,
                                                  wire::SpawnOp op, std::span<const std::byte> body,
                                                  std::span<const int> fds) {
  std::array<std::byte, 256> buffer;
  const wire::SpawnRequest head{static_cast<std::uint32_t>(op),
                                static_cast<std::uint32_t>(body.size())};
  TALON_ASSERT(sizeof(head) + body.size() <= buffer.size());
  std::memcpy(buffer.data(), &head, sizeof(head));
  std::ranges::copy(body, buffer.begin() + sizeof(head));
  // Numbered in the order of sending: replies come in that order.
  const std::lock_guard sending{send_mutex_};
  auto sent = send_message(socket_.get(), std::span{buffer}.first(sizeof(head) + body.size()), fds);
  const std::lock_guard guard{mutex_};
  if (!sent) {
    if (sent.error().sys == EPIPE || sent.error().sys == ECONNRESET) {
      dead_ = true;
      changed_.notify_all();
      return gone();
    }
    return std::unexpected(std::move(sent).error().in("ask the spawner"));
  }
  return Ticket{std::move(self), ++sent_};
}

bool SpawnerClient::alive() const {
  const std::lock_guard guard{mutex_};
  return !dead_ && (builder_ == nullptr || (builder_->alive() && network_->alive()));
}

void SpawnerClient::take(Result<Message>& message, const wire::SpawnReply& reply) {
  if (!message || message->size != sizeof(reply)) {
    dead_ = true;
  } else if (!up_) {
    up_ = reply.error == 0;
    if (!up_) {
      dead_ = true;
      why_dead_ = error_of(reply).error().in("set up the spawner");
    }
  } else if (reply.op == static_cast<std::uint32_t>(wire::SpawnOp::reaped)) {
    if (reaped_.size() >= kReapedKept) {
      reaped_.erase(reaped_.begin());
    }
    reaped_[reply.pid] = static_cast<int>(reply.detail);
  } else {
    const std::uint64_t number = ++answered_;
    if (forgotten_.erase(number) == 0) {
      replies_.emplace(number, Raw{reply, std::move(message->fds)});
    }
  }
}

// One message, by one thread for all; the others wait for it. Without `patient` it waits for at
// most the reap deadline.
void SpawnerClient::receive_one(std::unique_lock<std::mutex>& lock, bool patient) {
  if (receiving_) {
    changed_.wait_for(lock, kReapDeadline);
    return;
  }
  receiving_ = true;
  lock.unlock();
  if (!patient) {
    pollfd wait{socket_.get(), POLLIN, 0};
    poll(&wait, 1, static_cast<int>(kReapDeadline.count()));
  }
  wire::SpawnReply reply{};
  auto message =
      receive_message(socket_.get(), std::as_writable_bytes(std::span{&reply, 1}), patient);
  lock.lock();
  receiving_ = false;
  if (patient || message || message.error().sys != EAGAIN) {
    take(message, reply);
  }
  changed_.notify_all();
}

Result<SpawnerClient::Raw> SpawnerClient::wait_raw(std::uint64_t number) {
  std::unique_lock lock{mutex_};
  for (;;) {
    if (const auto at = replies_.find(number); at != replies_.end()) {
      Raw raw = std::move(at->second);
      replies_.erase(at);
      return raw;
    }
    if (dead_) {
      return why_dead_ ? std::unexpected(*why_dead_) : gone();
    }
    receive_one(lock, true);
  }
}

void SpawnerClient::forget(std::uint64_t number) {
  const std::lock_guard guard{mutex_};
  if (replies_.erase(number) == 0 && number > answered_) {
    forgotten_.insert(number);
  }
}

std::optional<int> SpawnerClient::reaped(pid_t pid) {
  const auto until = std::chrono::steady_clock::now() + kReapDeadline;
  std::unique_lock lock{mutex_};
  for (;;) {
    if (const auto at = reaped_.find(pid); at != reaped_.end()) {
      return at->second;
    }
    if (dead_ || std::chrono::steady_clock::now() >= until) {
      return std::nullopt;
    }
    receive_one(lock, false);
  }
}

SpawnerClient::Ticket::~Ticket() {
  if (client_ != nullptr) {
    client_->forget(number_);
  }
}

Result<SpawnerClient::Reply> SpawnerClient::Ticket::wait(std::size_t fds) {
  const auto client = std::move(client_);
  TALON_TRY(raw, client->wait_raw(number_));
  if (raw.reply.error != 0) {
    return error_of(raw.reply);
  }
  if (raw.fds.size() != fds) {
    return fail(Code::internal, "the spawner answered with a wrong number of descriptors");
  }
  return Reply{.pid = raw.reply.pid, .fds = std::move(raw.fds)};
}

}  // namespace talon::isolate
