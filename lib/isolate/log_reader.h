#pragma once
// Readers of what init writes: one exec's segmented log and the sandbox's journal. The files
// are hostile input: opened without following links, regular files only, never blocking; every
// length and checksum is checked; damage ends the read with what was good, never a crash.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "isolate/wire/log_format.h"

namespace talon::isolate {

// The next unread byte of one exec's log. Text form "<frame>.<byte>", e.g. "7.512".
struct Cursor {
  std::uint64_t frame = 1;
  std::uint32_t byte = 0;
  auto operator<=>(const Cursor&) const = default;
};
std::string to_string(Cursor cursor);
Result<Cursor> parse_cursor(std::string_view text);  // "0" is the start

struct LogEntry {
  wire::Kind kind = wire::Kind::out;
  bool late = false;
  std::string bytes;             // out, err, tty: the part of the frame from the cursor on
  std::string typed;             // input
  std::uint64_t lost_bytes = 0;  // lost; 0 = not known (an old cursor whose frame is gone)
  wire::ResizePayload size{};    // resize; lost: of a terminal where it goes on
  wire::ExitInfo exit{};         // exit
  std::uint64_t wall_ns = 0;
  std::uint64_t mono_ns = 0;
  std::uint64_t offset = 0;  // output bytes of the exec up to `after`, lost ones included
  Cursor after;              // position after this entry: read from here next
};

class LogReader {
 public:
  // `logs`: directory descriptor of the sandbox's logs/. Fails with not_found if the exec has
  // no log. The directory must outlive the reader.
  static Result<LogReader> open(int logs, std::string_view px, Cursor from = {});

  // Appends entries to `out` until about `max_bytes` of payload were read or nothing more is
  // there. A cursor older than what is kept yields first a `lost` entry. Returns whether
  // anything was appended; false = caught up with the writer (wait for the event descriptor).
  Result<bool> read(std::vector<LogEntry>& out, std::size_t max_bytes = 256 * 1024);

  Cursor cursor() const;
  // Of the terminal at the cursor that open() was given, or where a later segment began; 0 without
  // one. Known after the first read().
  wire::ResizePayload size() const { return size_; }
  // True once the `end` frame has been read.
  bool at_end() const;
  // Bytes of the log's files, frame headers included, that lie past what was read: how far the
  // writer is ahead.
  std::uint64_t unread() const;

 private:
  struct Next {
    UniqueFd fd;
    wire::SegmentHeader header;
  };
  void enter(UniqueFd segment, const wire::SegmentHeader& header);
  void note_gap(std::vector<LogEntry>& out);
  Result<Next> find_next() const;
  Result<std::size_t> read_segment(std::vector<LogEntry>& out, std::size_t max_bytes);

  int logs_ = -1;
  std::string px_;
  UniqueFd segment_;
  std::uint32_t index_ = 0;
  std::uint64_t position_ = 0;    // file offset of the next frame in segment_
  std::uint64_t next_seq_ = 1;    // its number
  std::uint64_t out_offset_ = 0;  // output bytes before it, as this reader has seen or skipped
  bool offset_known_ = false;     // false: opened at a cursor whose frame is no longer there
  wire::ResizePayload size_{};
  std::uint64_t segment_offset_ = 0;  // output bytes before the open segment
  Cursor cursor_;
  bool at_end_ = false;
  std::string buffer_;
};

// The position after the last whole frame now in the log (for `from=end`).
Result<Cursor> end_of_log(int logs, std::string_view px);

// The last `max_bytes` of what an exec printed (stdout, stderr and terminal in their order), as far
// as they are kept. Fails with not_found if it has no log.
Result<std::string> last_output(int logs, std::string_view px, std::size_t max_bytes);

// Removes all segments of an exec.
Result<> remove_log(int logs, std::string_view px);

// Journal records from byte `offset` on; `offset` moves past the last whole valid record.
// A damaged record ends the read and sets `damaged`.
struct JournalChunk {
  std::vector<wire::JournalRecord> records;
  bool damaged = false;
};
Result<JournalChunk> read_journal(int logs, std::uint64_t& offset);

}  // namespace talon::isolate
