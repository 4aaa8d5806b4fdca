#pragma once
// What the operator decides. Built once at start from four layers, each over the one before:
// defaults, the TOML file (--config, else /etc/talon/talond.toml if it exists), TALON_*
// variables, flags. Checked as a whole by validate(), read-only afterwards.
//
// An unknown key in the file and an unknown TALON_* variable are refused with the place they
// stand at, so that a typing mistake never leaves a limit off in silence.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "isolate/host.h"
#include "isolate/spec.h"

namespace talon {

struct Config {
  // Literal addresses ("127.0.0.1:7300", "[::1]:0") or "unix:/path". The unix socket
  // <run_dir>/talond.sock is always opened beside them.
  std::vector<std::string> listen{"127.0.0.1:7300"};
  std::string data_dir = "/var/lib/talon";
  std::string run_dir = "/run/talon";
  std::string cgroup;    // "" = choose (decision 14)
  bool strict = false;   // refuse to start when a default limit cannot be enforced
  std::string tls_cert;  // PEM files; both or none
  std::string tls_key;
  std::vector<std::string> trusted_proxy;  // CIDR blocks that a TLS-ending proxy comes from
  std::string metrics_listen;              // "" = /metrics on the API listeners only
  bool unconfined_seccomp = false;         // no system call filter; loud at every start
  bool stop_sandboxes = false;             // SIGTERM ends the sandboxes too
  bool start_after_reboot = false;         // those with a service of restart: always
  LogLevel log_level = LogLevel::info;
  std::uint32_t ids_base = limits::kIdBase;  // [ids] base, count: decision 2
  std::uint32_t ids_count = limits::kIdLeases;
  isolate::ProcMode proc = isolate::ProcMode::full;  // default of new sandboxes
  std::uint32_t retention_days = 90;                 // events, and certificates of what was deleted

  // [pools] low, high, max_warm: what is made before a create asks for it.
  std::uint32_t pools_low = 2;
  std::uint32_t pools_high = 8;  // 0 = no pools
  std::uint32_t pools_max_warm = 32;

  std::string source;  // the file that was read, "" if none; for messages
};

// One layer of settings: key as in the file ("listen", "ids.base") -> values. A list key has
// any number of values, every other exactly one. `place` is for messages.
struct Setting {
  std::vector<std::string> values;
  std::string place;  // "/etc/talon/talond.toml:7", "TALON_LISTEN", "--listen"
};
using Settings = std::map<std::string, Setting, std::less<>>;

// TOML text -> settings. Unknown keys, wrong types and syntax errors: invalid_request naming
// the key and `name`:line.
Result<Settings> parse_config(std::string_view text, const std::string& name);

// TALON_* of `variables` -> settings. Lists are comma-separated. Variables of the clients
// (TALON_URL, TALON_API_KEY) and of tests (TALON_TEST_*) are left alone; others are refused.
Result<Settings> environment_settings(const char* const* variables);

// Puts one layer over `config`; the error names the place of the value that is wrong.
Result<> apply_settings(Config& config, const Settings& settings);

// The rules between values. Among them decision 39: a TCP listener that is not loopback needs
// TLS or a trusted proxy.
Result<> validate(const Config& config);

// All four layers. `file` "" = the default file if there is one; a named file must exist.
Result<Config> load_config(const std::string& file, const char* const* variables,
                           const Settings& flags);

// What `talond doctor` and GET /v1/host look at.
isolate::SurveyScope survey_scope(const Config& config);

// Every key with its environment variable and one sentence: the text for --help and docs.
struct ConfigKey {
  std::string_view key;
  std::string_view variable;
  std::string_view type;  // "text", "list", "bool", "number"
  std::string_view help;
};
const std::vector<ConfigKey>& config_keys();

}  // namespace talon
