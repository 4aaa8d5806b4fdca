#include "isolate/exec_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace talon::isolate {

namespace {

constexpr std::uint64_t kCpuPeriodUs = 100'000;

bool has_nul(std::string_view text) { return text.find('\0') != std::string_view::npos; }

Result<> check_argument(std::string_view text, const std::string& name) {
  if (has_nul(text)) {
    return bad_field(name, name + " contains a NUL byte");
  }
  if (text.size() > limits::kArgBytes) {
    return fail(Code::too_large, fmt::format("{} has {} bytes, at most {} are possible", name,
                                             text.size(), limits::kArgBytes));
  }
  return {};
}

Result<> check(const ExecSpec& spec) {
  if (spec.id.empty() || spec.id.size() >= wire::kIdSize ||
      !std::ranges::all_of(
          spec.id, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); })) {
    return bad_field("id", "an exec id is lower-case letters and digits");
  }
  if (spec.argv.empty() || spec.argv.front().empty()) {
    return bad_field("argv", "argv needs at least the program's name");
  }
  std::size_t total = 0;
  for (std::size_t i = 0; i < spec.argv.size(); ++i) {
    TALON_CHECK(check_argument(spec.argv[i], fmt::format("argv[{}]", i)));
    total += spec.argv[i].size() + 1 + sizeof(char*);
  }
  for (const auto& [name, value] : spec.env) {
    if (name.empty() || has_nul(name) || name.find('=') != std::string::npos) {
      return bad_field("env", "a variable's name is empty or contains '=' or a NUL byte");
    }
    // The kernel counts "NAME=value" as one string.
    if (has_nul(value)) {
      return bad_field("env." + name, "env." + name + " contains a NUL byte");
    }
    if (name.size() + 1 + value.size() > limits::kArgBytes) {
      return fail(Code::too_large, fmt::format("env.{:.64} has {} bytes, at most {} are possible",
                                               name, value.size(), limits::kArgBytes));
    }
    total += name.size() + value.size() + 2 + sizeof(char*);
  }
  if (total > limits::kArgsBytes) {
    return fail(Code::too_large, fmt::format("argv and env have {} bytes together, at most {} are "
                                             "possible",
                                             total, limits::kArgsBytes));
  }
  if (!spec.cwd.empty() && (spec.cwd.front() != '/' || has_nul(spec.cwd))) {
    return bad_field("cwd", "cwd must be an absolute path");
  }
  if (spec.cwd.size() >= 4096) {
    return bad_field("cwd", "cwd is longer than 4095 bytes");
  }
  if (has_nul(spec.user) || spec.user.size() > 256) {
    return bad_field("user", "not a user name");
  }
  return {};
}

std::uint64_t millis(std::chrono::milliseconds value) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(value.count(), 0));
}

}  // namespace

Result<ExecRequest> pack_exec(const ExecSpec& spec) {
  TALON_CHECK(check(spec));
  std::string bytes;
  const auto append = [&bytes](std::string_view text) {
    const auto offset = static_cast<std::uint32_t>(bytes.size());
    bytes += text;
    bytes.push_back('\0');
    return offset;
  };
  ExecRequest out;
  wire::Exec& frame = out.frame;
  spec.id.copy(frame.px, sizeof(frame.px) - 1);
  frame.argc = static_cast<std::uint32_t>(spec.argv.size());
  frame.argv_off = 0;
  for (const std::string& argument : spec.argv) {
    append(argument);
  }
  frame.envc = static_cast<std::uint32_t>(spec.env.size());
  frame.env_off = static_cast<std::uint32_t>(bytes.size());
  for (const auto& [name, value] : spec.env) {
    append(name + "=" + value);
  }
  frame.cwd_off = append(spec.cwd);
  frame.user_off = append(spec.user);
  frame.stdin_off = bytes.size();
  frame.stdin_len = spec.stdin_head.size();
  bytes += spec.stdin_head;
  frame.flags = (spec.tty ? wire::kExecTty : 0u) | (spec.stdin_open ? wire::kExecStdin : 0u) |
                (spec.script.empty() ? 0u : wire::kExecScript) |
                (spec.log_cap == 0 ? wire::kExecUnlimitedLog : 0u) |
                (spec.record_input ? wire::kExecRecordInput : 0u);
  frame.cols = spec.cols;
  frame.rows = spec.rows;
  frame.timeout_ms = millis(spec.timeout);
  frame.grace_ms = millis(spec.grace);
  frame.max_output = spec.max_output;
  frame.log_cap = spec.log_cap;
  frame.memory_max = spec.limits.memory_bytes.value_or(0);
  frame.pids_max = spec.limits.pids.value_or(0);
  if (spec.limits.cpu_cores) {
    const double quota = *spec.limits.cpu_cores * static_cast<double>(kCpuPeriodUs);
    frame.cpu_quota_us =
        std::max<std::uint64_t>(static_cast<std::uint64_t>(std::llround(quota)), 1000);
    frame.cpu_period_us = kCpuPeriodUs;
  }
  if (spec.stdin_head.empty() && bytes.size() <= wire::kExecInlineMax) {
    frame.flags |= wire::kExecInline;
    out.strings = std::move(bytes);
  } else {
    TALON_TRY(strings, sealed_memfd("talon-exec", std::as_bytes(std::span{bytes})));
    out.fds.push_back(std::move(strings));
  }
  if (!spec.script.empty()) {
    TALON_TRY(script, sealed_memfd("talon-script", std::as_bytes(std::span{spec.script})));
    out.fds.push_back(std::move(script));
  }
  return out;
}

}  // namespace talon::isolate
