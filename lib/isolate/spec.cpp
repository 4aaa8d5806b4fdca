#include "isolate/spec.h"

#include <algorithm>

namespace talon::isolate {

void set_command(ExecSpec& spec, std::string text) {
  if (text.size() <= limits::kArgBytes) {
    spec.script.clear();
    spec.argv = {"/bin/sh", "-c", std::move(text)};
    return;
  }
  // Linux refuses one argument above 128 KiB (MAX_ARG_STRLEN), so the shell reads it instead.
  spec.script = std::move(text);
  spec.argv = {"/bin/sh", "/dev/fd/3"};
}

void add_default_env(std::vector<std::pair<std::string, std::string>>& env) {
  static constexpr std::pair<const char*, const char*> kDefaults[] = {
      {"PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
      {"LANG", "C.UTF-8"},
  };
  // Of two entries with one name programs disagree which counts; the caller's first one does.
  std::vector<std::pair<std::string, std::string>> out;
  out.reserve(env.size() + std::size(kDefaults));
  const auto has = [&out](std::string_view name) {
    return std::ranges::any_of(out, [name](const auto& e) { return e.first == name; });
  };
  for (auto& entry : env) {
    if (!has(entry.first)) {
      out.push_back(std::move(entry));
    }
  }
  for (const auto& [name, value] : kDefaults) {
    if (!has(name)) {
      out.emplace_back(name, value);
    }
  }
  env = std::move(out);
}

}  // namespace talon::isolate
