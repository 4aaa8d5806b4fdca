#pragma once
// The client verbs as one table, from which come the parser, --help, docs/cli.md and the shell
// completion. No CLI11 here: `tsb exec` starts thousands of times a day, and one description has
// to serve all four.

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace talon::client {

class Session;
struct Words;

struct Option {
  char letter;             // 0 = none
  std::string_view name;   // "output", without dashes
  std::string_view value;  // "FORMAT"; "" = a flag
  std::string_view help;
  std::string_view choices = {};  // for completion, separated by spaces
};

enum class Argument { sandbox, process, word };

struct Verb {
  std::string_view name;
  std::string_view arguments;  // as in the usage line, "ID [PX]"
  std::string_view summary;
  std::string_view text;  // what --help says below the options; examples are in it
  std::span<const Option> options;
  std::span<const Argument> takes;  // the last one may repeat if `many`
  std::size_t at_least = 0;
  bool many = false;
  bool command = false;  // everything from the word after the arguments is a command
  int (*run)(Session& session, const Words& words);
};

std::span<const Verb> verbs();
const Verb* find_verb(std::string_view name);

// One parsed command line.
struct Words {
  const Verb* verb = nullptr;
  bool help = false;
  std::vector<std::string> arguments;
  std::vector<std::string> command;
  std::map<std::string, std::vector<std::string>, std::less<>> options;

  bool has(std::string_view option) const { return options.contains(option); }
  // The last one given; "" if none.
  std::string value(std::string_view option) const;
  const std::vector<std::string>& values(std::string_view option) const;
};

// `words`: what follows the verb. Options stand anywhere before the command; `-it` is -i -t,
// `-ojson` and `--output=json` are known. Errors: invalid_request, one sentence.
Result<Words> parse(const Verb& verb, std::span<const std::string> words);

// `program`: tsb, or talond.
std::string help_text(std::string_view program);
std::string help_text(std::string_view program, const Verb& verb);

// Candidates for the last of `words` (which follow the program's name), one a line, with a tab
// and a description where there is one. Asks talond for ids and names; says nothing if it cannot.
std::string complete(std::span<const std::string> words);
// "" when there is no script for that shell.
std::string_view completion_script(std::string_view shell);

}  // namespace talon::client
