#include "vm/vm_support.h"

#include <fcntl.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "base/id.h"
#include "isolate/cgroup_tree.h"
#include "isolate/log_reader.h"

namespace talon::testing {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

std::string missing_controllers(const std::vector<std::string>& names) {
  if (const std::string why = missing_for_sandboxes(); !why.empty()) {
    return why;
  }
  const std::string mount = isolate::find_cgroup_mount();
  const auto there = isolate::controllers_of(mount);
  const char* required = std::getenv("TALON_TEST_REQUIRE");
  for (const std::string& name : names) {
    if (std::ranges::find(there, name) != there.end()) {
      continue;
    }
    const std::string why = "the cgroup v2 controller '" + name + "' is not in " + mount;
    if (required != nullptr && std::string{required}.find(name) != std::string::npos) {
      FAIL(why << ", and TALON_TEST_REQUIRE names it");
    }
    return why + "; ./dev vm has it";
  }
  return "";
}

VmLab::VmLab() { fs::copy_file(TALON_BUILD_DIR "/tests/probe/probe", image() / "bin/probe"); }

isolate::SandboxSpec VmLab::spec_with(isolate::Limits limits) {
  auto out = spec();
  out.limits = limits;
  return out;
}

namespace {

// Init gives groups numbers of its own: the one of a process is found by who is in it.
std::string find_group(const Box& box, std::int32_t pid_inside) {
  const fs::path sandbox = box->identity().cgroup;
  for (const auto& entry : fs::directory_iterator{sandbox / "x"}) {
    std::ifstream procs{entry.path() / "cgroup.procs"};
    for (std::string pid; procs >> pid;) {
      std::ifstream status{"/proc/" + pid + "/status"};
      for (std::string line; std::getline(status, line);) {
        if (line.starts_with("NSpid:") && line.ends_with("\t" + std::to_string(pid_inside))) {
          return "x/" + entry.path().filename().string();
        }
      }
    }
  }
  return "";  // it has ended
}

}  // namespace

std::string Execs::start(std::vector<std::string> argv) {
  isolate::ExecSpec spec;
  spec.argv = std::move(argv);
  return start_spec(std::move(spec));
}

std::string Execs::start_spec(isolate::ExecSpec spec) {
  spec.id = new_id(IdKind::exec);
  isolate::add_default_env(spec.env);
  failure_.reset();
  if (auto sent = box_->exec(spec); !sent) {
    throw std::runtime_error("exec: " + sent.error().message);
  }
  wait_until([&] { return started_.contains(spec.id) || failure_; }, 60s);
  if (failure_) {
    return "";
  }
  groups_[spec.id] = find_group(box_, started_.at(spec.id));
  return spec.id;
}

void Execs::take(const isolate::Event& event) {
  if (const auto* started = std::get_if<isolate::event::Started>(&event)) {
    started_[started->px] = started->pid;
  } else if (const auto* failed = std::get_if<isolate::event::ExecFailed>(&event)) {
    failure_ = *failed;
  } else if (const auto* exited = std::get_if<isolate::event::Exited>(&event)) {
    exits_[exited->px] = exited->info;
  } else if (const auto* closed = std::get_if<isolate::event::Closed>(&event)) {
    throw std::runtime_error("init is gone: " + closed->reason);
  }
}

void Execs::pump() {
  while (auto event = box_->receive().value_or(std::nullopt)) {
    take(*event);
  }
}

void Execs::wait_until(const std::function<bool()>& done, std::chrono::seconds deadline) {
  const auto until = std::chrono::steady_clock::now() + deadline;
  while (!done()) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    auto event = box_->wait_event(std::max(left, 0ms));
    if (!event) {
      throw std::runtime_error("waiting for an exec: " + event.error().message);
    }
    take(*event);
  }
}

wire::ExitInfo Execs::wait(const std::string& px, std::chrono::seconds deadline) {
  wait_until([&] { return exits_.contains(px); }, deadline);
  return exits_.at(px);
}

std::string Execs::output(const std::string& px) const {
  const auto logs =
      open_at(AT_FDCWD, lab_.root_of(box_->identity().id) / "logs", O_RDONLY | O_DIRECTORY);
  auto reader = logs ? isolate::LogReader::open(logs->get(), px) : fail(Code::internal, "no logs");
  if (!reader) {
    return "(" + reader.error().message + ")";
  }
  std::vector<isolate::LogEntry> entries;
  while (reader->read(entries).value_or(false)) {
  }
  std::string text;
  for (const auto& entry : entries) {
    if (entry.kind == wire::Kind::out || entry.kind == wire::Kind::err) {
      text += entry.bytes;
    }
  }
  return text;
}

void Execs::wait_output(const std::string& px, const std::string& text) {
  if (!eventually([&] {
        pump();
        return output(px).find(text) != std::string::npos || ended(px);
      })) {
    throw std::runtime_error("never printed: " + text);
  }
}

void Execs::send_signal(const std::string& px, int number, wire::Scope scope) {
  if (auto sent = box_->signal(px, number, scope); !sent) {
    throw std::runtime_error("signal: " + sent.error().message);
  }
}

std::string group_file(const Box& box, const std::string& name) {
  std::ifstream in{box->identity().cgroup + "/" + name};
  std::stringstream out;
  out << in.rdbuf();
  return trim(out.str());
}

std::int64_t value_in(const std::string& text, const std::string& key) {
  std::istringstream in{text};
  std::string name;
  std::int64_t value = -1;
  while (in >> name >> value) {
    if (name == key) {
      return value;
    }
  }
  return -1;
}

std::int64_t group_value(const Box& box, const std::string& name, const std::string& key) {
  return value_in(group_file(box, name), key);
}

void write_group_file(const Box& box, const std::string& name, const std::string& text) {
  if (auto done = write_file_at(AT_FDCWD, box->identity().cgroup + "/" + name, text); !done) {
    throw std::runtime_error(done.error().message);
  }
}

bool eventually(const std::function<bool()>& condition, std::chrono::seconds deadline) {
  const auto until = std::chrono::steady_clock::now() + deadline;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) {
      return false;
    }
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

}  // namespace talon::testing
