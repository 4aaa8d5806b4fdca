#pragma once
// A reader of one exec's log for the server: reads through Offload, waits for the writer when it
// has caught up, and ends by the rules of decision 18. The log is the truth; this is a cursor.

#include <memory>
#include <string>
#include <vector>

#include "isolate/log_reader.h"
#include "server/async/task.h"
#include "server/node/actor.h"
#include "server/node/dirs.h"

namespace talon::server::node {

enum class Follow {
  none,        // what is there now
  until_exit,  // to the exit of the exec's own process
  all,         // to the end: no writer is left
};

class LogStream {
 public:
  struct Source {
    Offload* offload = nullptr;
    const DataDir* data = nullptr;
    ActorPtr actor;  // keeps the notifier alive
    ExecPtr exec;    // null for an exec that left memory: it has ended
    std::string px;
  };
  LogStream(Source source, isolate::Cursor from, Follow follow);
  ~LogStream();
  LogStream(LogStream&&) noexcept;

  // Opens the log, so that a missing one is known before an answer begins (not_found).
  Task<> open();
  // `from=end`: the position after what is there now.
  Task<> seek_end();

  // The next entries, at least one; empty = the stream is over. Waits at most `idle` for the
  // writer: then `idle_passed()` is true and the result is empty (time for a heartbeat).
  Task<std::vector<isolate::LogEntry>> next(Millis idle, std::size_t max_bytes = 128 * 1024);
  bool idle_passed() const { return idle_passed_; }
  // Ends the wait of next() as if `idle` had passed: the reader has something else to look at.
  void poke();
  // Of the terminal at the cursor it began with; known after the first next().
  wire::ResizePayload size() const;
  isolate::Cursor cursor() const { return cursor_; }

 private:
  struct State;
  bool over() const;
  Source source_;
  Follow follow_;
  std::shared_ptr<State> state_;  // shared with the pool thread that reads
  isolate::Cursor cursor_;
  bool exit_seen_ = false;
  bool idle_passed_ = false;
  bool poked_ = false;
};

}  // namespace talon::server::node
