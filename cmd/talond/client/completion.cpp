#include <algorithm>

#include "base/id.h"
#include "client/session.h"
#include "client/verbs.h"

namespace talon::client {

namespace {

// All three ask `tsb __complete` for the words that may stand where the cursor is.
constexpr std::string_view kBash =
    R"(# bash completion for tsb: tsb completion bash > /etc/bash_completion.d/tsb
_tsb() {
  mapfile -t COMPREPLY < <("${COMP_WORDS[0]/#\~/$HOME}" __complete \
    "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1)
}
complete -o default -F _tsb tsb
)";
constexpr std::string_view kZsh =
    R"(#compdef tsb
# zsh completion for tsb: tsb completion zsh > /usr/local/share/zsh/site-functions/_tsb
_tsb() {
  local -a lines
  lines=("${(@f)$(${(Q)words[1]} __complete "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
  lines=("${(@)lines//:/\\:}")
  lines=("${(@)lines/$'\t'/:}")
  if [[ -n "${lines[1]}" ]]; then
    _describe tsb lines
  else
    _files
  fi
}
if [[ "${funcstack[1]}" = _tsb ]]; then
  _tsb "$@"
else
  compdef _tsb tsb
fi
)";
constexpr std::string_view kFish =
    R"(# fish completion for tsb: tsb completion fish > ~/.config/fish/completions/tsb.fish
function __tsb_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    $words[1] __complete $words[2..-1] "$current" 2>/dev/null
end
complete -c tsb -f -a '(__tsb_complete)'
complete -c tsb -n 'contains create (commandline -opc)' -s f -l file -r -F
)";

struct Candidates {
  std::string prefix;
  std::string text;
  void add(std::string_view word, std::string_view help = {}) {
    if (word.starts_with(prefix)) {
      text += word;
      text += help.empty() ? "" : "\t";
      text += help;
      text += '\n';
    }
  }
  void add_all(std::string_view words) {
    while (!words.empty()) {
      const auto end = words.find(' ');
      add(words.substr(0, end));
      words.remove_prefix(end == std::string_view::npos ? words.size() : end + 1);
    }
  }
};

void add_verbs(Candidates& out) {
  for (const Verb& verb : verbs()) {
    out.add(verb.name, verb.summary);
  }
  out.add("help", "explain a verb");
}

void add_items(Candidates& out, Session& session, const std::string& path,
               std::string_view described_by) {
  const auto page = session.ask_json({.target = path + "?limit=1000", .limit = Millis{2000}});
  const json::object* object = page ? page->if_object() : nullptr;
  const json::value* items = object != nullptr ? object->if_contains("items") : nullptr;
  if (items == nullptr || !items->is_array()) {
    return;
  }
  for (const json::value& item : items->as_array()) {
    const std::string name = text_of(item, "name");
    const std::string text = printable(text_of(item, described_by));
    if (!name.empty()) {
      out.add(name, text);
    }
    if (name.empty() || !out.prefix.empty()) {
      out.add(text_of(item, "id"), text);
    }
  }
}

void add_argument(Candidates& out, const Verb& verb, const Words& before) {
  if (verb.name == "completion") {
    out.add_all("bash zsh fish");
    return;
  }
  const std::size_t at = before.arguments.size();
  if (verb.takes.empty() || (at >= verb.takes.size() && !verb.many)) {
    return;
  }
  auto address = address_of_environment();
  if (!address) {
    return;
  }
  Session session("tsb", std::move(*address));
  if (verb.takes[std::min(at, verb.takes.size() - 1)] == Argument::sandbox) {
    add_items(out, session, "/v1/sandboxes", "state");
  } else if (const auto id = session.sandbox(before.arguments[0])) {
    add_items(out, session, "/v1/sandboxes/" + *id + "/processes", "command");
  }
}

const Option* awaiting_value(const Verb& verb, const std::string& word) {
  for (const Option& option : verb.options) {
    const bool named = word == "--" + std::string{option.name} ||
                       (option.letter != 0 && word == std::string{'-', option.letter});
    if (named && !option.value.empty()) {
      return &option;
    }
  }
  return nullptr;
}

}  // namespace

std::string complete(std::span<const std::string> words) {
  Candidates out;
  std::vector<std::string> all(words.begin(), words.end());
  if (all.empty()) {
    return {};
  }
  out.prefix = all.back();
  all.pop_back();
  // bash makes "--output=js" three words.
  if (out.prefix == "=") {
    out.prefix.clear();
  } else if (!all.empty() && all.back() == "=") {
    all.pop_back();
  }
  if (all.empty() || (all.size() == 1 && all[0] == "help")) {
    add_verbs(out);
    return out.text;
  }
  const Verb* verb = find_verb(all[0]);
  if (verb == nullptr) {
    return {};
  }
  if (const Option* option = awaiting_value(*verb, all.back())) {
    out.add_all(option->choices);
    return out.text;
  }
  // What comes before is not complete yet, so it may not be right yet.
  Verb lenient = *verb;
  lenient.at_least = 0;
  lenient.many = true;
  const auto before = parse(lenient, std::span{all}.subspan(1));
  if (!before || !before->command.empty() || std::ranges::find(all, "--") != all.end()) {
    return {};
  }
  if (out.prefix.starts_with('-')) {
    for (const Option& option : verb->options) {
      out.add("--" + std::string{option.name}, option.help);
    }
    out.add("--help", "this text");
    return out.text;
  }
  add_argument(out, *verb, *before);
  return out.text;
}

std::string_view completion_script(std::string_view shell) {
  return shell == "bash" ? kBash : shell == "zsh" ? kZsh : shell == "fish" ? kFish : "";
}

}  // namespace talon::client
