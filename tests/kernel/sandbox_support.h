#pragma once
// Real sandboxes for kernel tests: a tiny image made from data (static busybox and an /etc), a
// launcher on directories of its own, and "run this and give me what it printed". Everything
// goes away with the Lab: sandboxes, cgroup, files.

#include <concepts>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "isolate/launch.h"

namespace talon::testing {

// Why sandboxes cannot be made here, "" if they can.
std::string missing_for_sandboxes();

#define TALON_NEED_SANDBOXES()                                                    \
  if (const auto why_ = talon::testing::missing_for_sandboxes(); !why_.empty()) { \
    WARN("SKIP: " << why_);                                                       \
    return;                                                                       \
  }

struct Ran {
  std::string out;
  std::string err;
  int code = -1;
  int signal = 0;
};

// One sandbox's directories, made by the Lab.
struct Box {
  DirFd image;
  DirFd root;
  DirFd workspace;
  std::unique_ptr<isolate::Sandbox> sandbox;
  isolate::Sandbox* operator->() const { return sandbox.get(); }
};

class Lab {
 public:
  Lab();
  ~Lab();
  Lab(const Lab&) = delete;
  Lab& operator=(const Lab&) = delete;

  isolate::Launcher& launcher() { return *launcher_; }
  // A second daemon on the same directories (after a restart).
  void restart_launcher();

  std::filesystem::path dir() const { return dir_; }
  std::filesystem::path image() const { return dir_ / "image"; }
  std::filesystem::path root_of(const std::string& id) const { return dir_ / id; }

  // Not none: every sandbox is first made so far and then taken, as one of a pool is.
  std::optional<isolate::Ahead> ahead;

  isolate::SandboxSpec spec();  // with a new id
  Result<Box> try_create(const isolate::SandboxSpec& spec, bool workspace = true);
  Box create(const isolate::SandboxSpec& spec, bool workspace = true);  // aborts on failure
  Box create() { return create(spec()); }

  // kill + remove, both must succeed.
  void destroy(Box& box);

  Ran run(Box& box, std::vector<std::string> argv, const std::string& user = "");
  // The whole request is the caller's; an id and the default environment are added.
  // A template, because a braced list must stay an argv.
  template <std::same_as<isolate::ExecSpec> Spec>
  Ran run(Box& box, Spec spec) {
    return run_spec(box, std::move(spec));
  }
  // By the image's sh.
  Ran sh(Box& box, const std::string& text, const std::string& user = "");

 private:
  Ran run_spec(Box& box, isolate::ExecSpec spec);

  std::filesystem::path dir_;
  isolate::LauncherConfig config_;
  std::unique_ptr<isolate::Launcher> launcher_;
};

// "Name:" line of a /proc/<pid>/status text.
std::string status_field(const std::string& text, const std::string& name);
std::string trim(std::string text);
std::size_t count_own_fds();
std::size_t count_own_mounts();

}  // namespace talon::testing
