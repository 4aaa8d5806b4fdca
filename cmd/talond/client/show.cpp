#include "client/show.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/clock.h"
#include "server/api/text.h"

namespace talon::client {

namespace {

std::string or_dash(std::string text) { return text.empty() ? "-" : printable(text); }

std::string plain(const json::value& value) {
  if (value.is_string()) {
    return printable(std::string_view{value.as_string()});
  }
  return value.is_null() ? "-" : server::api::json_text(value);
}

// A limit {value, enforced, asked} in words.
std::string limit_text(const json::object& limit) {
  const json::value& value = limit.at("value");
  if (value.is_number() && value.to_number<double>() == 0) {
    return "none";
  }
  return plain(value) + (limit.at("enforced") == json::value(true) ? "" : " (not enforced)");
}

// Columns on the screen: code points, which is right for all but wide and combining characters.
std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string command_of(const json::value& process) {
  std::string text = text_of(process, "command");
  const json::value* argv = process.as_object().if_contains("argv");
  if (text.empty() && argv != nullptr && argv->is_array()) {
    for (const json::value& word : argv->as_array()) {
      text += (text.empty() ? "" : " ") + plain(word);
    }
  }
  return text;
}

std::string result_of(const json::value& process) {
  const json::value* result = process.as_object().if_contains("result");
  if (result == nullptr || !result->is_object()) {
    return "-";
  }
  const auto flag = [&](std::string_view name) {
    const json::value* value = result->as_object().if_contains(name);
    return value != nullptr && *value == json::value(true);
  };
  for (const auto& [name, shown] :
       {std::pair{"oom", "out of memory"}, {"timed_out", "timed out"}}) {
    if (flag(name)) {
      return shown;
    }
  }
  const json::value* signal = result->as_object().if_contains("signal");
  if (signal != nullptr && !signal->is_null()) {
    return "signal " + plain(*signal);
  }
  const json::value* code = result->as_object().if_contains("exit_code");
  return code == nullptr ? "-" : "exit " + plain(*code);
}

void append_details(std::vector<std::vector<std::string>>& rows, const std::string& name,
                    const json::value& value) {
  const json::object* object = value.if_object();
  if (object == nullptr || object->empty()) {
    rows.push_back({name, object != nullptr || value == json::value("") ? "-" : plain(value)});
    return;
  }
  if (object->contains("value") && object->contains("enforced")) {
    rows.push_back({name, limit_text(*object)});
    return;
  }
  for (const auto& entry : *object) {
    append_details(rows, (name.empty() ? "" : name + ".") + std::string{entry.key()},
                   entry.value());
  }
}

}  // namespace

std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], width(row[i]));
    }
  }
  std::string out;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      out += row[i];
      if (i + 1 < row.size()) {
        out.append(widths[i] - width(row[i]) + 2, ' ');
      }
    }
    out += '\n';
  }
  return out;
}

std::string age(std::string_view rfc3339, std::int64_t now_ms) {
  int y = 0;
  int mo = 0;
  int d = 0;
  int h = 0;
  int mi = 0;
  int s = 0;
  if (std::sscanf(std::string{rfc3339}.c_str(), "%d-%d-%dT%d:%d:%d", &y, &mo, &d, &h, &mi, &s) !=
      6) {
    return "-";
  }
  namespace ch = std::chrono;
  const ch::sys_days day =
      ch::year{y} / ch::month(static_cast<unsigned>(mo)) / ch::day(static_cast<unsigned>(d));
  const std::int64_t then = ch::seconds(day.time_since_epoch()).count() + h * 3600 + mi * 60 + s;
  const std::int64_t seconds = std::max<std::int64_t>(0, now_ms / 1000 - then);
  if (seconds < 120) {
    return std::to_string(seconds) + "s";
  }
  if (seconds < 120 * 60) {
    return std::to_string(seconds / 60) + "m";
  }
  if (seconds < 48 * 3600) {
    return std::to_string(seconds / 3600) + "h";
  }
  return std::to_string(seconds / 86400) + "d";
}

std::string sandbox_table(const json::array& sandboxes) {
  const std::int64_t now = system_clock().wall_ms();
  std::vector<std::vector<std::string>> rows{{"ID", "NAME", "STATE", "IMAGE", "AGE"}};
  for (const json::value& sandbox : sandboxes) {
    std::string state = text_of(sandbox, "state");
    const std::string operation = text_of(sandbox, "operation");
    state += operation.empty() ? "" : " (" + operation + ")";
    rows.push_back({or_dash(text_of(sandbox, "id")), or_dash(text_of(sandbox, "name")),
                    or_dash(state), or_dash(text_of(sandbox, "image")),
                    age(text_of(sandbox, "created_at"), now)});
  }
  return table(rows);
}

std::string process_table(const json::array& processes) {
  const std::int64_t now = system_clock().wall_ms();
  std::vector<std::vector<std::string>> rows{{"ID", "STATE", "RESULT", "AGE", "COMMAND"}};
  for (const json::value& process : processes) {
    if (process.is_object()) {
      rows.push_back({or_dash(text_of(process, "id")), or_dash(text_of(process, "state")),
                      result_of(process), age(text_of(process, "started_at"), now),
                      or_dash(command_of(process))});
    }
  }
  return table(rows);
}

std::string details(const json::value& object) {
  std::vector<std::vector<std::string>> rows;
  append_details(rows, "", object);
  return table(rows);
}

}  // namespace talon::client
