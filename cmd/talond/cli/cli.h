#pragma once
// The command line: what was asked for (parse.cpp, the only file that includes CLI11), and one
// function a verb that does it and returns the exit code.
//
// Exit codes: 0 done, 1 refused or failed, 2 wrong usage. `run` passes the command's own code,
// 128 + n for a signal, 124 for a timeout, 126/127 as a shell, and 125 for every failure of ours,
// wrong usage included.

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "config.h"
#include "isolate/spec.h"

namespace talon::cli {

inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;
inline constexpr int kRunTimeout = 124;
inline constexpr int kRunFailed = 125;

enum class Verb {
  serve,
  run,
  doctor,
  plan,
  routes,
  image_list,
  image_import,
  image_remove,
  image_refresh,
  version,
};

struct RunOptions {
  std::string image = "host";
  std::string network = "deny";
  isolate::Limits limits;
  std::chrono::milliseconds timeout{0};
  std::string workspace;  // a directory of the caller, "" = an empty one
  std::vector<std::pair<std::string, std::string>> env;
  std::string user;
  std::string cwd;
  isolate::Storage storage = isolate::Storage::disk;
  std::vector<std::string> command;
};

struct Invocation {
  Verb verb = Verb::version;
  std::string config_file;
  Settings flags;  // the configuration's layer of the command line
  bool json = false;
  RunOptions run;
  std::string name;  // image NAME
  std::string path;  // SPEC.json, DIR|TAR
};

// An invocation, or the exit code when help was printed or the usage was wrong.
std::variant<int, Invocation> parse(int argc, char** argv);

int serve(const Invocation& invocation);
int run(const Invocation& invocation);
int doctor(const Invocation& invocation);
int plan(const Invocation& invocation);
int routes(const Invocation& invocation);
int image_list(const Invocation& invocation);
int image_import(const Invocation& invocation);
int image_remove(const Invocation& invocation);
int image_refresh(const Invocation& invocation);
int version(const Invocation& invocation);

// All four layers, for every verb the same.
Result<Config> config_of(const Invocation& invocation);

// Opens /dev/null at those of 0, 1, 2 that the caller closed, so that no file of ours gets such a
// number and is taken for somebody's output.
void open_standard_descriptors();

// forbidden, with the remedy, for anybody but root.
Result<> need_root(std::string_view verb);

// "talond: <text>" and a line end on stderr, in one write.
void say(std::string_view text);
// The same for an error; returns `code`.
int failed(const Error& error, int code = kFailed);

}  // namespace talon::cli
