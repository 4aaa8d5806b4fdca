#include "server/api/decode_requests.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/id.h"
#include "isolate/image/image.h"
#include "isolate/wire/frames.h"
#include "server/api/decode.h"
#include "server/api/errors.h"
#include "server/api/text.h"

namespace talon::server::api {

namespace json = boost::json;

namespace {

constexpr Millis kYear{365ll * 24 * 3600 * 1000};
constexpr std::size_t kPathBytes = 4096;
constexpr std::size_t kUserBytes = 128;

Result<> check_path(const std::string& field, const std::string& path) {
  if (!path.starts_with('/')) {
    return bad_field(field, field + " must be an absolute path, such as /workspace");
  }
  return {};
}

Result<> check_hostname(const std::string& name) {
  const bool good = name.size() <= 63 && name.front() != '-' && name.back() != '-' &&
                    std::all_of(name.begin(), name.end(), [](char c) {
                      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                             (c >= '0' && c <= '9') || c == '-';
                    });
  if (!good) {
    return bad_field("hostname",
                     "hostname is one DNS label: 1 to 63 letters, digits and inner "
                     "dashes (RFC 1123)");
  }
  return {};
}

Result<> decode_resources(Fields& body, node::SandboxWish& wish) {
  isolate::Limits& out = wish.limits;
  TALON_TRY(object, body.object("resources"));
  if (object == nullptr) {
    return {};
  }
  Fields fields(*object, "resources");
  TALON_TRY(memory, fields.size("memory", limits::kMemoryMin, 1ull << 46));
  TALON_TRY(cpu, fields.number("cpu", 0.01, 4096));
  TALON_TRY(pids, fields.whole("pids", 1, 1 << 22));
  TALON_TRY(disk, fields.size("disk", limits::kDiskMin, limits::kDiskMax));
  TALON_TRY(io, fields.object("io"));
  if (io != nullptr) {
    // Less than a page a period would never let one pass.
    Fields rates(*io, "resources.io");
    TALON_TRY(read, rates.size("read", 64 * 1024, 1ull << 46));
    TALON_TRY(write, rates.size("write", 64 * 1024, 1ull << 46));
    TALON_CHECK(rates.done());
    out.io_read = read;
    out.io_write = write;
  }
  TALON_CHECK(fields.done());
  out.memory_bytes = memory;
  out.cpu_cores = cpu;
  out.pids = pids;
  wish.disk_bytes = disk;
  return {};
}

// "deny" and its aliases; the modes of the egress policy come later.
Result<> check_mode(const std::string& field, std::string_view mode) {
  if (mode == "deny" || mode == "sealed" || mode == "offline") {
    return {};
  }
  for (const std::string_view later :
       {"allowlist", "restricted-egress", "open", "full-egress", "learn"}) {
    if (mode == later) {
      auto error = fail(Code::not_supported_yet,
                        field + ": \"" + std::string{mode} +
                            "\" is not supported by this version of talond; use \"deny\"");
      error.error().field = field;
      return error;
    }
  }
  return bad_field(field, field + " must be deny, allowlist or open");
}

Result<> check_network(Fields& body) {
  for (const char* name : {"network", "network_policy"}) {
    const json::value* value = body.value(name);
    if (value == nullptr) {
      continue;
    }
    if (value->is_string()) {
      TALON_CHECK(check_mode(name, std::string_view{value->as_string()}));
      continue;
    }
    TALON_TRY(object, body.object(name));
    Fields fields(*object, name);
    TALON_TRY(mode, fields.text("mode", 64));
    if (mode) {
      TALON_CHECK(check_mode(fields.path("mode"), *mode));
    }
    TALON_CHECK(fields.later("allow"));
    TALON_CHECK(fields.later("groups"));
    TALON_CHECK(fields.done());
  }
  return {};
}

Result<> decode_workspace(Fields& body, node::SandboxWish& wish) {
  const json::value* value = body.value("workspace");
  if (value == nullptr) {
    return {};
  }
  if (value->is_string()) {
    return body.later("workspace");  // by id
  }
  TALON_TRY(object, body.object("workspace"));
  Fields fields(*object, "workspace");
  TALON_TRY(fresh, fields.object("new"));
  TALON_CHECK(fields.done());
  if (fresh == nullptr) {
    return bad_field("workspace", "workspace is an id or {\"new\": {}}");
  }
  Fields inner(*fresh, "workspace.new");
  TALON_CHECK(inner.later("name"));  // a first-class one, which outlives its sandbox
  TALON_TRY(size, inner.size("size", limits::kDiskMin, limits::kDiskMax));
  wish.workspace_bytes = size;
  return inner.done();
}

Result<> check_isolation(Fields& body) {
  TALON_TRY(object, body.object("isolation"));
  if (object == nullptr) {
    return {};
  }
  Fields fields(*object, "isolation");
  TALON_TRY(tier, fields.word("min", {"namespace", "gvisor", "vm"}));
  if (tier && *tier != 0) {
    return fields.later("min");
  }
  return fields.done();
}

std::optional<std::pair<std::string_view, int>> find_signal(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, int>, 31> kSignals{{
      {"HUP", 1},   {"INT", 2},     {"QUIT", 3},  {"ILL", 4},     {"TRAP", 5},  {"ABRT", 6},
      {"BUS", 7},   {"FPE", 8},     {"KILL", 9},  {"USR1", 10},   {"SEGV", 11}, {"USR2", 12},
      {"PIPE", 13}, {"ALRM", 14},   {"TERM", 15}, {"STKFLT", 16}, {"CHLD", 17}, {"CONT", 18},
      {"STOP", 19}, {"TSTP", 20},   {"TTIN", 21}, {"TTOU", 22},   {"URG", 23},  {"XCPU", 24},
      {"XFSZ", 25}, {"VTALRM", 26}, {"PROF", 27}, {"WINCH", 28},  {"IO", 29},   {"PWR", 30},
      {"SYS", 31},
  }};
  for (const auto& entry : kSignals) {
    if (entry.first == name) {
      return entry;
    }
  }
  return std::nullopt;
}

// restart and backoff of a service; `restart` is what it is without the field.
Result<> decode_restart(Fields& fields, node::ServiceSpec& out) {
  TALON_TRY(restart, fields.word("restart", {"no", "on-failure", "always"}));
  if (restart) {
    out.restart = static_cast<node::Restart>(*restart);
  }
  TALON_TRY(backoff, fields.object("backoff"));
  if (backoff == nullptr) {
    return {};
  }
  Fields inner(*backoff, "backoff");
  TALON_TRY(first, inner.duration("first", Millis{100}, Millis{3'600'000}));
  TALON_TRY(most, inner.duration("most", Millis{100}, Millis{3'600'000}));
  TALON_CHECK(inner.done());
  out.backoff = first.value_or(out.backoff);
  out.backoff_max = std::max(most.value_or(out.backoff_max), out.backoff);
  return {};
}

// Both left as they are where the body does not say.
Result<> decode_size(Fields& fields, std::uint16_t& cols, std::uint16_t& rows) {
  constexpr std::uint64_t kMost = 4096;
  TALON_TRY(wide, fields.whole("cols", 1, kMost));
  TALON_TRY(high, fields.whole("rows", 1, kMost));
  cols = static_cast<std::uint16_t>(wide.value_or(cols));
  rows = static_cast<std::uint16_t>(high.value_or(rows));
  return {};
}

Result<> decode_terminal(Fields& fields, node::ExecRequest& out) {
  constexpr std::uint64_t kUnrecorded = 1 << 20;
  out.tty = true;
  out.stdin_open = true;
  TALON_CHECK(decode_size(fields, out.cols, out.rows));
  const json::value* record = fields.value("record");
  if (record == nullptr || *record == true) {
    return {};
  }
  if (*record == "input") {
    out.record = node::Recording::input;
    return {};
  }
  if (*record != false) {
    return bad_field("record", "record must be true, false or \"input\"");
  }
  out.record = node::Recording::none;
  out.log_cap = kUnrecorded;
  return {};
}

Result<> decode_stdin(Fields& fields, ExecKind kind, node::ExecRequest& out) {
  TALON_TRY(encoding, fields.word("stdin_encoding", {"text", "base64"}));
  const json::value* given = fields.value("stdin");
  if (given == nullptr) {
    if (encoding) {
      return bad_field("stdin_encoding", "stdin_encoding says how stdin is written; there is none");
    }
    return {};
  }
  if (kind == ExecKind::spawn && given->is_bool()) {
    out.stdin_open = given->as_bool();
    return {};
  }
  TALON_TRY(text, fields.raw_text("stdin", limits::kBodyBytes, true));
  if (encoding.value_or(0) == 1) {
    if (!base64_decode(*text, out.stdin_head)) {
      return bad_field("stdin", "stdin is not base64 (RFC 4648, with padding)");
    }
  } else {
    out.stdin_head = std::move(*text);
  }
  return {};
}

}  // namespace

Result<> check_name(const std::string& field, const std::string& name) {
  const bool good = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
  if (!good || name.empty() || name.size() > limits::kNameBytes || name == "." || name == "..") {
    return bad_field(field, field + " may have letters, digits, '-', '_' and '.', at most " +
                                std::to_string(limits::kNameBytes) + " of them");
  }
  return {};
}

std::optional<int> signal_number(std::string_view text) {
  int number = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (ec == std::errc{} && end == text.data() + text.size()) {
    return number >= 1 && number <= 64 ? std::optional{number} : std::nullopt;
  }
  if (text.starts_with("SIG")) {
    text.remove_prefix(3);
  }
  if (const auto found = find_signal(text)) {
    return found->second;
  }
  return std::nullopt;
}

Result<node::CreateRequest> decode_create(std::string_view body, isolate::ProcMode proc) {
  TALON_TRY(object, parse_body(body));
  Fields fields(object);
  node::CreateRequest out;
  node::SandboxWish& wish = out.wish;
  TALON_TRY(name, fields.text("name", limits::kNameBytes));
  if (name) {
    TALON_CHECK(check_name("name", *name));
    out.name = std::move(*name);
  }
  TALON_TRY(image, fields.text("image", 64));
  wish.image = image.value_or("host");
  if (auto good = isolate::check_image_name(wish.image); !good) {
    return bad_field("image", good.error().message);
  }
  TALON_TRY(env, fields.env("env"));
  wish.env = std::move(env).value_or(node::Env{});
  TALON_CHECK(check_arguments({}, wish.env));
  TALON_TRY(labels, fields.labels("labels"));
  out.labels = std::move(labels).value_or(node::Labels{});
  TALON_TRY(user, fields.text("user", kUserBytes));
  wish.user = std::move(user).value_or("");
  TALON_TRY(cwd, fields.text("cwd", kPathBytes));
  if (cwd) {
    TALON_CHECK(check_path("cwd", *cwd));
    wish.cwd = std::move(*cwd);
  }
  TALON_TRY(hostname, fields.text("hostname", 63));
  if (hostname) {
    TALON_CHECK(check_hostname(*hostname));
    wish.hostname = std::move(*hostname);
  }
  TALON_CHECK(decode_resources(fields, wish));
  TALON_TRY(shm, fields.size("shm_size", 0, 1ull << 40));
  wish.shm_bytes = shm.value_or(limits::kShmDefault);
  TALON_TRY(storage, fields.word("storage", {"disk", "memory", "readonly"}));
  wish.storage = static_cast<isolate::Storage>(storage.value_or(0));
  TALON_TRY(mode, fields.word("proc", {"full", "pid_only"}));
  wish.proc = mode ? static_cast<isolate::ProcMode>(*mode) : proc;
  TALON_TRY(timeout, fields.duration("timeout", Millis{1000}, 10 * kYear));
  wish.timeout = timeout;
  TALON_CHECK(check_network(fields));
  TALON_CHECK(decode_workspace(fields, wish));
  TALON_CHECK(check_isolation(fields));
  TALON_TRY(command, fields.text("command", limits::kBodyBytes));
  if (command) {
    out.command.emplace().exec.command = std::move(*command);
    TALON_CHECK(decode_restart(fields, *out.command));
  } else if (fields.has("restart") || fields.has("backoff")) {
    return bad_field("command", "restart and backoff are of a command; there is none");
  }
  for (const char* later : {"mounts", "ports", "secrets", "idle", "nested", "from", "compat32"}) {
    TALON_CHECK(fields.later(later));
  }
  TALON_CHECK(fields.done());
  return out;
}

Result<node::PatchRequest> decode_patch(std::string_view body) {
  TALON_TRY(object, parse_body(body));
  Fields fields(object);
  node::PatchRequest out;
  TALON_TRY(name, fields.raw_text("name", limits::kNameBytes, false));
  if (name) {
    if (!name->empty()) {  // "" takes it away
      TALON_CHECK(check_name("name", *name));
    }
    out.name = std::move(*name);
  }
  TALON_TRY(labels, fields.labels("labels"));
  out.labels = std::move(labels);
  // null takes the timeout away, so here it is not the same as leaving it out.
  const json::value* raw = object.if_contains("timeout");
  TALON_TRY(timeout, fields.duration("timeout", Millis{1000}, 10 * kYear));
  if (raw != nullptr) {
    out.timeout = timeout;
  }
  TALON_CHECK(fields.later("idle"));
  if (fields.has("network") || fields.has("network_policy")) {
    TALON_CHECK(check_network(fields));
  }
  TALON_CHECK(fields.done());
  return out;
}

Result<node::ExecRequest> decode_exec(std::string_view body, ExecKind kind) {
  TALON_TRY(object, parse_body(body));
  Fields fields(object);
  node::ExecRequest out;
  TALON_TRY(command, fields.text("command", limits::kBodyBytes));
  TALON_TRY(argv, fields.texts("argv"));
  if (command.has_value() == argv.has_value()) {
    return bad_field(command ? "argv" : "command",
                     "give either command (text for /bin/sh -c) or argv (a list of strings)");
  }
  if (argv) {
    if (argv->empty() || argv->front().empty()) {
      return bad_field("argv", "argv needs a program as its first string");
    }
    out.argv = std::move(*argv);
  } else {
    out.command = std::move(*command);
  }
  TALON_TRY(env, fields.env("env"));
  out.env = std::move(env).value_or(node::Env{});
  TALON_CHECK(check_arguments(out.argv, out.env));
  TALON_TRY(cwd, fields.text("cwd", kPathBytes));
  if (cwd) {
    TALON_CHECK(check_path("cwd", *cwd));
    out.cwd = std::move(*cwd);
  }
  TALON_TRY(user, fields.text("user", kUserBytes));
  out.user = std::move(user).value_or("");
  if (kind == ExecKind::pty) {
    TALON_CHECK(decode_terminal(fields, out));
  } else {
    TALON_CHECK(decode_stdin(fields, kind, out));
  }
  TALON_TRY(timeout, fields.duration("timeout", Millis{1}, kYear));
  out.timeout = timeout.value_or(Millis{0});
  TALON_TRY(grace, fields.duration("grace", Millis{0}, Millis{3'600'000}));
  out.grace = grace.value_or(Millis{0});
  if (kind == ExecKind::run) {
    TALON_TRY(most, fields.size("max_output", 1, limits::kRunOutputMax));
    out.max_output = most.value_or(limits::kRunOutputDefault);
    out.log_cap = 0;  // max_output bounds it
  } else {
    TALON_TRY(log, fields.object("log"));
    if (log != nullptr) {
      Fields inner(*log, "log");
      TALON_TRY(cap, inner.size("cap", 1 << 20, limits::kSandboxLogBytes));
      out.log_cap = cap.value_or(limits::kLogCapDefault);
      TALON_TRY(full, inner.word("full", {"drop", "block"}));
      if (full.value_or(0) == 1) {
        TALON_CHECK(inner.later("full"));
      }
      TALON_CHECK(inner.done());
    }
  }
  if (fields.has("tty")) {
    return bad_field("tty", "a process with a terminal is made by POST …/pty");
  }
  TALON_CHECK(fields.done());
  return out;
}

Result<node::ServiceSpec> decode_service(std::string_view body) {
  TALON_TRY(object, parse_body(body));
  Fields fields(object);
  node::ServiceSpec out;
  out.restart = node::Restart::always;
  TALON_CHECK(decode_restart(fields, out));
  for (const char* name : {"stdin", "timeout", "grace"}) {
    if (fields.has(name)) {
      return bad_field(name, std::string{name} + " is not for a service: it runs by itself");
    }
  }
  // The rest is that of a process.
  object.erase("restart");
  object.erase("backoff");
  TALON_TRY(exec, decode_exec(json::serialize(object), ExecKind::spawn));
  out.exec = std::move(exec);
  return out;
}

Result<ResizeRequest> decode_resize(std::string_view body) {
  TALON_TRY(object, parse_body(body));
  Fields fields(object);
  ResizeRequest out;
  TALON_CHECK(decode_size(fields, out.cols, out.rows));
  TALON_CHECK(fields.done());
  if (out.cols == 0 || out.rows == 0) {
    return bad_field(out.cols == 0 ? "cols" : "rows", "cols and rows are the size of the terminal");
  }
  return out;
}

Result<SignalRequest> decode_signal(std::string_view body) {
  TALON_TRY(object, parse_body(body));
  Fields fields(object);
  SignalRequest out;
  const json::value* signal = fields.value("signal");
  if (signal == nullptr) {
    return bad_field("signal", "signal is missing: a name such as TERM, or a number from 1 to 64");
  }
  std::optional<int> number;
  if (signal->is_string()) {
    number = signal_number(std::string_view{signal->as_string()});
  } else if (signal->is_int64() && signal->as_int64() >= 1 && signal->as_int64() <= 64) {
    number = static_cast<int>(signal->as_int64());
  }
  if (!number) {
    return bad_field("signal", "signal must be a name such as TERM, or a number from 1 to 64");
  }
  out.number = *number;
  TALON_TRY(scope, fields.word("scope", {"process", "group", "all"}));
  out.scope = static_cast<int>(scope.value_or(0));
  TALON_CHECK(fields.done());
  return out;
}

Result<KeyRequest> decode_key(std::string_view body) {
  TALON_TRY(object, parse_body(body));
  Fields fields(object);
  KeyRequest out;
  TALON_TRY(name, fields.text("name", limits::kNameBytes));
  out.name = std::move(name).value_or("");
  // A name is shown in terminals and logs.
  if (std::ranges::any_of(out.name, [](unsigned char c) { return c < 0x20 || c == 0x7f; })) {
    return bad_field("name", "name may not have control characters");
  }
  TALON_TRY(role, fields.word("role", {"viewer", "developer", "owner", "node_admin"}));
  out.role = role ? static_cast<Role>(*role + 1) : Role::developer;
  TALON_TRY(sandbox, fields.text("sandbox", 64));
  if (sandbox && !is_id(IdKind::sandbox, *sandbox)) {
    return bad_field("sandbox", "sandbox must be the id of a sandbox");
  }
  out.sandbox = std::move(sandbox);
  TALON_TRY(ttl, fields.duration("ttl", Millis{1000}, 10 * kYear));
  out.ttl = ttl;
  TALON_CHECK(fields.done());
  return out;
}

}  // namespace talon::server::api
