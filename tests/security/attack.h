#pragma once
// An attack is a few lines: what a program inside tries, and what must come of it. Here is the
// rest: real sandboxes from a small image with the probe in it, the columns to attack from, the
// same attempt outside of any sandbox as the control that it can succeed, and the check that the
// sandbox outlives the attack.

#include <catch2/catch.hpp>

#include <array>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
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

// Every attack is made once in every column: a column is how the sandbox came to be and who
// attacks. What a column cannot be for an attack stands in its Setup, with the reason; the tally
// prints both after each case, and a case that met no column fails (tests/security/tally.cpp).
struct Column {
  const char* name;
  isolate::Storage storage = isolate::Storage::disk;
  std::optional<isolate::Ahead> ahead = {};  // made before anybody asked for it
  const char* user = "";                     // root inside
};
inline constexpr std::array<Column, 5> kColumns = {{
    {.name = "disk"},
    {.name = "memory", .storage = isolate::Storage::memory},
    {.name = "user", .user = "user"},
    {.name = "pooled", .ahead = isolate::Ahead::tree},
    {.name = "warm", .ahead = isolate::Ahead::warm},
}};

struct LeftOut {
  std::string column;
  std::string why;
};

struct Setup {
  std::function<void(const std::filesystem::path& image)> image = {};  // changes the image first
  std::function<void(isolate::SandboxSpec&)> spec = {};
  std::vector<LeftOut> left_out = {};
};

// One column's sandboxes, for attacks that need several, or the moment of their making.
class Field {
 public:
  Field(Lab& lab_, const Column& column_, const Setup& setup)
      : lab(lab_), column(column_), setup_(setup) {}

  isolate::SandboxSpec spec();
  Box create() { return lab.create(spec()); }
  Ran run(Box& box, Args argv) { return lab.run(box, std::move(argv), column.user); }
  Ran sh(Box& box, const std::string& text) { return lab.sh(box, text, column.user); }

  Lab& lab;
  const Column& column;

 private:
  const Setup& setup_;
};

// One sandbox of a column, from one user's side.
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

// Runs the attack in every column, each in a living sandbox; after it the sandbox must still
// serve, and end cleanly. User 1000 attacks in the sandboxes of the other columns as well, after
// root and with root's traces in them.
void from_every_side(const std::function<void(Attacker&)>& attack, const Setup& setup = {});

// The same for attacks that make their sandboxes themselves; each column has a Lab of its own.
void in_every_column(const std::function<void(Field&)>& attack, const Setup& setup = {});

// For a case that attacks no sandbox.
void no_column(const std::string& why);

// Without the system call filter: shows which refusals have a second line of defence, and that
// the filter is what refuses where there is none.
inline void without_filter(isolate::SandboxSpec& spec) { spec.unconfined_seccomp = true; }

// The control: the probe as root on the host, in throw-away namespaces of its own so that a
// success changes nothing.
std::vector<Finding> outside(const Args& args, unsigned as_uid = 0);
std::string attempt_outside(Args args);

// The probe in the sandbox's namespaces, as root of its user namespace with every capability of
// that namespace and without a filter: more than any workload can get. `first` runs before the
// user namespace is entered, with the host's own root's power; false ends it there.
std::vector<Finding> inside_with_all(pid_t init, const Args& args,
                                     const std::function<bool()>& first = {});

// Host pids of all processes in init's pid namespace.
std::vector<pid_t> inhabitants(pid_t init);

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
