#include "cli/progress.h"

#include <unistd.h>

#include <chrono>
#include <memory>

#include "cli/cli.h"

namespace talon::cli {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

struct State {
  std::string image;
  bool terminal = ::isatty(STDERR_FILENO) == 1;
  Clock::time_point started = Clock::now();
  Clock::time_point shown{};
  bool told = false;

  void update(std::uint64_t files, std::string_view stage) {
    const auto now = Clock::now();
    const bool done = stage == "done";
    const std::string text = "making image " + image + ": " + std::to_string(files) + " files";
    if (terminal) {
      if (done || now - shown >= milliseconds{100}) {
        shown = now;
        told = true;
        // \r and "erase to the end of the line" (ECMA-48): one line that changes.
        const std::string line = "\rtalond: " + text + (done ? "\x1b[K\n" : "\x1b[K");
        [[maybe_unused]] const auto n = ::write(STDERR_FILENO, line.data(), line.size());
      }
      return;
    }
    if (!told && now - started > milliseconds{1000}) {
      told = true;
      say("making image " + image + "; this happens once");
    } else if (told && done) {
      say(text + ", done");
    }
  }
};

}  // namespace

isolate::ImageProgress show_progress(const std::string& image) {
  auto state = std::make_shared<State>();
  state->image = image;
  return [state](std::uint64_t files, std::string_view stage) { state->update(files, stage); };
}

}  // namespace talon::cli
