// Flags to values. The only file that includes CLI11 (it compiles for seconds).

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <optional>

#include "base/units.h"
#include "cli/cli.h"

namespace talon::cli {

namespace {

constexpr const char* kMainHelp =
    "Examples:\n"
    "  talond run -- python3 -c 'print(1)'   one command in a sandbox, no daemon\n"
    "  talond serve                          the daemon with its HTTP API\n"
    "  talond doctor                         what this host can enforce, and how to fix it\n"
    "\n"
    "Sandboxes of a running daemon: tsb --help. Its verbs are also verbs of talond.\n"
    "talond VERB --help explains one verb with examples.";

constexpr const char* kRunHelp =
    "Examples:\n"
    "  talond run -- uname -a\n"
    "  talond run sh -c 'echo hello > /workspace/f && cat /workspace/f'\n"
    "  talond run --memory 512MiB --cpu 1.5 --pids 200 --timeout 30s -- make test\n"
    "  talond run --workspace . -- python3 build.py     the folder is at /workspace inside\n"
    "  tar c src | talond run -- tar t                  pipes work in both directions\n"
    "  talond run -- bash                               a terminal, if this is one\n"
    "\n"
    "There is no network inside. Everything but --workspace is gone afterwards.\n"
    "\n"
    "Exit code: the command's own; 128+n if signal n ended it; 124 after --timeout;\n"
    "126 not executable; 127 not found; 125 if talond itself failed or refused.\n"
    "SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on; a second one kills the command.";

constexpr const char* kServeHelp =
    "Examples:\n"
    "  talond serve\n"
    "  talond serve --listen 127.0.0.1:0 --data-dir /srv/talon\n"
    "  talond serve --listen 0.0.0.0:7300 --tls-cert cert.pem --tls-key key.pem\n"
    "\n"
    "Settings come from the file (--config, else /etc/talon/talond.toml), TALON_* variables and\n"
    "these flags; later ones win. In the file the names have _ for -, and ids.base is [ids] base.\n"
    "The owner key is in DATA_DIR/keys/admin.key, the chosen address in RUN_DIR/address.\n"
    "SIGTERM stops serving and leaves the sandboxes running, unless --stop-sandboxes.";

constexpr const char* kDoctorHelp =
    "Examples:\n"
    "  talond doctor\n"
    "  talond doctor --json --data-dir /srv/talon\n"
    "\n"
    "Each fact is ok, degraded or missing, with what follows from it and the command that fixes "
    "it.\n"
    "Exit code: 0 all ok, 1 something is degraded, 2 sandboxes cannot be made.";

constexpr const char* kImageHelp =
    "Examples:\n"
    "  talond image list\n"
    "  talond image import alpine ./alpine-minirootfs.tar.gz\n"
    "  talond image rm alpine\n"
    "  talond image refresh host             take the host's /usr as it is now";

// "--ids-base" for "ids.base".
std::string flag_of(std::string_view key) {
  std::string flag = "--";
  for (const char c : key) {
    flag += c == '_' || c == '.' ? '-' : c;
  }
  return flag;
}

// Flags that set configuration values; read out after parsing.
class ConfigFlags {
 public:
  void add(CLI::App& app, const std::vector<std::string_view>& keys) {
    for (const ConfigKey& key : config_keys()) {
      const bool wanted = keys.empty() || std::ranges::find(keys, key.key) != keys.end();
      if (!wanted || key.key == "config") {
        continue;
      }
      const std::string help{key.help};
      if (key.type == "bool") {
        options_.emplace_back(key, app.add_flag(flag_of(key.key), help));
        continue;
      }
      auto* option = app.add_option(flag_of(key.key), help)->allow_extra_args(false);
      option->type_name(key.type == "number" ? "N" : "TEXT");
      if (key.type == "list") {
        option->take_all();
      }
      options_.emplace_back(key, option);
    }
  }
  Settings settings() const {
    Settings out;
    for (const auto& [key, option] : options_) {
      if (option->count() > 0) {
        out.insert_or_assign(std::string{key.key},
                             Setting{.values = option->results(), .place = option->get_name()});
      }
    }
    return out;
  }

 private:
  std::vector<std::pair<ConfigKey, CLI::Option*>> options_;
};

// Texts of `run` before they are checked.
struct RunTexts {
  std::string memory;
  std::string cpu;
  std::string pids;
  std::string timeout;
  std::string storage = "disk";
  std::vector<std::string> env;
};

Result<std::uint64_t> whole_number(const std::string& text, const char* flag) {
  std::uint64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size() || value == 0) {
    return fail(Code::invalid_request,
                std::string{flag} + " needs a whole number above 0, not \"" + text + "\"");
  }
  return value;
}

Result<> take_limits(const RunTexts& texts, RunOptions& options) {
  if (!texts.memory.empty()) {
    TALON_TRY(bytes, parse_size(texts.memory));
    if (bytes < limits::kMemoryMin) {
      return fail(Code::invalid_request, "--memory must be at least 16MiB");
    }
    options.limits.memory_bytes = bytes;
  }
  if (!texts.pids.empty()) {
    TALON_TRY(count, whole_number(texts.pids, "--pids"));
    options.limits.pids = count;
  }
  if (!texts.cpu.empty()) {
    double cores = 0;
    const char* const last = texts.cpu.data() + texts.cpu.size();
    const auto [end, code] = std::from_chars(texts.cpu.data(), last, cores);
    if (code != std::errc{} || end != last || !(cores >= 0.01 && cores <= 4096)) {
      return fail(Code::invalid_request,
                  "--cpu needs a number of cores from 0.01 to 4096, not \"" + texts.cpu + "\"");
    }
    options.limits.cpu_cores = cores;
  }
  if (!texts.timeout.empty()) {
    TALON_TRY(timeout, parse_duration(texts.timeout));
    if (timeout.count() == 0) {
      return fail(Code::invalid_request, "--timeout must be longer than 0");
    }
    options.timeout = timeout;
  }
  return {};
}

Result<> take_texts(const RunTexts& texts, RunOptions& options) {
  TALON_CHECK(take_limits(texts, options));
  if (texts.storage == "memory") {
    options.storage = isolate::Storage::memory;
  } else if (texts.storage == "readonly") {
    options.storage = isolate::Storage::readonly;
  } else if (texts.storage != "disk") {
    return fail(Code::invalid_request,
                "--storage is disk, memory or readonly, not \"" + texts.storage + "\"");
  }
  for (const std::string& entry : texts.env) {
    const auto equals = entry.find('=');
    if (equals == std::string::npos || equals == 0) {
      return fail(Code::invalid_request, "--env needs NAME=VALUE, not \"" + entry + "\"");
    }
    options.env.emplace_back(entry.substr(0, equals), entry.substr(equals + 1));
  }
  if (!options.cwd.empty() && !options.cwd.starts_with('/')) {
    return fail(Code::invalid_request,
                "--cwd needs an absolute path inside the sandbox, not \"" + options.cwd + "\"");
  }
  if (options.command.empty()) {
    return fail(Code::invalid_request, "no command; write talond run [OPTIONS] -- COMMAND [ARG]…");
  }
  return {};
}

void describe_run_options(CLI::App& app, RunOptions& options, RunTexts& texts) {
  app.add_option("--image", options.image, "root tree to start from (default: host)");
  app.add_option("--net", options.network, "network policy (only deny in this release)");
  app.add_option("--memory", texts.memory, "memory limit, e.g. 512MiB");
  app.add_option("--cpu", texts.cpu, "CPU limit in cores, e.g. 1.5");
  app.add_option("--pids", texts.pids, "limit on processes and threads");
  app.add_option("--timeout", texts.timeout, "end the command after this time, e.g. 30s or 5m");
  app.add_option("--workspace", options.workspace, "folder to have at /workspace inside");
  app.add_option("-e,--env", texts.env, "NAME=VALUE for the command; may be given several times")
      ->allow_extra_args(false)
      ->take_all();
  app.add_option("-u,--user", options.user, "user inside: name, uid, name:group or uid:gid");
  app.add_option("--cwd", options.cwd, "working directory inside (default: /workspace)");
  app.add_option("--storage", texts.storage,
                 "root changes kept on disk, in memory, or refused (readonly)");
}

// `run` ends its own options at the first word that is none: everything from there on is the
// command, whatever it looks like. Returns the index of the command's first word.
int command_start(const CLI::App& run, int argc, char** argv, bool& separated) {
  int i = 2;
  for (; i < argc; ++i) {
    const std::string word{argv[i]};
    if (word == "--") {
      separated = true;
      return i;
    }
    if (!word.starts_with('-') || word == "-") {
      return i;
    }
    const auto equals = word.find('=');
    const CLI::Option* option = run.get_option_no_throw(word.substr(0, equals));
    const bool takes_value = option != nullptr && option->get_items_expected_max() > 0;
    if (takes_value && equals == std::string::npos) {
      ++i;
    }
  }
  return argc;
}

int usage_error(const std::string& message, const std::string& verb, int code) {
  say(message + (verb.empty() ? " (see talond --help)" : " (see talond " + verb + " --help)"));
  return code;
}

// The verbs and their flags; everything the parser writes to lives as long as it.
struct Parser {
  CLI::App app{"Talon Sandbox: recoverable Linux computers for untrusted code.", "talond"};
  Invocation invocation;
  ConfigFlags flags;
  RunTexts run_texts;
  std::vector<std::pair<CLI::App*, Verb>> verbs;

  // Describes `only`, or every verb when there is none of that name: describing all takes longer
  // than anything else that `talond run` does by itself.
  explicit Parser(std::string_view only);
  Invocation result();

 private:
  CLI::App* add(CLI::App& parent, const char* name, const char* help, Verb verb) {
    CLI::App* added = parent.add_subcommand(name, help);
    verbs.emplace_back(added, verb);
    return added;
  }
  void add_config(CLI::App& verb, const std::vector<std::string_view>& keys) {
    verb.add_option("--config", invocation.config_file,
                    "configuration file (default: /etc/talon/talond.toml if it exists)");
    flags.add(verb, keys);
  }
  void describe_serve();
  void describe_run();
  void describe_doctor();
  void describe_plan();
  void describe_routes();
  void describe_image();
  void describe_version();
};

Parser::Parser(std::string_view only) {
  static constexpr std::array<std::pair<std::string_view, void (Parser::*)()>, 7> kVerbs{
      {{"serve", &Parser::describe_serve},
       {"run", &Parser::describe_run},
       {"doctor", &Parser::describe_doctor},
       {"plan", &Parser::describe_plan},
       {"routes", &Parser::describe_routes},
       {"image", &Parser::describe_image},
       {"version", &Parser::describe_version}}};
  app.footer(kMainHelp);
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string{"talond "} + TALON_VERSION);
  const bool known =
      std::ranges::any_of(kVerbs, [only](const auto& verb) { return verb.first == only; });
  for (const auto& [name, describe] : kVerbs) {
    if (!known || name == only) {
      (this->*describe)();
    }
  }
}

void Parser::describe_serve() {
  CLI::App* serve =
      add(app, "serve", "run the daemon: the HTTP API and all sandboxes", Verb::serve);
  serve->footer(kServeHelp);
  add_config(*serve, {});
}

void Parser::describe_run() {
  CLI::App* run = add(app, "run",
                      "run one command in a new sandbox, without a daemon:\n"
                      "talond run [OPTIONS] [--] COMMAND [ARG]…",
                      Verb::run);
  run->footer(kRunHelp);
  describe_run_options(*run, invocation.run, run_texts);
  add_config(*run, {"data_dir", "run_dir", "cgroup", "unconfined_seccomp", "proc"});
}

void Parser::describe_doctor() {
  CLI::App* doctor =
      add(app, "doctor", "what this host can enforce, what is missing, the fix", Verb::doctor);
  doctor->footer(kDoctorHelp);
  doctor->add_flag("--json", invocation.json, "print JSON");
  add_config(*doctor, {});
}

void Parser::describe_plan() {
  CLI::App* plan = add(app, "plan", "print the steps that would set a sandbox up", Verb::plan);
  plan->add_option("SPEC.json", invocation.path, "body of a create request, - for stdin")
      ->required();
  plan->footer("Example:\n  echo '{\"storage\":\"memory\"}' | talond plan -");
}

void Parser::describe_routes() {
  add(app, "routes", "print the HTTP routes with the role each needs", Verb::routes);
}

void Parser::describe_version() {
  add(app, "version", "print the version", Verb::version)
      ->add_flag("--json", invocation.json, "print JSON");
}

void Parser::describe_image() {
  CLI::App* image = app.add_subcommand("image", "root trees: list, import, rm, refresh");
  image->footer(kImageHelp);
  image->require_subcommand(1);
  image->fallthrough();
  add_config(*image, {"data_dir", "run_dir"});
  CLI::App* list = add(*image, "list", "print all images", Verb::image_list);
  list->add_flag("--json", invocation.json, "print JSON");
  CLI::App* import =
      add(*image, "import", "make an image from a folder or a tar file", Verb::image_import);
  import->add_option("NAME", invocation.name, "name of the image")->required();
  import->add_option("SOURCE", invocation.path, "folder, or tar (plain, gzip, zstd)")->required();
  CLI::App* remove = add(*image, "rm", "remove an image that no sandbox uses", Verb::image_remove);
  remove->add_option("NAME", invocation.name, "name of the image")->required();
  CLI::App* refresh =
      add(*image, "refresh", "make a new generation of the image host", Verb::image_refresh);
  refresh->add_option("NAME", invocation.name, "host")->required();
  // The flags of image are also understood after its verb.
  for (CLI::App* verb : {list, import, remove, refresh}) {
    verb->fallthrough();
  }
}

std::string verb_names(const CLI::App& app) {
  std::string names;
  for (const CLI::App* verb : app.get_subcommands({})) {
    names += (names.empty() ? "" : " ") + verb->get_name();
  }
  return names;
}

Invocation Parser::result() {
  for (const auto& [parsed, verb] : verbs) {
    if (parsed->parsed()) {
      invocation.verb = verb;
    }
  }
  invocation.flags = flags.settings();
  return std::move(invocation);
}

}  // namespace

std::variant<int, Invocation> parse(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  Parser parser{verb};
  // CLI11 says only that a subcommand is missing.
  const auto same = [&](CLI::App* known) { return known->check_name(verb); };
  if (!verb.empty() && !verb.starts_with('-') && parser.app.get_subcommands(same).empty()) {
    return usage_error("there is no verb \"" + verb + "\"; there are " + verb_names(parser.app), "",
                       kUsage);
  }
  const int usage_code = verb == "run" ? kRunFailed : kUsage;
  int words = argc;
  if (verb == "run") {
    bool separated = false;
    words = command_start(*parser.verbs.front().first, argc, argv, separated);
    for (int i = words + (separated ? 1 : 0); i < argc; ++i) {
      parser.invocation.run.command.emplace_back(argv[i]);
    }
  }
  try {
    parser.app.parse(words, argv);
    if (verb == "run") {
      if (auto good = take_texts(parser.run_texts, parser.invocation.run); !good) {
        return usage_error(good.error().message, verb, usage_code);
      }
    }
  } catch (const CLI::Success&) {
    // --help or --version.
    const std::string text =
        verb == "--version" ? std::string{"talond "} + TALON_VERSION + "\n" : parser.app.help();
    std::fwrite(text.data(), 1, text.size(), stdout);
    return std::fflush(stdout) == 0 ? 0 : usage_code;
  } catch (const CLI::ParseError& error) {
    const auto verbs = parser.app.get_subcommands([&](CLI::App* a) { return a->check_name(verb); });
    const bool known = !verb.empty() && !verbs.empty();
    return usage_error(error.what(), known ? verb : "", usage_code);
  }
  return parser.result();
}

}  // namespace talon::cli
