#include <cstdio>

#include "base/log.h"
#include "cli/cli.h"
#include "isolate/host.h"

namespace talon::cli {

namespace {

using isolate::Finding;

std::string as_json(const std::vector<Finding>& findings) {
  std::string out = "{\"version\":\"" TALON_VERSION "\",\"findings\":[";
  bool first = true;
  for (const Finding& finding : findings) {
    out += first ? "\n" : ",\n";
    first = false;
    out += "{\"name\":";
    append_json_string(out, finding.name);
    out += ",\"status\":";
    append_json_string(out, isolate::to_string(finding.status));
    out += ",\"value\":";
    append_json_string(out, finding.value);
    out += ",\"effect\":";
    append_json_string(out, finding.effect);
    out += ",\"fix\":";
    append_json_string(out, finding.fix);
    out += '}';
  }
  return out + "\n]}\n";
}

std::string as_text(const std::vector<Finding>& findings) {
  std::string out;
  for (const Finding& finding : findings) {
    std::string status{isolate::to_string(finding.status)};
    status.resize(9, ' ');
    out += status + " " + finding.name + ": " + finding.value + "\n";
    if (!finding.effect.empty()) {
      out += "          " + finding.effect + "\n";
    }
    if (!finding.fix.empty()) {
      out += "          fix: " + finding.fix + "\n";
    }
  }
  return out;
}

}  // namespace

// 0 when sandboxes can be made here (degraded or not), 1 when something they need is missing.
int doctor(const Invocation& invocation) {
  const auto config = config_of(invocation);
  if (!config) {
    return failed(config.error(), kUsage);
  }
  const auto facts = isolate::probe_host(config->cgroup);
  if (!facts) {
    return failed(facts.error());
  }
  const auto findings = isolate::diagnose(*facts, config->data_dir);
  const std::string text = invocation.json ? as_json(findings) : as_text(findings);
  std::fwrite(text.data(), 1, text.size(), stdout);
  bool usable = std::fflush(stdout) == 0;
  for (const Finding& finding : findings) {
    usable = usable && finding.status != Finding::Status::missing;
  }
  return usable ? 0 : kFailed;
}

}  // namespace talon::cli
