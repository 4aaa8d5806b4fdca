// The configuration: four layers, one list of keys, and rules that name what is wrong.
#include "config.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

using namespace talon;

namespace {

struct File {
  explicit File(std::string_view text) {
    std::string dir = "/tmp/talon-config-XXXXXX";
    REQUIRE(::mkdtemp(dir.data()) != nullptr);
    path = dir + "/talond.toml";
    std::ofstream{path} << text;
  }
  ~File() { std::filesystem::remove_all(std::filesystem::path{path}.parent_path()); }
  std::string path;
};

// Result of one layer over the defaults.
Result<Config> over_defaults(const Settings& settings) {
  Config config;
  TALON_CHECK(apply_settings(config, settings));
  TALON_CHECK(validate(config));
  return config;
}

Result<Config> from_text(std::string_view text) {
  TALON_TRY(settings, parse_config(text, "t.toml"));
  return over_defaults(settings);
}

std::string refused(std::string_view text) {
  const auto config = from_text(text);
  REQUIRE_FALSE(config.has_value());
  CHECK(config.error().code == Code::invalid_request);
  return config.error().message;
}

Settings flag(std::string key, std::vector<std::string> values) {
  Settings settings;
  settings.insert_or_assign(key, Setting{std::move(values), "--" + key});
  return settings;
}

constexpr const char* kNoEnvironment[] = {nullptr};

}  // namespace

TEST_CASE("the defaults are valid and say what the documentation says") {
  const auto config = over_defaults({});
  REQUIRE(config.has_value());
  CHECK(config->listen == std::vector<std::string>{"127.0.0.1:7300"});
  CHECK(config->data_dir == "/var/lib/talon");
  CHECK(config->run_dir == "/run/talon");
  CHECK(config->ids_base == 1'000'000'000);
  CHECK(config->ids_count == 4096);
  CHECK_FALSE(config->unconfined_seccomp);
  CHECK_FALSE(config->stop_sandboxes);
  CHECK_FALSE(config->strict);
}

TEST_CASE("a file sets every key") {
  const auto config = from_text(R"(
    listen = ["127.0.0.1:0", "unix:/run/x.sock"]
    data_dir = "/d"
    run_dir = "/r"
    cgroup = "/sys/fs/cgroup/x"
    strict = true
    tls_cert = "/c.pem"
    tls_key = "/k.pem"
    trusted_proxy = "10.0.0.0/8"
    metrics_listen = "127.0.0.1:9000"
    unconfined_seccomp = true
    stop_sandboxes = true
    log_level = "debug"
    proc = "pid_only"
    [ids]
    base = 2000000000
    count = 8
  )");
  if (!config) {
    FAIL(config.error().message);
  }
  CHECK(config->listen == std::vector<std::string>{"127.0.0.1:0", "unix:/run/x.sock"});
  CHECK(config->data_dir == "/d");
  CHECK(config->run_dir == "/r");
  CHECK(config->cgroup == "/sys/fs/cgroup/x");
  CHECK(config->strict);
  CHECK(config->tls_cert == "/c.pem");
  CHECK(config->tls_key == "/k.pem");
  CHECK(config->trusted_proxy == std::vector<std::string>{"10.0.0.0/8"});
  CHECK(config->metrics_listen == "127.0.0.1:9000");
  CHECK(config->unconfined_seccomp);
  CHECK(config->stop_sandboxes);
  CHECK(config->log_level == LogLevel::debug);
  CHECK(config->proc == isolate::ProcMode::pid_only);
  CHECK(config->ids_base == 2'000'000'000);
  CHECK(config->ids_count == 8);
}

TEST_CASE("unknown keys, wrong types and broken TOML are refused with file and line") {
  CHECK(refused("strict = true\n\nlissten = \"x\"\n").starts_with("t.toml:3: unknown key lissten"));
  CHECK(refused("[ids]\nbase = 1\nsize = 2\n").starts_with("t.toml:3: unknown key ids.size"));
  CHECK(refused("[network]\nmode = \"open\"\n").starts_with("t.toml:1: unknown key network"));
  CHECK(refused("ids = 5\n").starts_with("t.toml:1: unknown key ids"));
  CHECK(refused("config = \"x\"\n").starts_with("t.toml:1: unknown key config"));
  CHECK(refused("\nstrict = \"yes\"\n") == "t.toml:2: strict must be true or false");
  CHECK(refused("listen = [1]\n") == "t.toml:1: listen must be a list of texts");
  CHECK(refused("data_dir = 5\n") == "t.toml:1: data_dir must be a text in quotes");
  CHECK(refused("[ids]\ncount = \"x\"\n") == "t.toml:2: ids.count must be a whole number");
  CHECK(refused("[ids]\ncount = -1\n").starts_with("t.toml:2: ids.count: \"-1\" is not a number"));
  CHECK(refused("data_dir = \n").starts_with("t.toml:1: "));
  CHECK(refused("strict = true\nstrict = false\n").starts_with("t.toml:2: "));
  CHECK(refused("log_level = \"loud\"\n").starts_with("t.toml:1: log_level: \"loud\" is none of"));
  CHECK(refused("proc = \"half\"\n").starts_with("t.toml:1: proc: "));
}

TEST_CASE("environment: every key has a variable, lists are split, strangers are refused") {
  const char* const variables[] = {"PATH=/bin",
                                   "TALON_LISTEN=127.0.0.1:1,[::1]:2",
                                   "TALON_STRICT=1",
                                   "TALON_IDS_COUNT=7",
                                   "TALON_API_KEY=k",
                                   "TALON_URL=u",
                                   "TALON_TEST_BOOT_ID=x",
                                   nullptr};
  const auto settings = environment_settings(variables);
  REQUIRE(settings.has_value());
  const auto config = over_defaults(*settings);
  REQUIRE(config.has_value());
  CHECK(config->listen == std::vector<std::string>{"127.0.0.1:1", "[::1]:2"});
  CHECK(config->strict);
  CHECK(config->ids_count == 7);

  const char* const typo[] = {"TALON_STRCIT=1", nullptr};
  const auto refused_typo = environment_settings(typo);
  REQUIRE_FALSE(refused_typo.has_value());
  CHECK(refused_typo.error().message.starts_with("unknown variable TALON_STRCIT"));

  const char* const wrong[] = {"TALON_STRICT=maybe", nullptr};
  const auto bad = over_defaults(*environment_settings(wrong));
  CHECK(bad.error().message == "TALON_STRICT: strict: \"maybe\" is neither true nor false");
  for (const ConfigKey& key : config_keys()) {
    CHECK(key.variable.starts_with("TALON_"));
    CHECK_FALSE(key.help.empty());
  }
}

TEST_CASE("flags win over the environment, which wins over the file") {
  const File file{"data_dir = \"/file\"\nrun_dir = \"/file\"\ncgroup = \"/file\"\n"};
  const char* const variables[] = {"TALON_RUN_DIR=/env", "TALON_CGROUP=/env", nullptr};
  const auto config = load_config(file.path, variables, flag("cgroup", {"/flag"}));
  REQUIRE(config.has_value());
  CHECK(config->data_dir == "/file");
  CHECK(config->run_dir == "/env");
  CHECK(config->cgroup == "/flag");
  CHECK(config->source == file.path);

  const std::string variable = "TALON_CONFIG=" + file.path;
  const char* const named[] = {variable.c_str(), nullptr};
  CHECK(load_config("", named, {})->data_dir == "/file");
}

TEST_CASE("a named file must exist") {
  const auto missing = load_config("/nonexistent/talond.toml", kNoEnvironment, {});
  REQUIRE_FALSE(missing.has_value());
  CHECK(missing.error().message ==
        "configuration: open /nonexistent/talond.toml: No such file or directory");
}

TEST_CASE("a listener that others reach needs TLS or a trusted proxy") {
  for (const char* open : {"0.0.0.0:7300", "192.0.2.1:80", "[::]:7300", "[2001:db8::1]:1"}) {
    CAPTURE(open);
    const auto config = over_defaults(flag("listen", {"127.0.0.1:1", open}));
    REQUIRE_FALSE(config.has_value());
    CHECK(config.error().field == "listen");
    CHECK(config.error().message.find(open) != std::string::npos);
    CHECK(config.error().message.find("--tls-cert") != std::string::npos);
    CHECK(config.error().message.find("--trusted-proxy") != std::string::npos);

    Settings with_tls = flag("listen", {open});
    with_tls.merge(flag("tls_cert", {"/c"}));
    with_tls.merge(flag("tls_key", {"/k"}));
    CHECK(over_defaults(with_tls).has_value());
    Settings with_proxy = flag("listen", {open});
    with_proxy.merge(flag("trusted_proxy", {"10.0.0.0/8"}));
    CHECK(over_defaults(with_proxy).has_value());
    CHECK_FALSE(over_defaults(flag("metrics_listen", {open})).has_value());
  }
  for (const char* local : {"127.0.0.1:0", "127.8.9.1:80", "[::1]:7300", "unix:/run/t.sock"}) {
    CAPTURE(local);
    CHECK(over_defaults(flag("listen", {local})).has_value());
  }
}

TEST_CASE("values that cannot work are refused before anything starts") {
  const auto bad = [](std::string key, std::vector<std::string> values) {
    const auto config = over_defaults(flag(std::move(key), std::move(values)));
    REQUIRE_FALSE(config.has_value());
    CHECK(config.error().code == Code::invalid_request);
    return config.error().message;
  };
  CHECK(bad("listen", {"localhost:7300"}).find("localhost") != std::string::npos);
  bad("listen", {"127.0.0.1"});
  bad("listen", {"127.0.0.1:99999"});
  CHECK(bad("data_dir", {"relative"}).find("absolute") != std::string::npos);
  bad("run_dir", {""});
  bad("cgroup", {"x"});
  CHECK(bad("tls_cert", {"/c"}).find("belong together") != std::string::npos);
  bad("tls_key", {"/k"});
  for (const char* block : {"10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/", "x/8", "::/129", ""}) {
    CAPTURE(block);
    bad("trusted_proxy", {block});
  }
  CHECK(over_defaults(flag("trusted_proxy", {"10.0.0.0/8", "fd00::/8", "192.0.2.7"})).has_value());
  bad("ids.count", {"0"});
  bad("retention_days", {"0"});
  bad("retention_days", {"36501"});
  bad("ids.count", {"60000"});
  bad("ids.base", {"1000"});
  bad("ids.base", {"4294967295"});
  bad("ids.base", {"12x"});
}
