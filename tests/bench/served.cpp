#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>

#include "bench/contenders.h"

namespace talon::bench {

namespace {

Result<std::string> file_text(const std::string& path) {
  TALON_TRY(text, read_file_at(AT_FDCWD, path, 4096));
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) {
    text.pop_back();
  }
  return text;
}

}  // namespace

std::vector<std::string> Served::environment(const std::string& which) const {
  return {"TALON_DATA_DIR=" + shop_.path(which + "/data"),
          "TALON_RUN_DIR=" + Workshop::run_path(which)};
}

Result<std::unique_ptr<Served>> Served::start(const std::string& talond, const Workshop& shop) {
  std::unique_ptr<Served> self{new Served{talond, shop}};
  for (const std::string which : {"serve", "local"}) {
    if (mkdir(shop.path(which).c_str(), 0700) != 0) {
      return fail_sys(errno, which);
    }
    TALON_TRY(took, time_command({talond, "image", "import", "bench", shop.rootfs()},
                                 shop.path("import.log"), self->environment(which)));
    (void)took;
  }
  TALON_CHECK(self->spawn_daemon());
  TALON_CHECK(self->wait_for_address());
  // The group of a data directory stays when its daemon ends; this data directory goes, too.
  const test::Client admin{
      test::Endpoint{.port = 0, .unix_path = Workshop::run_path("serve") + "/talond.sock"}, ""};
  self->cgroup_ = admin.get("/v1/host").text("cgroup.path");
  TALON_TRY(id, self->api().create());
  self->standing_ = id;
  return self;
}

Result<> Served::spawn_daemon() {
  std::vector<std::string> env = environment("serve");
  env.push_back("PATH=/usr/sbin:/usr/bin:/sbin:/bin");
  std::vector<char*> envp;
  for (std::string& e : env) {
    envp.push_back(e.data());
  }
  envp.push_back(nullptr);
  std::string args[] = {talond_, "serve", "--listen", "127.0.0.1:0", "--stop-sandboxes"};
  char* argv[] = {args[0].data(), args[1].data(), args[2].data(),
                  args[3].data(), args[4].data(), nullptr};
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  const std::string log = shop_.path("serve.log");
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  const int error = posix_spawn(&pid_, talond_.c_str(), &files, nullptr, argv, envp.data());
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) {
    pid_ = -1;
    return fail_sys(error, "start " + talond_);
  }
  return {};
}

Result<> Served::wait_for_address() {
  for (int tries = 0; tries < 1500; ++tries) {
    if (auto address = file_text(Workshop::run_path("serve") + "/address")) {
      const std::size_t colon = address->rfind(':');
      std::uint16_t port = 0;
      const char* end = address->data() + address->size();
      if (colon != std::string::npos &&
          std::from_chars(address->data() + colon + 1, end, port).ec == std::errc{}) {
        TALON_TRY(key, file_text(shop_.path("serve/data/keys/admin.key")));
        client_ =
            std::make_unique<test::Client>(test::Endpoint{.port = port, .unix_path = ""}, key);
        idle_mib_ = proc_kib("/proc/" + std::to_string(pid_) + "/status", "VmRSS") / 1024;
        TALON_TRY(api, connect());
        api_.emplace(std::move(api));
        return {};
      }
    }
    if (waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = -1;
      break;
    }
    usleep(10'000);
  }
  const auto log = file_text(shop_.path("serve.log"));
  return fail(Code::unavailable, "talond serve did not come up: " + (log ? *log : ""));
}

Served::~Served() {
  if (api_ && !standing_.empty()) {
    (void)api_->remove(standing_);
  }
  if (pid_ > 0) {
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
  }
  if (!cgroup_.empty()) {
    (void)rmdir(cgroup_.c_str());
  }
}

Result<Api> Api::connect(const test::Client& client) {
  Api api{client};
  if (!api.connection_.open()) {
    return fail(Code::unavailable, "cannot connect");
  }
  return api;
}

Result<test::Reply> Api::call(std::string_view method, const std::string& target,
                              std::string_view body, int want) {
  const test::Headers json{{"Content-Type", "application/json"}};
  if (!connection_.send(
          client_->raw(method, target, body, body.empty() ? test::Headers{} : json))) {
    return fail(Code::unavailable, "talond closed the connection");
  }
  test::Reply reply = connection_.read_reply(test::Seconds{20});
  if (reply.status != want) {
    return fail(Code::unavailable, std::string{method} + " " + target + ": " +
                                       std::to_string(reply.status) + " " + reply.error +
                                       reply.body);
  }
  return reply;
}

Result<std::string> Api::create() {
  TALON_TRY(reply, call("POST", "/v1/sandboxes?wait=running", R"({"image":"bench"})", 201));
  return reply.text("id");
}

Result<> Api::run_true(const std::string& id) {
  TALON_TRY(reply, call("POST", "/v1/sandboxes/" + id + "/run", R"({"argv":["/bin/true"]})", 200));
  const auto code = reply.at("exit_code");
  return code.is_int64() && code.as_int64() == 0 ? Result<>{}
                                                 : fail(Code::internal, "run: " + reply.body);
}

Result<> Api::remove(const std::string& id) {
  TALON_TRY(reply, call("DELETE", "/v1/sandboxes/" + id, "", 204));
  return {};
}

Result<double> Served::run_local() {
  return time_command({talond_, "run", "--image", "bench", "--", "/bin/true"},
                      shop_.path("run.log"), environment("local"));
}

void add_rows(std::vector<Row>& rows, Lazy<Served>& served) {
  rows.push_back({.name = "api: create + run + delete",
                  .base = "crun run",
                  .once = [&served]() -> Result<double> {
                    TALON_TRY(it, served.get());
                    const double begin = now_us();
                    TALON_TRY(id, it->api().create());
                    TALON_CHECK(it->api().run_true(id));
                    TALON_CHECK(it->api().remove(id));
                    return now_us() - begin;
                  }});
  rows.push_back({.name = "api: exec in a running sandbox (POST run)",
                  .base = "crun exec",
                  .bar = 1.0 / 5,
                  .bar_text = "1/5",
                  .once = [&served]() -> Result<double> {
                    TALON_TRY(it, served.get());
                    const double begin = now_us();
                    TALON_CHECK(it->api().run_true(it->standing()));
                    return now_us() - begin;
                  }});
  rows.push_back({.name = "`talond run -- true`",
                  .base = "crun run",
                  .bar = 1.0 / 2,
                  .bar_text = "1/2",
                  .once = [&served]() -> Result<double> {
                    TALON_TRY(it, served.get());
                    return it->run_local();
                  }});
}

}  // namespace talon::bench
