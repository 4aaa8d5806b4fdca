#pragma once
// A terminal's log as asciicast v2 (docs.asciinema.org/manual/asciicast/v2): a line of JSON that
// describes it, then a line an event. Output is UTF-8: a character that a frame's end cut is
// joined, bytes that are none become U+FFFD.

#include <string>

#include "base/utf8.h"
#include "isolate/log_reader.h"

namespace talon::server::api {

class Asciicast {
 public:
  // `size` at the first entry; `started_ms` of the process, wall clock.
  Asciicast(std::string& out, wire::ResizePayload size, std::int64_t started_ms);

  void add(std::string& out, const isolate::LogEntry& entry);
  // What is still held.
  void finish(std::string& out);

 private:
  void event(std::string& out, char code, std::string_view text);

  std::int64_t started_ms_;
  std::int64_t base_ns_ = 0;  // CLOCK_BOOTTIME of time 0
  double time_ = 0;
  bool begun_ = false;
  bool torn_ = false;  // something was lost: what comes next may begin inside a sequence
  Utf8Repair output_;
  Utf8Repair input_;
};

}  // namespace talon::server::api
