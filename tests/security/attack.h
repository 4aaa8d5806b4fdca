#pragma once
// An attack is a few lines: what a program inside tries, and what must come of it. Here is the
// rest: real sandboxes from a small image with the probe in it, the sides to attack from (root
// inside and user 1000, root file system on disk and in memory), the same attempt outside of any
// sandbox as the control that it can succeed, and the check that the sandbox outlives the attack.

#include <catch2/catch.hpp>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernel/sandbox_support.h"

namespace talon::testing {

// One JSON object that the probe printed; numbers and booleans as text. A missing member is "".
class Finding {
 public:
  std::string operator[](const std::string& name) const;
  void set(const std::string& name, std::string value) { members_[name] = std::move(value); }

 private:
  std::map<std::string, std::string> members_;
};
std::vector<Finding> parse_findings(const std::string& json_lines);

using Args = std::vector<std::string>;

// What came of `probe try …`: "OK", an errno's name, or "signal 31".
std::string outcome(const std::vector<Finding>& findings);

// A side to attack from.
class Attacker {
 public:
  Attacker(Lab& lab_, Box& box_, std::string user_)
      : lab(lab_), box(box_), user(std::move(user_)) {}

  bool root() const { return user.empty(); }
  Ran run(Args argv) { return lab.run(box, std::move(argv), user); }
  Ran sh(const std::string& text) { return lab.sh(box, text, user); }
  std::vector<Finding> probe(const Args& args);
  Finding look(const Args& args);         // of a command that prints one object
  std::string attempt(const Args& args);  // outcome of `probe try ARGS`
  // A `number` of the finding, -1 when there is none.
  static long number(const Finding& finding, const std::string& name);

  Lab& lab;
  Box& box;
  std::string user;
};

struct Setup {
  std::function<void(const std::filesystem::path& image)> image = {};  // changes the image first
  std::function<void(isolate::SandboxSpec&)> spec = {};
  bool memory = true;   // also with the root file system in memory
  bool as_user = true;  // also as user 1000
};

// Runs the attack from every side, each in a living sandbox; after it the sandbox must still
// serve, and end cleanly.
void from_every_side(const std::function<void(Attacker&)>& attack, const Setup& setup = {});

// Without the system call filter: shows which refusals have a second line of defence, and that
// the filter is what refuses where there is none.
inline void without_filter(isolate::SandboxSpec& spec) { spec.unconfined_seccomp = true; }

// The control: the probe as root on the host, in throw-away namespaces of its own so that a
// success changes nothing.
std::vector<Finding> outside(const Args& args, unsigned as_uid = 0);
std::string attempt_outside(Args args);

void add_probe(const std::filesystem::path& image);
std::string probe_path();

// A directory of the host beside the lab with a file that no sandbox may see or change.
class Canary {
 public:
  explicit Canary(const Lab& lab);
  std::filesystem::path dir() const { return dir_; }
  std::filesystem::path file() const { return dir_ / "canary"; }
  // Its entries and contents are what they were.
  bool untouched() const;

 private:
  std::filesystem::path dir_;
};

std::string read_text(const std::filesystem::path& path);

}  // namespace talon::testing
