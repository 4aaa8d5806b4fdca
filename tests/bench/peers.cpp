#include <unistd.h>

#include "bench/contenders.h"

namespace talon::bench {

Result<std::unique_ptr<OciRuntime>> OciRuntime::start(const std::string& program,
                                                      const Workshop& shop) {
  std::unique_ptr<OciRuntime> self{new OciRuntime{program, shop}};
  const std::string name = "talon-bench-" + std::to_string(getpid()) + "-sleep";
  self->sleeper_ = name;
  auto started =
      time_command(self->command({"run", "-d", "-b", shop.sleep_bundle(), name}), self->log());
  if (!started) {
    self->sleeper_.clear();
    return std::unexpected(std::move(started).error().in(program + " run -d"));
  }
  return self;
}

OciRuntime::~OciRuntime() {
  if (!sleeper_.empty()) {
    (void)time_command(command({"delete", "-f", sleeper_}), log());
  }
}

std::vector<std::string> OciRuntime::command(std::vector<std::string> rest) const {
  rest.insert(rest.begin(), {program_, "--root", shop_.path(program_)});
  return rest;
}

Result<double> OciRuntime::run() {
  const int serial = ++serial_;
  const std::string name = "talon-bench-" + std::to_string(getpid()) + "-" + std::to_string(serial);
  // A file of its own for the output: several may run at once.
  return time_command(command({"run", "-b", shop_.run_bundle(), name}), log(serial % 64));
}

Result<double> OciRuntime::exec() {
  return time_command(command({"exec", sleeper_, "/bin/true"}), log());
}

void add_rows(std::vector<Row>& rows, const std::string& program, Lazy<OciRuntime>& runtime) {
  const bool crun = program == "crun";
  rows.push_back({.name = program + " run",
                  .base = crun ? "" : "crun run",
                  .once = [&runtime]() -> Result<double> {
                    TALON_TRY(it, runtime.get());
                    return it->run();
                  }});
  rows.push_back({.name = program + " exec",
                  .base = crun ? "" : "crun exec",
                  .once = [&runtime]() -> Result<double> {
                    TALON_TRY(it, runtime.get());
                    return it->exec();
                  }});
}

void add_floor_and_bwrap(std::vector<Row>& rows, const Workshop& shop) {
  rows.push_back({.name = "spawn of `true`, no sandbox", .base = "crun run", .once = [&shop] {
                    return time_command({shop.rootfs() + "/bin/true"}, shop.path("floor.log"));
                  }});
  rows.push_back({.name = "bwrap", .base = "crun run", .once = [&shop] {
                    return time_command({"bwrap", "--unshare-all", "--unshare-user", "--hostname",
                                         "bench", "--ro-bind", shop.rootfs(), "/", "--proc",
                                         "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--cap-drop",
                                         "ALL", "--new-session", "--die-with-parent", "/bin/true"},
                                        shop.path("bwrap.log"));
                  }});
}

}  // namespace talon::bench
