// Verbs about sandboxes: requests, and their answers in the form asked for.

#include <fcntl.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/id.h"
#include "client/exec_request.h"
#include "client/run.h"
#include "client/show.h"
#include "server/api/text.h"

namespace talon::client {

using server::api::json_text;

namespace {

constexpr std::size_t kSpecBytes = std::size_t{8} << 20;  // as the server's limit on a body

enum class Form { table, json, id };

Form form_of(const Words& words) {
  const std::string text = words.value("output");
  return text == "json" ? Form::json : text == "id" ? Form::id : Form::table;
}

std::string path_of(const std::string& id, std::string_view more = "") {
  return "/v1/sandboxes/" + percent_encode(id) + std::string{more};
}

// An object of the API as asked for; `rows` makes the table.
int show(Form form, const json::value& value, std::string (*rows)(const json::array&)) {
  switch (form) {
    case Form::json: return print(json_text(value) + "\n");
    case Form::id: return print(text_of(value, "id") + "\n");
    case Form::table: return print(rows({value}));
  }
  return 0;
}

// Does `one` for each argument; the worst exit code of all.
template <class F>
int each(Session& session, const Words& words, F one) {
  int worst = 0;
  for (const std::string& argument : words.arguments) {
    const auto id = session.sandbox(argument);
    const int code = id ? one(*id) : session.report(id.error());
    worst = std::max(worst, code);
    if (code == kUnreachable) {
      break;
    }
  }
  return worst;
}

Answer<std::string> read_spec(const std::string& path) {
  std::string text;
  if (path == "-") {
    char buffer[65536];
    ssize_t n = 0;
    while ((n = ::read(STDIN_FILENO, buffer, sizeof buffer)) > 0 && text.size() <= kSpecBytes) {
      text.append(buffer, static_cast<std::size_t>(n));
    }
    return text;
  }
  auto read = read_file_at(AT_FDCWD, path, kSpecBytes);
  if (!read) {
    return usage(read.error().message);
  }
  return std::move(*read);
}

// A number where the API wants one, else the text, which talond then refuses by name.
json::value number_or_text(const std::string& text) {
  boost::system::error_code ec;
  json::value value = json::parse(text, ec);
  return !ec && value.is_number() ? value : json::value(text);
}

Answer<json::object> create_body(const Words& words) {
  json::object body;
  if (words.has("file")) {
    TALON_TRY(text, read_spec(words.value("file")));
    boost::system::error_code ec;
    json::value value = json::parse(text, ec);
    if (ec || !value.is_object()) {
      return usage("--file " + words.value("file") + " is not a JSON object");
    }
    body = std::move(value.as_object());
  }
  for (const char* name : {"name", "image", "user", "cwd", "hostname", "storage", "network"}) {
    if (words.has(name)) {
      body[name] = words.value(name);
    }
  }
  if (words.has("timeout")) {
    body["timeout"] = words.value("timeout");
  }
  json::object& resources =
      body.contains("resources") && body["resources"].is_object()
          ? body["resources"].as_object()
          : body.emplace("resources", json::object{}).first->value().emplace_object();
  if (words.has("memory")) {
    resources["memory"] = words.value("memory");
  }
  for (const char* name : {"cpu", "pids"}) {
    if (words.has(name)) {
      resources[name] = number_or_text(words.value(name));
    }
  }
  if (resources.empty()) {
    body.erase("resources");
  }
  TALON_TRY(env, pairs(words, "env"));
  TALON_TRY(labels, pairs(words, "label"));
  for (auto& [member, given] : {std::pair{"env", &env}, {"labels", &labels}}) {
    if (!given->empty()) {
      json::value& present = body[member];
      json::object& all = present.is_object() ? present.as_object() : present.emplace_object();
      for (const auto& entry : *given) {
        all[entry.key()] = entry.value();
      }
    }
  }
  return body;
}

// All pages of a list.
Answer<json::array> all_items(Session& session, const std::string& path, std::string query) {
  json::array items;
  std::string cursor;
  query += query.empty() ? "limit=1000" : "&limit=1000";
  do {
    std::string target = path + "?" + query;
    target += cursor.empty() ? "" : "&cursor=" + percent_encode(cursor);
    TALON_TRY(page, session.ask_json({.target = target}));
    if (const json::object* object = page.if_object()) {
      if (const json::value* found = object->if_contains("items"); found && found->is_array()) {
        items.insert(items.end(), found->as_array().begin(), found->as_array().end());
      }
    }
    cursor = text_of(page, "next_cursor");
  } while (!cursor.empty());
  return items;
}

}  // namespace

int create(Session& session, const Words& words) {
  auto body = create_body(words);
  if (!body) {
    return session.report(body.error());
  }
  constexpr Millis kLongestWait{300'000};  // wait_timeout, and what the answer needs above it
  const bool wait = !words.has("no-wait");
  auto made = session.ask_json(
      {.method = "POST",
       .target = wait ? "/v1/sandboxes?wait=running&wait_timeout=300" : "/v1/sandboxes",
       .headers = {{"Idempotency-Key", random_hex(16)}},
       .body = json::serialize(*body),
       .limit = kLongestWait + Millis{30'000}});
  return made ? show(form_of(words), *made, sandbox_table) : session.report(made.error());
}

int list(Session& session, const Words& words) {
  std::string path = "/v1/sandboxes";
  std::string query;
  const bool processes = !words.arguments.empty();
  if (processes) {
    const auto id = session.sandbox(words.arguments[0]);
    if (!id) {
      return session.report(id.error());
    }
    path = path_of(*id, "/processes");
  }
  for (const char* name : {"state", "label"}) {
    for (const std::string& value : words.values(name)) {
      query += (query.empty() ? "" : "&") + std::string{name} + "=" + percent_encode(value);
    }
  }
  const auto items = all_items(session, path, query);
  if (!items) {
    return session.report(items.error());
  }
  switch (form_of(words)) {
    case Form::json:
      return print(json_text(json::object{{"items", *items}, {"next_cursor", nullptr}}) + "\n");
    case Form::id: {
      std::string ids;
      for (const json::value& item : *items) {
        ids += text_of(item, "id") + "\n";
      }
      return print(ids);
    }
    case Form::table: return print(processes ? process_table(*items) : sandbox_table(*items));
  }
  return 0;
}

int get(Session& session, const Words& words) {
  const auto id = session.sandbox(words.arguments[0]);
  if (!id) {
    return session.report(id.error());
  }
  const std::string target = words.arguments.size() == 1
                                 ? path_of(*id)
                                 : path_of(*id, "/processes/" + percent_encode(words.arguments[1]));
  const auto found = session.ask_json({.target = target});
  if (!found) {
    return session.report(found.error());
  }
  return show(form_of(words), *found, [](const json::array& one) { return details(one[0]); });
}

int rm(Session& session, const Words& words) {
  const Form form = form_of(words);
  return each(session, words, [&](const std::string& id) {
    const auto gone = session.ask({.method = "DELETE", .target = path_of(id)});
    if (!gone) {
      return session.report(gone.error());
    }
    if (form == Form::table) {
      return 0;
    }
    return show(form, json::object{{"id", id}, {"state", "deleted"}}, sandbox_table);
  });
}

int change(Session& session, const Words& words) {
  return each(session, words, [&](const std::string& id) {
    const auto done = session.ask_json(
        {.method = "POST", .target = path_of(id, "/" + std::string{words.verb->name})});
    return done ? show(form_of(words), *done, sandbox_table) : session.report(done.error());
  });
}

int stop(Session& session, const Words& words) {
  if (!words.has("process")) {
    return words.has("grace") ? session.report(usage("--grace needs --process").error())
                              : change(session, words);
  }
  return each(session, words, [&](const std::string& id) {
    std::string target = path_of(id, "/processes/" + percent_encode(words.value("process")));
    Millis limit{60'000};
    if (words.has("grace")) {
      target += "?grace=" + percent_encode(words.value("grace"));
      limit += Millis{3'600'000};  // the longest grace there is
    }
    const auto ended = session.ask({.method = "DELETE", .target = target, .limit = limit});
    return ended ? 0 : session.report(ended.error());
  });
}

int version(Session& session, const Words& words) {
  const Form form = form_of(words);
  const auto host = session.ask_json({.target = "/v1/host"});
  const std::string served = host ? text_of(*host, "version") : "";
  int code = 0;
  if (form == Form::json) {
    code = print(json::serialize(
                     json::object{{"tsb", TALON_VERSION},
                                  {"talond", host ? json::value(served) : json::value(nullptr)}}) +
                 "\n");
  } else {
    code = print("tsb " TALON_VERSION "\n" + (host ? "talond " + served + "\n" : ""));
  }
  // Who may not read the host's facts has reached it all the same.
  if (!host && host.error().code != "forbidden") {
    return session.report(host.error());
  }
  return code;
}

}  // namespace talon::client
