#include "app.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>

#include "base/fd.h"
#include "base/id.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/metrics.h"
#include "isolate/launch.h"
#include "server/api/api.h"
#include "server/http/http.h"
#include "server/node/node.h"
#include "store/store.h"

namespace talon {

namespace {

namespace asio = boost::asio;
using server::Task;

constexpr unsigned kPoolThreads = 4;
constexpr server::Millis kGentle{5'000};
// Raises the soft limit to the hard one and divides it.
// `pooled`: how many sandboxes may be made ahead; 0 afterwards where the limit is too low for that.
limits::DescriptorBudget divide_descriptors(std::size_t& pooled) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  if (pooled * limits::kFdsPerPooled + limits::kFdsEnding > limit.rlim_cur / 8) {
    log_warn("pools_off", {{"descriptors", limit.rlim_cur}, {"fix", "raise RLIMIT_NOFILE"}});
    pooled = 0;
  }
  return limits::descriptor_budget(limit.rlim_cur, pooled);
}

// One daemon a data directory, and one a run directory (its start removes what it does not know
// there): a second one is told who has it. `name` is "data" or "run".
Result<UniqueFd> lock_dir(const std::string& path, const std::string& name) {
  TALON_TRY(lock, open_at(AT_FDCWD, path + "/lock", O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) {
      return fail_sys(errno, "lock " + path + "/lock");
    }
    auto pid = read_file_at(AT_FDCWD, path + "/lock", 64);
    std::string who = pid ? *pid : "";
    while (!who.empty() && who.back() == '\n') {
      who.pop_back();
    }
    return fail(Code::conflict, "the " + name + " directory " + path +
                                    " is used by another talond" +
                                    (who.empty() ? "" : " (pid " + who + ")") +
                                    "; stop it, or give this one its own --" + name + "-dir");
  }
  const std::string pid = std::to_string(::getpid()) + "\n";
  if (::ftruncate(lock.get(), 0) != 0 ||
      ::pwrite(lock.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return fail_sys(errno, "write " + path + "/lock");
  }
  return lock;
}

// The id that names our cgroups: made with the data directory.
Result<std::string> instance_id(store::Store& store) {
  std::string id;
  TALON_CHECK(store.write([&](store::Db& db) -> Result<> {
    TALON_TRY(known, store::get_setting(db, "instance"));
    if (known) {
      id = *known;
      return {};
    }
    id = new_id(IdKind::instance);
    return store::set_setting(db, "instance", id);
  }));
  return id;
}

// What this host cannot hold: said loudly, or refused with --strict.
Result<> judge_host(const isolate::HostFacts& host, const std::string& cgroup, bool strict,
                    bool unconfined) {
  std::string missing;
  const auto add = [&](std::string_view what) {
    missing += missing.empty() ? "" : ", ";
    missing += what;
  };
  if (cgroup.empty()) {
    add("no cgroup (" + host.cgroup_problem + ")");
  }
  for (const char* controller : {"memory", "pids", "cpu"}) {
    if (!host.has_controller(controller)) {
      add(std::string{controller} + " controller");
    }
  }
  if (unconfined) {
    log_warn("UNCONFINED", {{"warning",
                             "system calls are not filtered (unconfined_seccomp): every "
                             "sandbox of this daemon reaches the whole kernel surface"}});
    add("the seccomp filter (switched off by the configuration)");
  }
  if (missing.empty()) {
    return {};
  }
  if (strict) {
    return fail(Code::unenforceable,
                "--strict: this host lacks " + missing + "; `talond doctor` names the fixes");
  }
  log_warn("not_enforced", {{"missing", missing},
                            {"effect",
                             "default limits are recorded as enforced: false; asked-for "
                             "limits are refused with 422"},
                            {"fix", "talond doctor"}});
  return {};
}

Result<> make_run_dir(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return fail_sys(errno, "make the run directory " + path);
  }
  return {};
}

// /metrics on an address of its own, without a key.
class MetricsService final : public server::http::Service {
 public:
  explicit MetricsService(server::api::Api* api) : api_(api) {}
  std::size_t body_limit(const server::http::Request&) override { return 0; }
  Task<> handle(server::http::Request request, server::http::Responder& responder) override {
    server::http::Response response;
    response.content_type = "text/plain; version=0.0.4; charset=utf-8";
    if (request.path == "/metrics" && (request.method == "GET" || request.method == "HEAD")) {
      response.body = api_->render_metrics();
    } else {
      response.status = 404;
      response.body = "only /metrics is here\n";
    }
    auto sent = co_await responder.send(std::move(response));
    co_return sent;
  }

 private:
  server::api::Api* api_;
};

// Everything, in the order of construction; destroyed backwards.
struct App {
  const Config* config = nullptr;
  limits::DescriptorBudget budget{};
  UniqueFd lock;
  UniqueFd run_lock;
  asio::io_context io{1};
  Metrics metrics;
  std::optional<server::node::DataDir> data;
  std::unique_ptr<store::Store> store;
  std::optional<isolate::ImageStore> images;
  std::unique_ptr<server::node::Isolator> isolator;
  std::unique_ptr<server::Offload> offload;
  std::unique_ptr<server::node::Node> node;
  std::unique_ptr<server::api::Api> api;
  std::unique_ptr<MetricsService> metrics_service;
  std::unique_ptr<server::http::Server> server;
  std::unique_ptr<server::http::Server> metrics_server;
  Result<int> outcome = 0;
};

Result<> build(App& app) {
  const Config& config = *app.config;
  std::size_t pooled = 3 * std::size_t{config.pools_high} + std::size_t{config.pools_max_warm};
  app.budget = divide_descriptors(pooled);
  TALON_TRY(data, server::node::DataDir::open(config.data_dir));
  app.data.emplace(std::move(data));
  TALON_TRY(lock, lock_dir(config.data_dir, "data"));
  app.lock = std::move(lock);
  TALON_CHECK(make_run_dir(config.run_dir));
  TALON_TRY(run_lock, lock_dir(config.run_dir, "run"));
  app.run_lock = std::move(run_lock);
  TALON_TRY(store, store::Store::open(config.data_dir + "/talon.db"));
  app.store = std::move(store);
  TALON_TRY(instance, instance_id(*app.store));
  TALON_TRY(tenant, server::api::ensure_admin(*app.store, config.data_dir));
  TALON_TRY(images, isolate::ImageStore::open(config.data_dir));
  app.images.emplace(std::move(images));

  isolate::LauncherConfig launch;
  launch.run_dir = config.run_dir;
  launch.cgroup_path = config.cgroup;
  launch.instance = instance;
  launch.data_dir = config.data_dir;
  launch.id_base = config.ids_base;
  launch.id_leases = config.ids_count;
  TALON_TRY(launcher, isolate::Launcher::start(std::move(launch)));
  TALON_CHECK(judge_host(launcher->host(), launcher->cgroup_path(), config.strict,
                         config.unconfined_seccomp));
  app.isolator = server::node::make_namespace_isolator(std::move(launcher));

  const server::Executor ex = app.io.get_executor();
  app.offload = std::make_unique<server::Offload>(ex, kPoolThreads);
  server::node::NodeParts parts{.ex = ex,
                                .offload = app.offload.get(),
                                .store = app.store.get(),
                                .isolator = app.isolator.get(),
                                .images = &*app.images,
                                .metrics = &app.metrics,
                                .data = &*app.data};
  server::node::NodeConfig node_config;
  node_config.unconfined_seccomp = config.unconfined_seccomp;
  node_config.start_after_reboot = config.start_after_reboot;
  node_config.retention = std::chrono::days{config.retention_days};
  node_config.default_proc = config.proc;
  if (pooled != 0) {
    const isolate::PoolMarks marks{.low = std::min(config.pools_low, config.pools_high),
                                   .high = config.pools_high};
    node_config.pools = {.parts = marks, .trees = marks, .last = marks};
    node_config.max_warm = config.pools_max_warm;
  }
  node_config.max_sandboxes = std::min<std::size_t>(
      app.budget.sandboxes, config.ids_count > pooled ? config.ids_count - pooled : 1);
  app.node = std::make_unique<server::node::Node>(std::move(parts), node_config);
  server::api::ApiParts api_parts{.offload = app.offload.get(),
                                  .store = app.store.get(),
                                  .node = app.node.get(),
                                  .metrics = &app.metrics,
                                  .default_tenant = tenant};
  app.api = std::make_unique<server::api::Api>(
      std::move(api_parts), server::api::ApiConfig{.default_proc = config.proc,
                                                   .unconfined_seccomp = config.unconfined_seccomp,
                                                   .survey = survey_scope(config)});
  return {};
}

Result<> open_servers(App& app) {
  const Config& config = *app.config;
  const server::Executor ex = app.io.get_executor();
  server::http::ServerConfig http;
  for (const std::string& text : config.listen) {
    TALON_TRY(address, server::http::parse_listen(text));
    http.listen.push_back(std::move(address));
  }
  http.listen.push_back({.unix_socket = true, .host = config.run_dir + "/talond.sock", .port = 0});
  http.tls_cert_file = config.tls_cert;
  http.tls_key_file = config.tls_key;
  http.max_connections = app.budget.connections;
  TALON_TRY(opened, server::http::Server::open(ex, std::move(http), *app.api));
  app.server = std::move(opened);
  app.api->http_counters = [server = app.server.get()] { return server->counters(); };
  if (!config.metrics_listen.empty()) {
    server::http::ServerConfig metrics;
    TALON_TRY(address, server::http::parse_listen(config.metrics_listen));
    metrics.listen.push_back(std::move(address));
    metrics.max_connections = 64;
    app.metrics_service = std::make_unique<MetricsService>(app.api.get());
    TALON_TRY(second, server::http::Server::open(ex, std::move(metrics), *app.metrics_service));
    app.metrics_server = std::move(second);
  }
  return {};
}

// The addresses to stdout and to <rundir>/address, one a line, as they were chosen.
Result<> announce(const App& app) {
  std::string file;
  for (const std::string& address : app.server->addresses()) {
    std::printf("listening on %s\n", address.c_str());
    if (address.starts_with("http")) {
      file += address + "\n";
    }
  }
  if (app.metrics_server != nullptr) {
    for (const std::string& address : app.metrics_server->addresses()) {
      std::printf("metrics on %s/metrics\n", address.c_str());
    }
  }
  std::printf("the admin key lies in %s/keys/admin.key\n", app.config->data_dir.c_str());
  std::fflush(stdout);
  TALON_TRY(run_dir, open_at(AT_FDCWD, app.config->run_dir, O_RDONLY | O_DIRECTORY));
  return replace_file_at(run_dir.get(), "address", file, 0600);
}

Task<> wait_for_end(App& app, asio::signal_set& signals) {
  while (true) {
    auto [ec, number] = co_await signals.async_wait(server::kNoThrow);
    if (ec) {
      co_return Result<>{};
    }
    if (number != SIGHUP) {
      log_info("stopping", {{"signal", number}});
      co_return Result<>{};
    }
    auto reloaded = app.server->reload_tls();
    if (reloaded) {
      log_info("tls_reloaded");
    } else {
      log_error("tls_reload", {{"error", reloaded.error().message}});
    }
  }
}

Task<> run(App& app, asio::signal_set& signals) {
  auto started = co_await app.node->start();
  if (!started) {
    co_return started;
  }
  auto opened = open_servers(app);
  if (opened) {
    app.server->start();
    if (app.metrics_server != nullptr) {
      app.metrics_server->start();
    }
    opened = announce(app);
    app.api->set_ready(opened.has_value());
  }
  if (opened) {
    auto waited = co_await wait_for_end(app, signals);
    static_cast<void>(waited);
  }
  app.api->set_ready(false);
  app.node->end_streams();
  if (app.server != nullptr) {
    auto stopped = co_await app.server->stop(kGentle);
    static_cast<void>(stopped);
  }
  if (app.metrics_server != nullptr) {
    auto stopped = co_await app.metrics_server->stop(kGentle);
    static_cast<void>(stopped);
  }
  auto stopped = co_await app.node->stop(app.config->stop_sandboxes);
  if (!stopped) {
    log_error("stop", {{"error", stopped.error().message}});
  }
  co_return opened;
}

Task<> run_and_note(App& app, asio::signal_set& signals) {
  auto done = co_await run(app, signals);
  if (!done) {
    app.outcome = std::unexpected(std::move(done.error()));
  }
  // Nothing is left that needs the loop: reads of signals and the like end with it.
  app.io.stop();
  co_return Result<>{};
}

}  // namespace

Result<int> serve(const Config& config) {
  set_log_level(config.log_level);
  std::signal(SIGPIPE, SIG_IGN);
  ::umask(022);
  App app;
  app.config = &config;
  TALON_CHECK(build(app));
  server::TaskGroup root(app.io.get_executor(), [](std::string_view name, const Error& error) {
    log_error("task", {{"task", name}, {"error", error.message}});
  });
  asio::signal_set signals(app.io, SIGTERM, SIGINT, SIGHUP);
  root.spawn("serve", run_and_note(app, signals));
  app.io.run();
  // stop() left what was queued behind it: the group's own bookkeeping runs now.
  app.io.restart();
  app.io.poll();
  app.offload->join();
  app.store->flush();
  return app.outcome;
}

}  // namespace talon
