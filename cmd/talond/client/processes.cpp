// Verbs about processes: what they ask for; exec and pty then go on in relay.cpp.

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/clock.h"
#include "base/id.h"
#include "base/units.h"
#include "client/exec_request.h"
#include "client/logs.h"
#include "client/relay.h"
#include "client/run.h"
#include "client/show.h"
#include "server/api/text.h"

namespace talon::client {

namespace {

constexpr int kTimedOut = 124;  // as timeout(1) and talond run
// The most there is: output that we read too slowly waits there.
constexpr const char* kExecLog = "1GiB";
constexpr const char* kShell = "exec \"$(command -v bash || command -v sh)\"";

// Starts something under `path` of the sandbox; the answer. Asked twice it starts once.
Answer<json::value> start(Session& session, const Words& words, const std::string& sandbox,
                          std::string_view path, const json::object& body) {
  return session.ask_json({.method = "POST",
                           .target = "/v1/sandboxes/" + sandbox + std::string{path} +
                                     (words.has("resume") ? "?resume=1" : ""),
                           .headers = {{"Idempotency-Key", random_hex(16)}},
                           .body = json::serialize(body)});
}

// RFC 3339 or seconds since 1970 as they are; "10m" as that long ago.
std::string point_in_time(const std::string& text) {
  const bool since_1970 = std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  const auto ago = parse_duration(text);
  return ago && !since_1970 ? rfc3339(system_clock().wall_ms() - ago->count()) : text;
}

Answer<cli::Signals> catch_signals() {
  auto signals = cli::Signals::install();
  if (!signals) {
    return std::unexpected(to_failure(signals.error()));
  }
  return std::move(*signals);
}

Answer<DetachKeys> detach_keys(const Words& words) {
  auto keys =
      DetachKeys::parse(words.has("detach-keys") ? words.value("detach-keys") : "ctrl-p,ctrl-q");
  if (!keys) {
    return usage(keys.error().message);
  }
  return std::move(*keys);
}

// A process with a terminal of our terminal's size and kind.
Answer<std::string> start_pty(Session& session, const Words& words, const std::string& sandbox) {
  TALON_TRY(body, exec_body(words));
  if (words.command.empty()) {
    body.erase("argv");
    body["command"] = kShell;
  }
  const auto size = cli::window_size(::isatty(STDIN_FILENO) == 1 ? STDIN_FILENO : STDOUT_FILENO);
  body["cols"] = size.cols;
  body["rows"] = size.rows;
  if (words.has("no-record")) {
    body["record"] = false;
  }
  const char* const term = std::getenv("TERM");
  if (term != nullptr) {
    json::object& env = body.contains("env")
                            ? body["env"].as_object()
                            : body.emplace("env", json::object{}).first->value().as_object();
    env.emplace("TERM", term);  // unless --env has one
  }
  TALON_TRY(made, start(session, words, sandbox, "/pty", body));
  return text_of(made, "id");
}

void say_left(Session& session, const RelayOptions& options, const std::string& sandbox) {
  if (::isatty(STDOUT_FILENO) == 1) {
    // Normal screen, cursor shown, plain text, no reports of mouse and paste: what a program
    // that draws the whole screen would undo at its end.
    constexpr std::string_view kPlain =
        "\x1b[?1047l\x1b[?25h\x1b[0m\x1b[?2004l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\r\n";
    [[maybe_unused]] const int printed = print(kPlain);
  }
  session.say("left running; come back by: tsb pty " + sandbox + " --attach " + options.px);
}

Answer<RelayEnd> relay(Session& session, cli::Signals& signals, const RelayOptions& options,
                       const std::string& sandbox) {
  auto end = Relay(session, signals, options).run();
  if (end && end->left) {
    say_left(session, options, sandbox);
  }
  return end;
}

Answer<RelayEnd> run_exec(Session& session, const Words& words) {
  if (words.command.empty()) {
    return usage("no command; write exec ID -- CMD...");
  }
  TALON_TRY(keys, detach_keys(words));
  TALON_TRY(body, exec_body(words));
  TALON_TRY(id, session.sandbox(words.arguments[0]));
  TALON_TRY(signals, catch_signals());
  RelayOptions options{.sandbox = id, .px = {}};
  options.input = words.has("interactive");
  if (words.has("tty")) {
    options.tty = options.writer = true;
    options.keys = keys;
    TALON_TRY(px, start_pty(session, words, id));
    options.px = px;
  } else {
    if (options.input) {
      body["stdin"] = true;
    }
    body["log"] = json::object{{"cap", kExecLog}};
    TALON_TRY(made, start(session, words, id, "/processes", body));
    options.px = text_of(made, "id");
  }
  return relay(session, signals, options, words.arguments[0]);
}

// What a terminal shows when one comes back to it: its last lines, and the cursor behind them.
Answer<> read_last_lines(Session& session, RelayOptions& options) {
  const auto size = cli::window_size(STDOUT_FILENO);
  TALON_TRY(reply, session.ask({.target = "/v1/sandboxes/" + options.sandbox + "/processes/" +
                                          percent_encode(options.px) +
                                          "/logs?stream=tty&tail=" + std::to_string(size.rows),
                                .headers = {{"Accept", "application/x-ndjson"}}}));
  std::string_view rest = reply.body;
  for (auto end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
    const auto event = parse_event(rest.substr(0, end));
    if (!event) {
      return std::unexpected(to_failure(event.error()));
    }
    if (event->kind == LogEvent::Kind::tty) {
      options.screen += event->bytes;
    }
    if (!event->cursor.empty()) {
      options.from = event->cursor;
    }
    rest.remove_prefix(end + 1);
  }
  return {};
}

Answer<RelayEnd> run_pty(Session& session, const Words& words) {
  const bool attach = words.has("attach");
  if (!attach && (words.has("steal") || words.has("read-only"))) {
    return usage("--steal and --read-only are for --attach");
  }
  if (attach && !words.command.empty()) {
    return usage("--attach takes no command");
  }
  TALON_TRY(keys, detach_keys(words));
  TALON_TRY(id, session.sandbox(words.arguments[0]));
  TALON_TRY(signals, catch_signals());
  RelayOptions options{.sandbox = id, .px = words.value("attach")};
  options.tty = options.input = options.leave_at_signals = true;
  options.writer = !words.has("read-only");
  options.steal = words.has("steal");
  options.keys = keys;
  if (attach) {
    TALON_CHECK(read_last_lines(session, options));
    options.redraw = options.writer;
  } else {
    TALON_TRY(px, start_pty(session, words, id));
    options.px = px;
  }
  return relay(session, signals, options, words.arguments[0]);
}

// The process that was started last.
Answer<std::string> newest(Session& session, const std::string& sandbox) {
  TALON_TRY(page, session.ask_json({.target = "/v1/sandboxes/" + sandbox + "/processes?limit=1"}));
  const json::value* items = page.is_object() ? page.as_object().if_contains("items") : nullptr;
  if (items == nullptr || !items->is_array() || items->as_array().empty()) {
    return std::unexpected(Failure{.exit = kNoSuchThing,
                                   .code = "not_found",
                                   .detail = "no process was started in " + sandbox + " yet"});
  }
  return text_of(items->as_array().front(), "id");
}

}  // namespace

Answer<json::object> pairs(const Words& words, std::string_view option) {
  json::object all;
  for (const std::string& word : words.values(option)) {
    const auto equals = word.find('=');
    if (equals == std::string::npos || equals == 0) {
      return usage("--" + std::string{option} + " needs NAME=VALUE, not \"" + word + "\"");
    }
    all[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return all;
}

Answer<json::object> exec_body(const Words& words) {
  json::object body;
  json::array argv;
  for (const std::string& word : words.command) {
    argv.emplace_back(word);
  }
  body["argv"] = std::move(argv);
  TALON_TRY(env, pairs(words, "env"));
  if (!env.empty()) {
    body["env"] = std::move(env);
  }
  for (const char* name : {"cwd", "user", "timeout"}) {
    if (words.has(name)) {
      body[name] = words.value(name);
    }
  }
  return body;
}

int spawn(Session& session, const Words& words) {
  if (words.command.empty()) {
    return session.report(usage("no command; write spawn ID -- CMD...").error());
  }
  auto body = exec_body(words);
  if (!body) {
    return session.report(body.error());
  }
  if (words.has("log-cap")) {
    (*body)["log"] = json::object{{"cap", words.value("log-cap")}};
  }
  const auto id = session.sandbox(words.arguments[0]);
  if (!id) {
    return session.report(id.error());
  }
  const auto made = start(session, words, *id, "/processes", *body);
  if (!made) {
    return session.report(made.error());
  }
  const std::string form = words.value("output");
  return print(form == "json" ? server::api::json_text(*made) + "\n"
               : form == "id" ? text_of(*made, "id") + "\n"
                              : process_table({*made}));
}

int logs(Session& session, const Words& words) {
  const auto id = session.sandbox(words.arguments[0]);
  if (!id) {
    return session.report(id.error());
  }
  LogOptions options{.sandbox = *id, .follow = words.has("follow"), .tail = words.value("tail")};
  if (words.arguments.size() > 1) {
    options.px = words.arguments[1];
  } else {
    const auto px = newest(session, *id);
    if (!px) {
      return session.report(px.error());
    }
    options.px = *px;
  }
  for (const char* name : {"since", "until"}) {
    if (words.has(name)) {
      options.query +=
          "&" + std::string{name} + "=" + percent_encode(point_in_time(words.value(name)));
    }
  }
  if (words.has("stream")) {
    options.query += "&stream=" + percent_encode(words.value("stream"));
  }
  return copy_log(session, std::move(options));
}

int exec(Session& session, const Words& words) {
  auto end = run_exec(session, words);
  if (!end) {
    session.report(end.error());
    return kExecFailed;
  }
  if (end->left) {
    return 0;
  }
  if (end->lost > 0) {
    session.report({.code = "output_lost",
                    .detail = std::to_string(end->lost) +
                              " bytes of output are missing (it was read too slowly, or the disk "
                              "is full)"});
    return kExecFailed;
  }
  if (end->timed_out) {
    session.say("the command was ended by --timeout");
    return kTimedOut;
  }
  return end->exit_code ? *end->exit_code : 128 + end->signal;
}

int pty(Session& session, const Words& words) {
  const auto end = run_pty(session, words);
  return end ? 0 : session.report(end.error());
}

}  // namespace talon::client
