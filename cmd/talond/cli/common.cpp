#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include "base/fd.h"
#include "cli/cli.h"

namespace talon::cli {

Result<Config> config_of(const Invocation& invocation) {
  return load_config(invocation.config_file, ::environ, invocation.flags);
}

void open_standard_descriptors() {
  // open(2) gives the lowest free number.
  int fd = 0;
  while (fd >= 0 && fd <= STDERR_FILENO) {
    fd = ::open("/dev/null", O_RDWR);
  }
  if (fd > STDERR_FILENO) {
    ::close(fd);
  }
}

void say(std::string_view text) {
  const std::string line = "talond: " + std::string{text} + "\n";
  // Where stderr is closed there is nobody to tell.
  [[maybe_unused]] const auto written = write_all(STDERR_FILENO, line);
}

int failed(const Error& error, int code) {
  say(error.message);
  return code;
}

Result<> need_root(std::string_view verb) {
  if (::geteuid() != 0) {
    return fail(Code::forbidden, "talond " + std::string{verb} +
                                     " needs root (namespaces, mounts, cgroups): sudo talond " +
                                     std::string{verb} + " …");
  }
  return {};
}

int version(const Invocation& invocation) {
  std::printf(invocation.json ? "{\"version\":\"%s\"}\n" : "talond %s\n", TALON_VERSION);
  return std::fflush(stdout) == 0 ? 0 : kFailed;
}

}  // namespace talon::cli
