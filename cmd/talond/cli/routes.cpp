#include "server/api/routes.h"

#include <cstdio>

#include "cli/cli.h"

namespace talon::cli {

int routes(const Invocation&) {
  for (const auto& route : server::api::routes()) {
    std::printf("%-7.*s %-46.*s %-12s %.*s\n", static_cast<int>(route.verb.size()),
                route.verb.data(), static_cast<int>(route.path.size()), route.path.data(),
                std::string{server::api::to_string(route.role)}.c_str(),
                static_cast<int>(route.operation.size()), route.operation.data());
  }
  return std::fflush(stdout) == 0 ? 0 : kFailed;
}

}  // namespace talon::cli
