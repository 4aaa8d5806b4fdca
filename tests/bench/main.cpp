// talon_bench: creates and runs beside crun, runc and bubblewrap, in one table.
#include <sys/resource.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "bench/contenders.h"

namespace {

using namespace talon;

constexpr const char* kUsage =
    "usage: talon_bench --talond FILE --true FILE [--json FILE] [--rounds N] [--idle N]\n"
    "                   [--churn SECONDS] [--list] [ROW…]\n"
    "ROW: part of the name of a row; without any, all rows.\n";

struct Options {
  std::string talond;
  std::string tiny_true;
  std::string json;
  int rounds = 40;
  bench::Scale scale;
  bool list = false;
  std::vector<std::string> words;
};

bool number(std::string_view text, int& out) {
  const char* end = text.data() + text.size();
  return std::from_chars(text.data(), end, out).ptr == end && out >= 1;
}

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view name{argv[i]};
    if (!name.starts_with("--")) {
      options.words.emplace_back(name);
      continue;
    }
    if (name == "--list") {
      options.list = true;
      continue;
    }
    if (i + 1 == argc) {
      return false;
    }
    const std::string_view value{argv[++i]};
    bool good = true;
    if (name == "--talond") {
      options.talond = value;
    } else if (name == "--true") {
      options.tiny_true = value;
    } else if (name == "--json") {
      options.json = value;
    } else if (name == "--rounds") {
      good = number(value, options.rounds);
    } else if (name == "--idle") {
      good = number(value, options.scale.idle);
    } else if (name == "--churn") {
      good = number(value, options.scale.churn_s);
    } else {
      good = false;
    }
    if (!good) {
      return false;
    }
  }
  return !options.talond.empty() && !options.tiny_true.empty();
}

// Written as an installer writes it: the page cache of a file that a linker wrote through a mapping
// is in single pages, and each start of it costs a tenth of a millisecond more.
Result<std::string> installed(const std::string& talond, const bench::Workshop& shop) {
  const std::string to = shop.path("talond");
  std::error_code error;
  std::filesystem::copy_file(talond, to, error);
  if (error) {
    return fail_sys(error.value(), "copy " + talond);
  }
  return to;
}

Result<> run_bench(const Options& options) {
  TALON_CHECK(bench::enter_private_mounts());
  TALON_TRY(shop, bench::Workshop::make(options.tiny_true));
  TALON_TRY(talond, installed(options.talond, shop));
  bench::Lazy<bench::OciRuntime> crun{[&] { return bench::OciRuntime::start("crun", shop); }};
  bench::Lazy<bench::OciRuntime> runc{[&] { return bench::OciRuntime::start("runc", shop); }};
  bench::Lazy<bench::Isolated> isolated{[&] { return bench::Isolated::start(shop); }};
  bench::Lazy<bench::Served> served{[&] { return bench::Served::start(talond, shop); }};
  std::vector<bench::Row> rows;
  bench::add_floor_and_bwrap(rows, shop);
  bench::add_rows(rows, "crun", crun);
  bench::add_rows(rows, "runc", runc);
  bench::add_rows(rows, isolated);
  bench::add_rows(rows, served);
  bench::add_stream_rows(rows, served);
  std::vector<bench::Experiment> experiments;
  bench::add_experiments(experiments, isolated, crun, options.scale);
  bench::add_experiments(experiments, served, crun);
  TALON_CHECK(bench::select(rows, experiments, options.words));
  if (options.list) {
    for (const bench::Row& row : rows) {
      std::cout << row.name << '\n';
    }
    for (const bench::Experiment& experiment : experiments) {
      std::cout << experiment.name << '\n';
    }
    return {};
  }
  TALON_CHECK(bench::measure(rows, options.rounds));
  std::vector<bench::Figure> figures;
  for (const bench::Experiment& experiment : experiments) {
    auto found = experiment.run();
    if (!found) {
      return std::unexpected(std::move(found).error().in(experiment.name));
    }
    figures.insert(figures.end(), found->begin(), found->end());
  }
  std::cout << bench::markdown(rows, figures);
  if (!bench::all_kept(rows, figures)) {
    std::cout << "\nA promise was missed: on a busy machine, look at a quiet run first.\n";
  }
  std::cout << std::flush;
  if (!options.json.empty()) {
    std::ofstream out{options.json};
    out << bench::json(rows, figures, options.rounds);
    if (!out.flush()) {
      return fail(Code::io, "cannot write " + options.json);
    }
  }
  return {};
}

// A thousand idle sandboxes take some descriptors each.
void allow_many_files() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  if (geteuid() != 0) {
    std::fputs("talon_bench: needs root\n", stderr);
    return 1;
  }
  allow_many_files();
  if (const auto done = run_bench(options); !done) {
    std::fprintf(stderr, "talon_bench: %s\n", done.error().message.c_str());
    return 1;
  }
  return 0;
}
