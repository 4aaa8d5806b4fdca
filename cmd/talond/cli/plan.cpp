#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>

#include "base/fd.h"
#include "base/limits.h"
#include "cli/cli.h"
#include "isolate/plan.h"
#include "server/api/decode_requests.h"
#include "server/node/isolator.h"

namespace talon::cli {

namespace {

Result<std::string> read_spec(const std::string& path) {
  return path == "-" ? read_file_at(AT_FDCWD, "/proc/self/fd/0", limits::kBodyBytes)
                     : read_file_at(AT_FDCWD, path, limits::kBodyBytes);
}

Result<std::string> print_plan(const Invocation& invocation) {
  TALON_TRY(config, config_of(invocation));
  TALON_TRY(text, read_spec(invocation.path));
  auto request = server::api::decode_create(text, config.proc);
  if (!request) {
    return std::unexpected(
        std::move(request).error().in(invocation.path == "-" ? "stdin" : invocation.path));
  }
  TALON_TRY(host, isolate::probe_host(config.cgroup));
  // Any id will do: the plan does not depend on it.
  const auto spec = server::node::sandbox_spec(request->wish, "sb00000000000000000000",
                                               config.unconfined_seccomp);
  return isolate::print(isolate::make_plan(spec, host, config.ids_base));
}

}  // namespace

int plan(const Invocation& invocation) {
  const auto text = print_plan(invocation);
  if (!text) {
    return failed(text.error(), text.error().code == Code::invalid_request ? kUsage : kFailed);
  }
  std::fwrite(text->data(), 1, text->size(), stdout);
  return std::fflush(stdout) == 0 ? 0 : kFailed;
}

}  // namespace talon::cli
