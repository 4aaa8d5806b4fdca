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

int doctor(const Invocation& invocation) {
  const auto config = config_of(invocation);
  if (!config) {
    return failed(config.error(), kUsage);
  }
  const auto survey = isolate::survey_host(survey_scope(*config));
  if (!survey) {
    return failed(survey.error(), kUsage);
  }
  const auto findings = isolate::diagnose(*survey);
  const std::string text = invocation.json ? as_json(findings) : as_text(findings);
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (std::fflush(stdout) != 0) {
    return kFailed;
  }
  switch (isolate::worst(findings)) {
    case Finding::Status::ok: return 0;
    case Finding::Status::degraded: return 1;
    case Finding::Status::missing: break;
  }
  return 2;
}

}  // namespace talon::cli
