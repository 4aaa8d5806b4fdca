#include <openssl/ssl.h>

#include "app.h"
#include "cli/cli.h"
#include "cli/local.h"
#include "isolate/harden.h"

namespace talon::cli {

int serve(const Invocation& invocation) {
  // Before anything else of OpenSSL: its configuration file can name modules, and a static
  // binary that loads them has two libcs.
  OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
  const auto config = config_of(invocation);
  if (!config) {
    return failed(config.error(), kUsage);
  }
  if (const auto root = need_root("serve"); !root) {
    return failed(root.error());
  }
  // While there is one thread, and before the spawner starts: it and all below inherit it.
  auto closed = isolate::give_up_all_but(isolate::kDaemonCapabilities);
  if (closed) {
    closed = isolate::deny_calls();
  }
  if (!closed) {
    return failed(closed.error());
  }
  set_log_level(config->log_level);
  // What `talond run`s that were killed left: theirs, not the daemon's, so before its lock.
  if (const auto swept = sweep_local(config->run_dir); !swept) {
    log_warn("local.sweep", {{"error", swept.error().message}});
  } else {
    for (const std::string& line : *swept) {
      log_info("local.sweep", {{"done", line}});
    }
  }
  const auto code = talon::serve(*config);
  return code ? *code : failed(code.error());
}

}  // namespace talon::cli
