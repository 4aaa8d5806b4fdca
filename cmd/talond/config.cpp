#include "config.h"

#include <fcntl.h>

#include <array>
#include <charconv>
#include <functional>

#include "base/fd.h"

namespace talon {

namespace {

constexpr std::string_view kDefaultFile = "/etc/talon/talond.toml";
constexpr std::size_t kFileLimit = 256 * 1024;

using Setter = Result<> (*)(Config&, const Setting&);

Result<> set_text(std::string& target, const Setting& setting) {
  target = setting.values.at(0);
  return {};
}

Result<> set_bool(bool& target, const Setting& setting) {
  const std::string& text = setting.values.at(0);
  if (text == "true" || text == "1" || text == "yes" || text == "on") {
    target = true;
  } else if (text == "false" || text == "0" || text == "no" || text == "off") {
    target = false;
  } else {
    return fail(Code::invalid_request, "\"" + text + "\" is neither true nor false");
  }
  return {};
}

Result<> set_number(std::uint32_t& target, const Setting& setting) {
  const std::string& text = setting.values.at(0);
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), target);
  if (code != std::errc{} || end != text.data() + text.size()) {
    return fail(Code::invalid_request, "\"" + text + "\" is not a number from 0 to 4294967295");
  }
  return {};
}

Result<> set_level(LogLevel& target, const Setting& setting) {
  static constexpr std::array<std::pair<std::string_view, LogLevel>, 4> kLevels{{
      {"debug", LogLevel::debug},
      {"info", LogLevel::info},
      {"warn", LogLevel::warn},
      {"error", LogLevel::error},
  }};
  for (const auto& [name, level] : kLevels) {
    if (name == setting.values.at(0)) {
      target = level;
      return {};
    }
  }
  return fail(Code::invalid_request,
              "\"" + setting.values[0] + "\" is none of debug, info, warn, error");
}

Result<> set_proc(isolate::ProcMode& target, const Setting& setting) {
  const std::string& text = setting.values.at(0);
  if (text == "full") {
    target = isolate::ProcMode::full;
  } else if (text == "pid_only") {
    target = isolate::ProcMode::pid_only;
  } else {
    return fail(Code::invalid_request, "\"" + text + "\" is neither full nor pid_only");
  }
  return {};
}

struct Key {
  ConfigKey about;
  Setter set;
};

// The one list of keys: file, environment, flags and help are all made from it.
constexpr auto kKeys = std::to_array<Key>({
    {{"listen", "TALON_LISTEN", "list",
      "address of the API: 127.0.0.1:7300, [::1]:0 or unix:/path; may be given several times"},
     [](Config& c, const Setting& s) -> Result<> {
       c.listen = s.values;
       return {};
     }},
    {{"data_dir", "TALON_DATA_DIR", "text", "where images, sandboxes and the database lie"},
     [](Config& c, const Setting& s) { return set_text(c.data_dir, s); }},
    {{"run_dir", "TALON_RUN_DIR", "text", "where sockets and the chosen addresses lie"},
     [](Config& c, const Setting& s) { return set_text(c.run_dir, s); }},
    {{"cgroup", "TALON_CGROUP", "text",
      "cgroup v2 directory to make sandboxes in; chosen when not given"},
     [](Config& c, const Setting& s) { return set_text(c.cgroup, s); }},
    {{"strict", "TALON_STRICT", "bool",
      "refuse to start when this host cannot enforce the default limits"},
     [](Config& c, const Setting& s) { return set_bool(c.strict, s); }},
    {{"tls_cert", "TALON_TLS_CERT", "text", "PEM file with the certificate chain"},
     [](Config& c, const Setting& s) { return set_text(c.tls_cert, s); }},
    {{"tls_key", "TALON_TLS_KEY", "text", "PEM file with its private key"},
     [](Config& c, const Setting& s) { return set_text(c.tls_key, s); }},
    {{"trusted_proxy", "TALON_TRUSTED_PROXY", "list",
      "CIDR block of a proxy that ends TLS in front of talond; may be given several times"},
     [](Config& c, const Setting& s) -> Result<> {
       c.trusted_proxy = s.values;
       return {};
     }},
    {{"metrics_listen", "TALON_METRICS_LISTEN", "text",
      "extra address that serves /metrics without a key"},
     [](Config& c, const Setting& s) { return set_text(c.metrics_listen, s); }},
    {{"unconfined_seccomp", "TALON_UNCONFINED_SECCOMP", "bool",
      "run sandboxes without the system call filter; weakens isolation"},
     [](Config& c, const Setting& s) { return set_bool(c.unconfined_seccomp, s); }},
    {{"stop_sandboxes", "TALON_STOP_SANDBOXES", "bool",
      "end the sandboxes too when talond is told to stop"},
     [](Config& c, const Setting& s) { return set_bool(c.stop_sandboxes, s); }},
    {{"start_after_reboot", "TALON_START_AFTER_REBOOT", "bool",
      "after a reboot of the host, start the sandboxes with a service of restart: always"},
     [](Config& c, const Setting& s) { return set_bool(c.start_after_reboot, s); }},
    {{"log_level", "TALON_LOG_LEVEL", "text", "debug, info, warn or error"},
     [](Config& c, const Setting& s) { return set_level(c.log_level, s); }},
    {{"ids.base", "TALON_IDS_BASE", "number", "first host id given to sandboxes"},
     [](Config& c, const Setting& s) { return set_number(c.ids_base, s); }},
    {{"ids.count", "TALON_IDS_COUNT", "number", "how many ranges of 65537 host ids there are"},
     [](Config& c, const Setting& s) { return set_number(c.ids_count, s); }},
    {{"proc", "TALON_PROC", "text", "/proc of new sandboxes: full (with masks) or pid_only"},
     [](Config& c, const Setting& s) { return set_proc(c.proc, s); }},
    {{"retention_days", "TALON_RETENTION_DAYS", "number",
      "days that events and the certificates of deleted sandboxes are kept"},
     [](Config& c, const Setting& s) { return set_number(c.retention_days, s); }},
    {{"pools.low", "TALON_POOLS_LOW", "number",
      "make parts of sandboxes ahead when fewer than this many are ready"},
     [](Config& c, const Setting& s) { return set_number(c.pools_low, s); }},
    {{"pools.high", "TALON_POOLS_HIGH", "number", "up to this many; 0 = make nothing ahead"},
     [](Config& c, const Setting& s) { return set_number(c.pools_high, s); }},
    {{"pools.max_warm", "TALON_POOLS_MAX_WARM", "number",
      "the most warm sandboxes that /v1/prewarm may keep"},
     [](Config& c, const Setting& s) { return set_number(c.pools_max_warm, s); }},
    {{"config", "TALON_CONFIG", "text", "the configuration file"}, nullptr},
});

const Key* find_key(std::string_view name) {
  for (const Key& key : kKeys) {
    if (key.about.key == name) {
      return &key;
    }
  }
  return nullptr;
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  while (true) {
    const auto comma = text.find(',');
    parts.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(comma + 1);
  }
}

// Variables of ours that are not settings of the daemon.
bool foreign_variable(std::string_view name) {
  return name == "TALON_URL" || name == "TALON_API_KEY" || name.starts_with("TALON_TEST_");
}

Result<Settings> read_file(const std::string& file) {
  TALON_TRY(text, read_file_at(AT_FDCWD, file, kFileLimit));
  return parse_config(text, file);
}

}  // namespace

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> keys = [] {
    std::vector<ConfigKey> out;
    for (const Key& key : kKeys) {
      out.push_back(key.about);
    }
    return out;
  }();
  return keys;
}

Result<Settings> environment_settings(const char* const* variables) {
  Settings settings;
  for (; variables != nullptr && *variables != nullptr; ++variables) {
    const std::string_view entry{*variables};
    const std::string_view name = entry.substr(0, entry.find('='));
    if (!name.starts_with("TALON_") || name.size() == entry.size() || foreign_variable(name)) {
      continue;
    }
    const Key* found = nullptr;
    for (const Key& key : kKeys) {
      found = key.about.variable == name ? &key : found;
    }
    if (found == nullptr) {
      return fail(Code::invalid_request, "unknown variable " + std::string{name} +
                                             " in the environment; unset it, or "
                                             "see talond serve --help for the names that exist");
    }
    const std::string_view value = entry.substr(name.size() + 1);
    Setting setting{.values = {}, .place = std::string{name}};
    if (found->about.type == "list") {
      setting.values = split(value);
    } else {
      setting.values.emplace_back(value);
    }
    settings.insert_or_assign(std::string{found->about.key}, std::move(setting));
  }
  return settings;
}

Result<> apply_settings(Config& config, const Settings& settings) {
  for (const auto& [name, setting] : settings) {
    const Key* key = find_key(name);
    TALON_ASSERT(key != nullptr);
    if (key->set == nullptr) {
      continue;
    }
    if (auto done = key->set(config, setting); !done) {
      Error error = std::move(done).error();
      error.field = name;
      return std::unexpected(std::move(error).in(setting.place + ": " + name));
    }
  }
  return {};
}

isolate::SurveyScope survey_scope(const Config& config) {
  return {.cgroup_path = config.cgroup,
          .data_dir = config.data_dir,
          .run_dir = config.run_dir,
          .listen = config.listen,
          .ids_base = config.ids_base,
          .ids_count = config.ids_count};
}

Result<Config> load_config(const std::string& file, const char* const* variables,
                           const Settings& flags) {
  TALON_TRY(environment, environment_settings(variables));
  std::string chosen = file;
  if (const auto named = environment.find("config"); chosen.empty() && named != environment.end()) {
    chosen = named->second.values.at(0);
  }
  Config config;
  auto from_file = read_file(chosen.empty() ? std::string{kDefaultFile} : chosen);
  if (from_file) {
    config.source = chosen.empty() ? std::string{kDefaultFile} : chosen;
    TALON_CHECK(apply_settings(config, *from_file));
  } else if (from_file.error().sys == 0) {
    return std::unexpected(std::move(from_file).error());  // names file and line itself
  } else if (!chosen.empty() || from_file.error().sys != ENOENT) {
    return std::unexpected(std::move(from_file).error().in("configuration"));
  }
  TALON_CHECK(apply_settings(config, environment));
  TALON_CHECK(apply_settings(config, flags));
  TALON_CHECK(validate(config));
  return config;
}

}  // namespace talon
