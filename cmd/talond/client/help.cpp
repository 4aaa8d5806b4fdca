#include <algorithm>

#include "client/verbs.h"

namespace talon::client {

namespace {

constexpr std::string_view kIntroduction =
    "Sandboxes of a talond, from the command line.\n"
    "\n"
    "Usage: tsb VERB [OPTIONS] [ARGUMENTS]\n"
    "\n";

constexpr std::string_view kEnd =
    "\n"
    "Examples:\n"
    "  tsb create --name web\n"
    "  tsb exec web -- uname -a\n"
    "  tsb pty web                            a terminal; Ctrl-P Ctrl-Q leaves it running\n"
    "  tsb rm web\n"
    "\n"
    "ID is the id of a sandbox or its name, PX the id of a process.\n"
    "\n"
    "Where talond is:\n"
    "  TALON_URL      http://HOST[:PORT], https://HOST[:PORT] or unix:/PATH\n"
    "  TALON_API_KEY  the key; not needed by root on the unix socket\n"
    "  SSL_CERT_FILE  authorities that https is checked against, if not this machine's\n"
    "  Without TALON_URL: the socket /run/talon/talond.sock ($TALON_RUN_DIR/talond.sock), else\n"
    "  http://127.0.0.1:7300 if there is a key.\n"
    "\n"
    "Exit codes: 0 done, 1 refused (the problem's code is on stderr), 2 wrong usage, 3 talond not\n"
    "reachable, 4 no such thing. exec: the command's own, and 125 for every failure of ours.\n"
    "\n"
    "tsb VERB --help explains a verb with examples.\n";

// The texts are written for tsb.
std::string for_program(std::string text, std::string_view program) {
  if (program == "tsb") {
    return text;
  }
  for (auto at = text.find("tsb "); at != std::string::npos; at = text.find("tsb ", at + 1)) {
    text.replace(at, 3, program);
  }
  return text;
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(text.size() + 2, width), ' ');
  return text;
}

std::string option_line(const Option& option) {
  std::string left = option.letter != 0 ? std::string{"  -"} + option.letter + ", " : "      ";
  left += "--" + std::string{option.name};
  if (!option.value.empty()) {
    left += " " + std::string{option.value};
  }
  return padded(std::move(left), 27) + std::string{option.help} + "\n";
}

}  // namespace

std::string help_text(std::string_view program) {
  std::string text{kIntroduction};
  for (const Verb& verb : verbs()) {
    text += padded("  " + std::string{verb.name}, 14) + std::string{verb.summary} + "\n";
  }
  return for_program(text + std::string{kEnd}, program);
}

std::string help_text(std::string_view program, const Verb& verb) {
  std::string text = "tsb " + std::string{verb.name} + ": " + std::string{verb.summary} + "\n\n";
  text += "Usage: tsb " + std::string{verb.name};
  const bool listed = verb.arguments.starts_with("[OPTIONS]");
  text += verb.options.empty() || listed ? "" : " [OPTIONS]";
  text += (verb.arguments.empty() ? "" : " ") + std::string{verb.arguments} + "\n\n";
  for (const Option& option : verb.options) {
    text += option_line(option);
  }
  text += "  -h, --help               this text\n\n";
  return for_program(text + std::string{verb.text}, program);
}

}  // namespace talon::client
