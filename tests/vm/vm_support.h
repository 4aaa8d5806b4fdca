#pragma once
// For tests that need cgroup v2 controllers: the need itself, several execs in one sandbox at a
// time, and the files of a sandbox's groups as the host sees them.

#include <catch2/catch.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernel/sandbox_support.h"

namespace talon::testing {

// What of `names` this machine's cgroup v2 lacks, as a sentence; "" if nothing. A name that
// TALON_TEST_REQUIRE lists (the VM sets it) must be there: its absence fails the test.
std::string missing_controllers(const std::vector<std::string>& names);

#define TALON_NEED_CONTROLLERS(...)                                                          \
  if (const auto why_ = talon::testing::missing_controllers({__VA_ARGS__}); !why_.empty()) { \
    WARN("SKIP: " << why_);                                                                  \
    return;                                                                                  \
  }

// A lab with the probe in its image.
class VmLab : public Lab {
 public:
  VmLab();
  isolate::SandboxSpec spec_with(isolate::Limits limits);
};

inline constexpr std::uint64_t kMiB = 1ull << 20;

// The execs of one sandbox. Events are read in wait() and kept by exec.
class Execs {
 public:
  Execs(Lab& lab, Box& box) : lab_(lab), box_(box) {}

  // Starts it and waits until its program runs; "" and failure() when that failed.
  std::string start_spec(isolate::ExecSpec spec);
  std::string start(std::vector<std::string> argv);
  const std::optional<isolate::event::ExecFailed>& failure() const { return failure_; }

  // How it ended; a Catch2 failure when it does not within `deadline`.
  wire::ExitInfo wait(const std::string& px,
                      std::chrono::seconds deadline = std::chrono::seconds{60});
  bool ended(const std::string& px) const { return exits_.contains(px); }
  // Reads what has come without waiting.
  void pump();

  std::string output(const std::string& px) const;
  // Its group below the sandbox's: "x/3". It was alive when start() returned.
  std::string group(const std::string& px) const { return groups_.at(px); }
  // Until its output has this text.
  void wait_output(const std::string& px, const std::string& text);
  void send_signal(const std::string& px, int number, wire::Scope scope);

 private:
  void take(const isolate::Event& event);
  void wait_until(const std::function<bool()>& done, std::chrono::seconds deadline);

  Lab& lab_;
  Box& box_;
  std::map<std::string, wire::ExitInfo> exits_;
  std::map<std::string, std::int32_t> started_;  // the pid inside
  std::map<std::string, std::string> groups_;
  std::optional<isolate::event::ExecFailed> failure_;
};

// A file of the sandbox's group, or of one below it ("init", "x", Execs::group()).
std::string group_file(const Box& box, const std::string& name);
// The number after `key ` in a flat keyed file (memory.events, cpu.stat); -1 when missing.
std::int64_t value_in(const std::string& text, const std::string& key);
std::int64_t group_value(const Box& box, const std::string& name, const std::string& key);
void write_group_file(const Box& box, const std::string& name, const std::string& text);

// Waits for a condition on the host's side that nothing announces.
bool eventually(const std::function<bool()>& condition,
                std::chrono::seconds deadline = std::chrono::seconds{20});

}  // namespace talon::testing
