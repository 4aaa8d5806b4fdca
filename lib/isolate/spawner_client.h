#pragma once
// talond's end of the spawner, its builder and its networker: starts them, sends requests and hands
// out the replies. Thread-safe; several requests may be under way (they are answered in order).
// When the spawner is gone every wait answers Code::unavailable and alive() is false: make a new
// client.

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "isolate/wire/spawner_format.h"

namespace talon::isolate {

class SpawnerClient {
 public:
  // exec: vfork + exec of /proc/self/exe with argv[0] "talon-spawner", for a daemon (small, and
  // nothing of the daemon's memory in it). fork: the caller's copy, for a program of one thread
  // that has not opened anything yet; its start-up is not done twice. Either sets itself up
  // meanwhile; requests may be sent at once, ready() says whether it came up.
  enum class By { exec, fork };
  static Result<std::shared_ptr<SpawnerClient>> start(By by = By::exec);
  Result<> ready();
  ~SpawnerClient();
  SpawnerClient(const SpawnerClient&) = delete;
  SpawnerClient& operator=(const SpawnerClient&) = delete;

  struct Reply {
    std::int32_t pid = 0;
    std::vector<UniqueFd> fds;
  };
  // A request under way. Dropping it without wait() discards its reply.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(std::shared_ptr<SpawnerClient> client, std::uint64_t number)
        : client_(std::move(client)), number_(number) {}
    Ticket(Ticket&&) = default;
    Ticket& operator=(Ticket&&) = delete;
    ~Ticket();
    // Exactly `fds` descriptors, or the spawner's error: invalid_request with field "image" when
    // the image is at fault.
    Result<Reply> wait(std::size_t fds);

   private:
    std::shared_ptr<SpawnerClient> client_;
    std::uint64_t number_ = 0;
  };

  Result<Ticket> send(std::shared_ptr<SpawnerClient> self, wire::SpawnOp op,
                      std::span<const std::byte> body, std::span<const int> fds);
  template <class T>
  Result<Ticket> send(std::shared_ptr<SpawnerClient> self, wire::SpawnOp op, const T& body,
                      std::span<const int> fds) {
    return send(std::move(self), op, std::as_bytes(std::span{&body, 1}), fds);
  }

  bool alive() const;
  // The builder's end, for SpawnOp::tree: it ends with this client.
  const std::shared_ptr<SpawnerClient>& builder() const { return builder_; }
  // The networker's, for SpawnOp::net_ns; the same.
  const std::shared_ptr<SpawnerClient>& network() const { return network_; }
  pid_t pid() const { return pid_; }
  // waitpid's status of a child that has ended, if the spawner reports it within 200 ms.
  std::optional<int> reaped(pid_t pid);

 private:
  SpawnerClient(UniqueFd socket, pid_t pid) : socket_(std::move(socket)), pid_(pid) {}
  struct Raw {
    wire::SpawnReply reply{};
    std::vector<UniqueFd> fds;
  };
  void receive_one(std::unique_lock<std::mutex>& lock, bool patient);
  Result<Raw> wait_raw(std::uint64_t number);
  void forget(std::uint64_t number);
  void take(Result<Message>& message, const wire::SpawnReply& reply);

  UniqueFd socket_;
  pid_t pid_;  // -1: builder or networker, which the spawner reaps
  std::shared_ptr<SpawnerClient> builder_;
  std::shared_ptr<SpawnerClient> network_;
  std::mutex send_mutex_;
  mutable std::mutex mutex_;  // all below
  std::condition_variable changed_;
  bool dead_ = false;
  bool receiving_ = false;
  std::uint64_t sent_ = 0;
  std::uint64_t answered_ = 0;
  bool up_ = false;  // its first message, a reply to nothing, has come
  std::optional<Error> why_dead_;
  std::map<std::uint64_t, Raw> replies_;
  std::set<std::uint64_t> forgotten_;
  std::map<pid_t, int> reaped_;
};

}  // namespace talon::isolate
