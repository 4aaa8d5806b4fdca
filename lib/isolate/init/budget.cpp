// The budget of logs/ as a whole (decision 23). Logs of live execs have their own caps; when all
// together pass the budget, the logs of the execs that ended first are removed. init knows the
// logs of its own life only; what earlier lives of the sandbox left is talond's to count.

#include "isolate/init/state.h"

namespace talon::init {
namespace {

constexpr uint32_t kEndedLogs = 10000;

struct EndedLog {
  char px[wire::kIdSize];
  uint32_t first;
  uint32_t last;
  uint64_t bytes;
};

// A ring; its pages are touched one by one as execs end.
EndedLog ended[kEndedLogs];
uint32_t oldest = 0;
uint32_t count = 0;

void remove_oldest() {
  const EndedLog& log = ended[oldest];
  char name[wire::kIdSize + 16];
  for (uint32_t index = log.first; index <= log.last; ++index) {
    segment_name(log.px, index, name);
    long err = sys(__NR_unlinkat, g.logs, name, 0);
    if (err < 0 && err != -ENOENT) {
      break;  // what is behind it stays too: behind a hole nothing could be read
    }
  }
  g.log_bytes -= min(log.bytes, g.log_bytes);
  oldest = (oldest + 1) % kEndedLogs;
  --count;
}

}  // namespace

void segment_name(const char* px, uint32_t index, char (&name)[wire::kIdSize + 16]) {
  Text(name, sizeof name).add(px).add(".").add(index);
}

void budget_check() {
  while (g.plan->log_budget != 0 && g.log_bytes > g.plan->log_budget && count != 0) {
    remove_oldest();
  }
}

void budget_ended(const Exec& e) {
  if (count == kEndedLogs) {
    remove_oldest();
  }
  EndedLog& log = ended[(oldest + count) % kEndedLogs];
  memcpy(log.px, e.px, sizeof log.px);
  log.first = e.log.first;
  log.last = e.log.index;
  log.bytes = e.log.kept;
  ++count;
  budget_check();
}

}  // namespace talon::init
