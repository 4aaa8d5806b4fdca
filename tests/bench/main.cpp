// talon_bench: creates and runs beside crun, runc and bubblewrap, in one table.
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <fstream>
#include <iostream>

#include "bench/contenders.h"

namespace {

using namespace talon;

struct Options {
  std::string talond;
  std::string tiny_true;
  std::string json;
  int rounds = 40;
};

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name{argv[i]};
    const std::string_view value{argv[i + 1]};
    if (name == "--talond") {
      options.talond = value;
    } else if (name == "--true") {
      options.tiny_true = value;
    } else if (name == "--json") {
      options.json = value;
    } else if (name == "--rounds") {
      const char* end = value.data() + value.size();
      if (std::from_chars(value.data(), end, options.rounds).ptr != end || options.rounds < 1) {
        return false;
      }
    } else {
      return false;
    }
  }
  return argc % 2 == 1 && !options.talond.empty() && !options.tiny_true.empty();
}

Result<> run_bench(const Options& options) {
  TALON_CHECK(bench::enter_private_mounts());
  TALON_TRY(shop, bench::Workshop::make(options.tiny_true));
  std::vector<bench::Row> rows;
  bench::add_floor_and_bwrap(rows, shop);
  TALON_TRY(crun, bench::OciRuntime::start("crun", shop));
  crun->add_rows(rows);
  TALON_TRY(runc, bench::OciRuntime::start("runc", shop));
  runc->add_rows(rows);
  TALON_TRY(isolated, bench::Isolated::start(shop));
  isolated->add_rows(rows);
  TALON_TRY(served, bench::Served::start(options.talond, shop));
  served->add_rows(rows);
  TALON_CHECK(bench::measure(rows, options.rounds));
  std::cout << bench::markdown(rows) << std::flush;
  if (!options.json.empty()) {
    std::ofstream out{options.json};
    out << bench::json(rows, options.rounds);
    if (!out.flush()) {
      return fail(Code::io, "cannot write " + options.json);
    }
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fputs("usage: talon_bench --talond FILE --true FILE [--rounds N] [--json FILE]\n", stderr);
    return 2;
  }
  if (geteuid() != 0) {
    std::fputs("talon_bench: needs root\n", stderr);
    return 1;
  }
  if (const auto done = run_bench(options); !done) {
    std::fprintf(stderr, "talon_bench: %s\n", done.error().message.c_str());
    return 1;
  }
  return 0;
}
