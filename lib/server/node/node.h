#pragma once
// The node: every sandbox of this daemon. Rows first, then the act, then the row again; the
// reconcile at start settles what a dead daemon left half done, in both directions. What can be
// cleaned up later is (trash/, reaper). All of it runs on the I/O thread; what blocks goes
// through Offload.
//
// Every function takes a tenant: another tenant's id is not_found, like an unknown one. A
// deleted sandbox is `gone` from everything but row().

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/metrics.h"
#include "isolate/image/image.h"
#include "isolate/pool.h"
#include "server/async/task.h"
#include "server/node/actor.h"
#include "server/node/dirs.h"
#include "server/node/isolator.h"
#include "server/node/log_stream.h"
#include "server/node/types.h"
#include "store/store.h"

namespace talon::server::node {

struct NodeParts {
  Executor ex;
  Offload* offload = nullptr;
  store::Store* store = nullptr;
  Isolator* isolator = nullptr;
  isolate::ImageStore* images = nullptr;
  Metrics* metrics = nullptr;
  const DataDir* data = nullptr;
};

struct NodeConfig {
  // How long events and the certificates of deleted sandboxes and their execs are kept.
  Millis retention{90ll * 24 * 3600 * 1000};
  bool unconfined_seccomp = false;
  // Sandboxes that a reboot of the host stopped and that have a service of restart: always.
  bool start_after_reboot = false;
  isolate::Pool::Config pools;
  std::size_t max_warm = 0;  // of all images together
  isolate::ProcMode default_proc = isolate::ProcMode::full;
  // The most sandboxes that may be alive: from RLIMIT_NOFILE (decision 12).
  std::size_t max_sandboxes = 1000;
};

// What is kept warm of one image.
struct PrewarmWish {
  std::string image;
  std::size_t size = 0;
  isolate::Storage storage = isolate::Storage::disk;
};
struct Prewarmed {
  isolate::Pool::Warm state;
  isolate::Storage storage = isolate::Storage::disk;
};

// Of the places whose size is limited.
struct Spaces {
  std::optional<isolate::DiskUse> root;
  std::optional<isolate::DiskUse> workspace;
};

struct SandboxStats {
  store::SandboxRow row;
  isolate::CgroupStats cgroup;
  Spaces spaces;
  std::size_t live_execs = 0;
};

// What the last start found and did (GET /v1/reconcile).
struct ReconcileReport {
  struct Action {
    std::string sandbox;  // "" = none: an orphan
    std::string did;      // adopted stopped failed deleted orphan error
    std::string detail;
  };
  std::int64_t at_ms = 0;
  std::int64_t took_ms = 0;
  std::size_t rows = 0;
  std::size_t exits_collected = 0;            // ends of processes that no daemon had seen
  std::size_t directories = 0;                // without a row
  std::map<std::string, std::size_t> counts;  // of all, by `did`
  std::vector<Action> actions;                // the first kReportedActions
};
inline constexpr std::size_t kReportedActions = 1000;

class Node {
 public:
  Node(NodeParts parts, NodeConfig config);
  ~Node();

  // Reconciles, then starts the reaper and the life timers. Before it nothing else is called.
  Task<> start();
  // Streams that follow a log or events end where they are: the daemon is about to stop, and a
  // cursor goes on with the next one.
  void end_streams();
  // Ends every sandbox if asked to; else leaves them running for the next daemon to adopt.
  Task<> stop(bool end_sandboxes);

  // Checks, writes the row, starts the work; returns the row in `creating`.
  Task<store::SandboxRow> create(CreateRequest request);
  // The row once it has left `creating`; timeout with the state in Error::field.
  Task<store::SandboxRow> settled(std::string tenant, std::string id, Millis deadline);
  // Also failed, deleting and deleted ones.
  Task<store::SandboxRow> row(std::string tenant, std::string id);
  Task<store::SandboxPage> list(store::SandboxFilter filter);
  Task<store::SandboxRow> patch(std::string tenant, std::string id, PatchRequest request);
  // Idempotent. Returns when the processes are gone and the id is retired.
  Task<> remove(std::string tenant, std::string id, Certificate why);
  Task<store::SandboxRow> stop_sandbox(std::string tenant, std::string id, Certificate why);
  Task<store::SandboxRow> start_sandbox(std::string tenant, std::string id);
  // Memory stays, CPU use is zero; logs and state can be read (decision 15).
  Task<store::SandboxRow> pause_sandbox(std::string tenant, std::string id);
  Task<store::SandboxRow> resume_sandbox(std::string tenant, std::string id);
  // ?resume=1 of calls that need a process: a paused sandbox goes on, any other is left alone.
  Task<> resume_if_paused(std::string tenant, std::string id);
  Task<SandboxStats> stats(std::string tenant, std::string id);

  Task<std::vector<store::EventRow>> events(std::string tenant, std::string id, std::int64_t after,
                                            int limit);
  // For `follow`: the actor, or null when the sandbox is deleted.
  ActorPtr actor(std::string_view tenant, std::string_view id) const;

  // Processes.
  struct Started {
    ActorPtr actor;
    ExecPtr exec;
  };
  Task<Started> spawn(std::string tenant, std::string id, ExecRequest request);
  Task<std::vector<ServicePtr>> services(std::string tenant, std::string id);
  Task<ServicePtr> find_service(std::string tenant, std::string id, std::string name);
  struct PutService {
    ServicePtr service;
    bool made = false;  // it was not there before
  };
  // Another spec ends its process and starts it anew; the same one changes nothing.
  Task<PutService> put_service(std::string tenant, std::string id, std::string name,
                               ServiceSpec spec);
  Task<> remove_service(std::string tenant, std::string id, std::string name);

  // unavailable when the daemon stops first: the exec goes on, the next daemon has its result.
  Task<> wait_exit(ActorPtr actor, ExecPtr exec);
  struct Found {
    ActorPtr actor;
    ExecPtr exec;  // null when it has left memory
    store::ExecRow row;
  };
  Task<Found> exec(std::string tenant, std::string id, std::string px);
  // One that has left memory, also of a deleted sandbox.
  Task<store::ExecRow> stored_exec(std::string tenant, std::string id, std::string px);
  Task<store::ExecPage> execs(std::string tenant, std::string id, std::string after, int limit);
  // `by`: who asks, for the certificate.
  Task<> signal_exec(std::string tenant, std::string id, std::string px, int number,
                     wire::Scope scope, std::string by = {});
  Task<> end_exec(std::string tenant, std::string id, std::string px, Millis grace,
                  std::string by = {});
  // Sends as much as the process takes within `wait`; the offset after the accepted bytes.
  struct StdinResult {
    std::uint64_t accepted = 0;
    bool closed = false;
  };
  Task<StdinResult> feed_stdin(std::string tenant, std::string id, std::string px,
                               std::optional<std::uint64_t> offset, std::string bytes, bool close,
                               Millis wait);
  LogStream log(const Found& found, isolate::Cursor from, Follow follow) const;
  // terminal.cpp
  Task<> resize_exec(std::string tenant, std::string id, std::string px, std::uint16_t cols,
                     std::uint16_t rows);

  const ReconcileReport& reconcile_report() const { return report_; }

  // Warm sandboxes of an image; size 0 = none any more. Kept over restarts. invalid_request for an
  // image that is not there or a size beyond the node's; not_found when there is nothing to end.
  Task<> set_prewarm(PrewarmWish wish);
  std::vector<Prewarmed> prewarmed() const;
  std::vector<isolate::Pool::Count> pool_counts() const;

  // For /metrics and /v1/host.
  std::vector<std::size_t> count_by_state() const;
  Isolator& isolator() const { return *parts_.isolator; }
  const NodeConfig& config() const { return config_; }
  const DataDir& data() const { return *parts_.data; }
  bool reserve_present() const { return reserve_; }
  // ENOSPC anywhere gives the disk reserve up (decision 24).
  void note(const Error& error);

 private:
  struct Made {
    std::unique_ptr<isolate::Sandbox> sandbox;
    std::uint32_t generation = 0;
  };
  // What a create was found to need before its row was written.
  struct Chosen {
    isolate::PoolImage image;                   // no root: `host`, made at first use
    HostIds owner;                              // of the workspace
    std::shared_ptr<isolate::PoolEntry> ahead;  // null: nothing was made ahead
  };
  Task<> run_create(ActorPtr actor, SandboxWish wish, Chosen chosen, bool restart);

  // pools.cpp
  Task<Chosen> choose(const SandboxWish& wish);
  std::function<Result<Made>()> creation_job(const ActorPtr& actor, const SandboxWish& wish,
                                             Chosen chosen) const;
  Result<isolate::PoolImage> make_host_image() const;
  Task<> give_up(std::shared_ptr<isolate::PoolEntry> ahead);
  Task<> start_pool();
  Task<> stop_pool();
  Task<> keep_warm(PrewarmWish wish);
  Task<> fail_create(ActorPtr actor, Error error);
  Task<> settle_dead(ActorPtr actor, std::string detail);
  Task<> set_paused(ActorPtr actor, bool paused);
  // Ends the processes and gives back what the kernel holds; the actor has no live sandbox then,
  // or the same one still when that failed.
  Task<> end_live(ActorPtr actor, Certificate why);
  Task<> read_journal(ActorPtr actor);
  Task<> remove_log(ActorPtr actor, std::string px);  // terminal.cpp
  Task<> save(ActorPtr actor, std::string event, std::string data_json);
  Task<> save_next(ActorPtr actor, store::SandboxRow next, std::string event,
                   std::string data_json);
  // certificates.cpp
  void write_exec(const ActorPtr& actor, const ExecPtr& exec);
  Task<> add_last_output(ActorPtr actor, ExecPtr exec, Certificate certificate);
  // What is known about a sandbox, added to why it ends; before its groups and logs go.
  Task<Certificate> with_facts(ActorPtr actor, Certificate why);
  Task<Certificate> why_dead(ActorPtr actor, std::string detail);
  Task<> retention();
  Task<ActorPtr> alive(std::string tenant, std::string id);
  Task<ActorPtr> running(std::string tenant, std::string id);
  Actor::Hooks hooks();

  // A spawn whose sandbox was looked at already.
  Task<ExecPtr> launch(ActorPtr actor, ExecRequest request);

  // services.cpp
  void start_services(const ActorPtr& actor);
  void halt_services(const ActorPtr& actor);
  // Takes the turn; `old`, if any, is ended first.
  void supervise(const ActorPtr& actor, const ServicePtr& service, ExecPtr old);
  void adopt_service(const ActorPtr& actor, const ServicePtr& service,
                     const std::optional<wire::ExitInfo>& ended);
  Task<> replace_service(ActorPtr actor, ServicePtr service, std::uint64_t turn, ExecPtr old);
  Task<> keep_running(ActorPtr actor, ServicePtr service, std::uint64_t turn, ExecPtr exec);
  Task<ExecPtr> start_service(ActorPtr actor, ServicePtr service, std::uint64_t turn);
  Task<> end_service_exec(ActorPtr actor, ExecPtr exec);
  void write_service(const ServicePtr& service, std::string event);

  // reconcile.cpp
  Task<> reconcile();
  Task<> reconcile_row(store::SandboxRow row, std::vector<std::string>& keep);
  Task<> start_after_reboot();
  void did(std::string_view sandbox, std::string_view what, std::string detail);
  Task<> load_services(ActorPtr actor);
  Task<> adopt(ActorPtr actor, std::unique_ptr<isolate::Sandbox> sandbox);
  Task<> finish_delete(store::SandboxRow row, Certificate why);
  Task<> sweep_directories();
  Task<> reaper();
  Task<> life_timer();

  NodeParts parts_;
  NodeConfig config_;
  std::unique_ptr<TaskGroup> group_;
  std::unordered_map<std::string, ActorPtr> actors_;
  std::shared_ptr<isolate::Pool> pool_;         // null before start() and after stop()
  std::map<std::string, PrewarmWish> prewarm_;  // by image
  Notifier trash_;
  ReconcileReport report_;
  bool reserve_ = true;
  bool stopping_ = false;
};

}  // namespace talon::server::node
