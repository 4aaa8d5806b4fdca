#pragma once
// One exec of a local sandbox and the three descriptors of the caller: stdin goes to init in
// frames within its window, the log comes back byte for byte, signals are passed on. One thread,
// one poll loop; a slow reader of our output stops nothing but the output.

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/signals.h"
#include "cli/throttle.h"
#include "isolate/log_reader.h"
#include "isolate/sandbox.h"

namespace talon::cli {

struct RelayOptions {
  bool tty = false;
  bool stdin_open = true;
};

class Relay {
 public:
  Relay(isolate::Sandbox& sandbox, int logs, std::string px, Signals& signals,
        RelayOptions options);

  // Until the exec has ended and everything it wrote before was passed on. Errors: the exec did
  // not start, or the sandbox died under it.
  Result<wire::ExitInfo> run();

 private:
  struct Chunk {
    int fd;
    std::string bytes;
    std::size_t at = 0;
  };
  struct Polled;

  Result<> receive_events();
  Result<> handle(const isolate::Event& event);
  Result<> read_log();
  Result<> wait();
  void write_output();
  void write_chunk(Chunk& chunk);
  void output_closed(int fd, int error);
  void read_stdin();
  void send_stdin();
  void stop_stdin();
  void take_signals();
  void pass_signal(int number);
  bool stdin_wanted() const;

  isolate::Sandbox& sandbox_;
  int logs_;
  std::string px_;
  Signals& signals_;
  RelayOptions options_;

  bool started_ = false;
  bool init_gone_ = false;
  bool log_dirty_ = false;
  std::string gone_reason_;
  std::optional<isolate::LogReader> reader_;
  std::deque<Chunk> output_;
  bool closed_[3] = {};  // our descriptor n takes nothing any more
  int write_error_ = 0;  // and why, unless only its reader went away
  std::optional<wire::ExitInfo> exit_;
  std::uint64_t lost_ = 0;

  bool stdin_on_ = false;
  bool stdin_eof_ = false;     // read, but not said to init yet
  bool send_blocked_ = false;  // init's socket is full
  std::string pending_;        // read, but not sent yet
  std::uint64_t sent_ = 0;
  std::uint64_t accepted_ = 0;
  std::deque<std::uint64_t> in_flight_;  // ends of the frames sent, not all accepted

  int endings_ = 0;         // signals that ask for the end
  bool given_up_ = false;   // more signals than a patient user sends
  std::vector<int> early_;  // signals that came before the start
  Throttle throttle_;
};

}  // namespace talon::cli
