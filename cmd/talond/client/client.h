#pragma once
// `tsb`, and the same verbs as `talond VERB`.

#include <span>
#include <string_view>

namespace talon::client {

// Whether `talond WORD` is a client verb (version is talond's own).
bool is_client_verb(std::string_view word);
// `words`: the command line behind the program's name. The exit code.
int client_main(std::string_view program, std::span<char*> words);

}  // namespace talon::client
