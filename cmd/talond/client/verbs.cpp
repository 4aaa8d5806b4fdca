#include "client/verbs.h"

#include <array>

#include "client/run.h"

namespace talon::client {

namespace {

using enum Argument;

constexpr std::string_view kFormats = "table json id";
constexpr std::string_view kStates = "creating running paused stopped deleting deleted failed";

constexpr Option kOutput{'o', "output", "FORMAT", "table (default), json, or id: ids alone",
                         kFormats};
constexpr Option kEnv{'e', "env", "NAME=VALUE", "a variable; may be given several times"};
constexpr Option kUser{'u', "user", "USER", "user inside: name, uid, name:group or uid:gid"};
constexpr Option kCwd{0, "cwd", "DIR", "working directory inside (default: /workspace)"};
constexpr Option kTimeout{0, "timeout", "TIME", "end the command after this time, e.g. 30s"};
constexpr Option kResume{0, "resume", "", "if the sandbox is paused, resume it first"};
constexpr Option kDetachKeys{0, "detach-keys", "KEYS",
                             "e.g. ctrl-a,d; none switches it off (default: ctrl-p,ctrl-q)"};

constexpr auto kCreateOptions = std::to_array<Option>({
    kOutput,
    {0, "name", "NAME", "a name to use in place of the id; unique among the sandboxes alive"},
    {0, "image", "IMAGE", "root tree to start from (default: host)"},
    kEnv,
    {'l', "label", "NAME=VALUE", "a label; may be given several times"},
    kUser,
    kCwd,
    {0, "hostname", "NAME", "host name inside"},
    {0, "memory", "SIZE", "memory limit, e.g. 512MiB"},
    {0, "cpu", "CORES", "CPU limit, e.g. 1.5"},
    {0, "pids", "N", "limit on processes and threads"},
    {0, "storage", "KIND", "root changes: disk (kept), memory (gone after a stop), readonly",
     "disk memory readonly"},
    {0, "network", "MODE", "network policy (default: deny)"},
    {0, "timeout", "TIME", "delete it after this time, e.g. 2h (default: never)"},
    {'f', "file", "FILE", "a JSON body of the HTTP API, - for stdin; options win over it"},
    {0, "no-wait", "", "return at once, in state creating"},
});
constexpr auto kListOptions = std::to_array<Option>({
    kOutput,
    {0, "state", "STATE", "only those in this state; may be given several times", kStates},
    {'l', "label", "NAME=VALUE", "only those with this label; may be given several times"},
});
constexpr auto kOutputOnly = std::to_array<Option>({kOutput});
constexpr auto kStopOptions = std::to_array<Option>({
    kOutput,
    {'p', "process", "PX", "end this process and its children only"},
    {0, "grace", "TIME", "with --process: from TERM to KILL (default: 10s)"},
});
constexpr auto kExecOptions = std::to_array<Option>({
    {'i', "interactive", "", "pass standard input on; without it none is read"},
    {'t', "tty", "", "give the command a terminal"},
    kEnv,
    kUser,
    kCwd,
    kTimeout,
    kResume,
    kDetachKeys,
});
constexpr auto kSpawnOptions = std::to_array<Option>({
    kOutput,
    kEnv,
    kUser,
    kCwd,
    kTimeout,
    kResume,
    {0, "log-cap", "SIZE", "output that is kept; the oldest goes first (default: 64MiB)"},
});
constexpr auto kLogsOptions = std::to_array<Option>({
    {'f', "follow", "", "go on until the process has ended"},
    {'n', "tail", "N", "the last N lines only"},
    {0, "since", "TIME", "from then on: RFC 3339, or how long ago, e.g. 10m"},
    {0, "until", "TIME", "up to then"},
    {0, "stream", "NAME", "stdout, stderr or tty only", "stdout stderr tty"},
});
constexpr auto kPtyOptions = std::to_array<Option>({
    {'a', "attach", "PX", "a terminal that is there already"},
    {0, "steal", "", "with --attach: be the writer, whoever is it now"},
    {0, "read-only", "", "with --attach: only watch"},
    {0, "no-record", "", "keep no recording of it"},
    kEnv,
    kUser,
    kCwd,
    kResume,
    kDetachKeys,
});

constexpr auto kNothing = std::to_array<Argument>({word});
constexpr auto kSandbox = std::to_array<Argument>({sandbox});
constexpr auto kSandboxProcess = std::to_array<Argument>({sandbox, process});

constexpr std::string_view kCreateText =
    "Examples:\n"
    "  tsb create --name web --memory 1GiB --cpu 2\n"
    "  SB=$(tsb create -o id)                 the id alone, for scripts\n"
    "  tsb create -e CI=1 -l team=core --timeout 2h\n"
    "  echo '{\"storage\":\"memory\"}' | tsb create -f -\n"
    "\n"
    "Returns when the sandbox runs. A limit that the machine cannot hold is refused\n"
    "(unenforceable). A connection that is lost in between never makes two.\n";
constexpr std::string_view kListText =
    "Examples:\n"
    "  tsb list\n"
    "  tsb list --state running -l team=core -o id\n"
    "  tsb list web                           the processes of the sandbox web, ended ones too\n"
    "  tsb rm $(tsb list -l team=core -o id)\n";
constexpr std::string_view kGetText =
    "Examples:\n"
    "  tsb get web\n"
    "  tsb get web -o json | jq .limits\n"
    "  tsb get web px1a2b…                    one process: its state and how it ended\n"
    "\n"
    "A deleted sandbox is no such thing (exit code 4); its death certificate is in the text.\n";
constexpr std::string_view kRmText =
    "Examples:\n"
    "  tsb rm web\n"
    "  tsb rm $(tsb list -o id)\n"
    "\n"
    "Its processes, files and private workspace go with it. Removing it again is no error.\n";
constexpr std::string_view kExecText =
    "Examples:\n"
    "  tsb exec web -- ls -la /workspace\n"
    "  tsb exec web -- sh -c 'make && make test'\n"
    "  tar c src | tsb exec -i web -- tar x   standard input needs -i\n"
    "  tsb exec -it web -- bash               a terminal\n"
    "\n"
    "Exit code: the command's own; 128+n if signal n ended it; 124 after --timeout; 126 not\n"
    "executable; 127 not found; 125 for every failure of tsb or talond, with the problem's code\n"
    "on stderr.\n"
    "SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on; a second one kills the command. If talond\n"
    "restarts meanwhile, tsb goes on where it was. If tsb is killed, the command goes on; its\n"
    "output is in `tsb logs`.\n";
constexpr std::string_view kSpawnText =
    "Examples:\n"
    "  PX=$(tsb spawn -o id web -- python3 -m http.server 8000)\n"
    "  tsb logs -f web $PX\n"
    "  tsb stop web --process $PX\n";
constexpr std::string_view kLogsText =
    "Examples:\n"
    "  tsb logs web                           of the process that was started last\n"
    "  tsb logs web px1a2b… --tail 100 -f\n"
    "  tsb logs web --stream stderr --since 10m > errors.txt\n"
    "\n"
    "stdout goes to stdout and stderr to stderr, byte for byte. If talond restarts meanwhile,\n"
    "-f goes on where it was. The exit code says whether the log was read, not how the process\n"
    "ended.\n";
constexpr std::string_view kPtyText =
    "Examples:\n"
    "  tsb pty web                            a shell\n"
    "  tsb pty web -- vim notes.txt\n"
    "  tsb pty web --attach px1a2b…           come back to it\n"
    "  tsb pty web --attach px1a2b… --read-only\n"
    "\n"
    "Ctrl-P Ctrl-Q detaches: the terminal and what runs in it go on, also after the end of tsb or\n"
    "talond. One writes and many may watch. The screen's size follows the writer's window.\n"
    "Exit code: 0 when it ended or was left; for the command's own use exec -it.\n";
constexpr std::string_view kPauseText =
    "Example:\n"
    "  tsb pause web && tsb resume web\n"
    "\n"
    "Memory is kept and no CPU used. Logs and files can be read meanwhile; exec is refused\n"
    "(wrong_state) unless it has --resume.\n";
constexpr std::string_view kResumeText =
    "Example:\n"
    "  tsb resume web\n";
constexpr std::string_view kStopText =
    "Examples:\n"
    "  tsb stop web\n"
    "  tsb stop web --process px1a2b… --grace 2s\n"
    "\n"
    "Files are kept; `tsb start` starts it again.\n";
constexpr std::string_view kStartText =
    "Example:\n"
    "  tsb start web\n";
constexpr std::string_view kVersionText =
    "The version of tsb, and that of talond if it tells (node admins only). `tsb --version` asks\n"
    "nobody.\n";
constexpr std::string_view kCompletionText =
    "Examples:\n"
    "  tsb completion bash > /etc/bash_completion.d/tsb\n"
    "  tsb completion zsh > /usr/local/share/zsh/site-functions/_tsb\n"
    "  tsb completion fish > ~/.config/fish/completions/tsb.fish\n"
    "  . <(tsb completion bash)               in this shell only\n";

constexpr auto kVerbs = std::to_array<Verb>({
    {"create", "", "make a sandbox", kCreateText, kCreateOptions, {}, 0, false, false, create},
    {"list", "[ID]", "sandboxes, or the processes of one", kListText, kListOptions, kSandbox, 0,
     false, false, list},
    {"get", "ID [PX]", "everything about a sandbox or a process", kGetText, kOutputOnly,
     kSandboxProcess, 1, false, false, get},
    {"rm", "ID...", "delete sandboxes", kRmText, kOutputOnly, kSandbox, 1, true, false, rm},
    {"exec", "[OPTIONS] ID [--] CMD...", "run a command and wait for its end", kExecText,
     kExecOptions, kSandbox, 1, false, true, exec},
    {"spawn", "[OPTIONS] ID [--] CMD...", "start a command and return", kSpawnText, kSpawnOptions,
     kSandbox, 1, false, true, spawn},
    {"logs", "ID [PX]", "output of a process", kLogsText, kLogsOptions, kSandboxProcess, 1, false,
     false, logs},
    {"pty", "[OPTIONS] ID [--] [CMD...]", "a terminal that can be left and come back to", kPtyText,
     kPtyOptions, kSandbox, 1, false, true, pty},
    {"pause", "ID...", "freeze a sandbox's processes", kPauseText, kOutputOnly, kSandbox, 1, true,
     false, change},
    {"resume", "ID...", "let a paused sandbox go on", kResumeText, kOutputOnly, kSandbox, 1, true,
     false, change},
    {"stop", "ID...", "end a sandbox's processes, or one of them", kStopText, kStopOptions,
     kSandbox, 1, true, false, stop},
    {"start", "ID...", "start a stopped sandbox again", kStartText, kOutputOnly, kSandbox, 1, true,
     false, change},
    {"version",
     "",
     "versions of tsb and talond",
     kVersionText,
     kOutputOnly,
     {},
     0,
     false,
     false,
     version},
    {"completion",
     "SHELL",
     "completion for bash, zsh or fish",
     kCompletionText,
     {},
     kNothing,
     1,
     false,
     false,
     nullptr},
});

}  // namespace

std::span<const Verb> verbs() { return kVerbs; }

}  // namespace talon::client
