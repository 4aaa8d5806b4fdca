#include "client/client.h"

#include <unistd.h>

#include "base/fd.h"
#include "client/session.h"
#include "client/verbs.h"

namespace talon::client {

namespace {

int wrong_usage(std::string_view program, const std::string& message, std::string_view verb,
                int code) {
  const std::string line = std::string{program} + ": usage: " + printable(message) + " (see " +
                           std::string{program} + (verb.empty() ? "" : " ") + std::string{verb} +
                           " --help)\n";
  [[maybe_unused]] const auto written = write_all(STDERR_FILENO, line);
  return code;
}

std::string names() {
  std::string all;
  for (const Verb& verb : verbs()) {
    all += " " + std::string{verb.name};
  }
  return all;
}

int help(std::string_view program, std::span<const std::string> words) {
  if (words.size() < 2) {
    return print(help_text(program));
  }
  const Verb* verb = find_verb(words[1]);
  return verb != nullptr
             ? print(help_text(program, *verb))
             : wrong_usage(program, "there is no verb \"" + words[1] + "\"", "", kUsage);
}

int completion(std::string_view program, const Words& words) {
  const std::string_view script = completion_script(words.arguments[0]);
  return !script.empty() ? print(script)
                         : wrong_usage(program, "there is completion for bash, zsh and fish",
                                       "completion", kUsage);
}

int run_verb(std::string_view program, const Verb& verb, std::span<const std::string> words) {
  const int bad = verb.name == "exec" ? kExecFailed : kUsage;
  const auto parsed = parse(verb, words);
  if (!parsed) {
    return wrong_usage(program, parsed.error().message, verb.name, bad);
  }
  if (parsed->help) {
    return print(help_text(program, verb));
  }
  if (verb.run == nullptr) {
    return completion(program, *parsed);
  }
  auto address = address_of_environment();
  if (!address) {
    return wrong_usage(program, address.error().message, "", bad);
  }
  Session session(program, std::move(*address));
  return verb.run(session, *parsed);
}

}  // namespace

bool is_client_verb(std::string_view word) {
  return word != "version" && find_verb(word) != nullptr;
}

int client_main(std::string_view program, std::span<char*> words) {
  const std::vector<std::string> all(words.begin(), words.end());
  const std::string first = all.empty() ? "" : all[0];
  if (first == "--help" || first == "-h" || first == "help") {
    return help(program, all);
  }
  if (first == "--version") {
    return print("tsb " TALON_VERSION "\n");
  }
  if (first == "__complete") {
    return print(complete(std::span{all}.subspan(1)));
  }
  if (const Verb* verb = find_verb(first)) {
    return run_verb(program, *verb, std::span{all}.subspan(1));
  }
  return wrong_usage(program,
                     (first.empty() ? "a verb is missing" : "there is no verb \"" + first + "\"") +
                         "; there are" + names(),
                     "", kUsage);
}

}  // namespace talon::client
