// talond: one executable, several faces (docs/ARCHITECTURE.md §2).

#include <span>
#include <string_view>
#include <variant>

#include "cli/cli.h"
#include "client/client.h"
#include "isolate/launch.h"

int main(int argc, char** argv) {
  // First of all: the spawner must start small, before anything else of ours has run.
  if (talon::isolate::spawner_main_if_asked(argc, argv)) {
    return 0;
  }
  talon::cli::open_standard_descriptors();
  std::string_view name = argc > 0 ? argv[0] : "talond";
  name.remove_prefix(name.rfind('/') + 1);
  if (name == "tsb") {
    return talon::client::client_main(name, std::span(argv, argc).subspan(1));
  }
  if (argc > 1 && talon::client::is_client_verb(argv[1])) {
    return talon::client::client_main("talond", std::span(argv, argc).subspan(1));
  }
  const auto parsed = talon::cli::parse(argc, argv);
  if (const int* code = std::get_if<int>(&parsed)) {
    return *code;
  }
  const auto& invocation = std::get<talon::cli::Invocation>(parsed);
  switch (invocation.verb) {
    case talon::cli::Verb::serve: return talon::cli::serve(invocation);
    case talon::cli::Verb::run: return talon::cli::run(invocation);
    case talon::cli::Verb::doctor: return talon::cli::doctor(invocation);
    case talon::cli::Verb::plan: return talon::cli::plan(invocation);
    case talon::cli::Verb::routes: return talon::cli::routes(invocation);
    case talon::cli::Verb::image_list: return talon::cli::image_list(invocation);
    case talon::cli::Verb::image_import: return talon::cli::image_import(invocation);
    case talon::cli::Verb::image_remove: return talon::cli::image_remove(invocation);
    case talon::cli::Verb::image_refresh: return talon::cli::image_refresh(invocation);
    case talon::cli::Verb::version: return talon::cli::version(invocation);
  }
}
