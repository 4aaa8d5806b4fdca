#pragma once
// What init writes into a sandbox's logs/ directory and what every reader parses.
//
// logs/<px>.<n>   segment n (decimal, from 0) of one exec: SegmentHeader, then frames.
// logs/journal    one per sandbox: JournalRecord after JournalRecord, append-only.
//
// Frames of one exec are numbered from 1 without a gap across segments and kinds. A cursor is
// "<frame>.<byte>": the next unread byte. Whole segments are removed at the front when the cap
// is passed; LogFrame::offset lets a reader say how many bytes that was. Bytes past the last
// whole valid frame are not there yet (being written) or torn (init died): not an error.
// Freestanding; little endian; no padding.

#include <stdint.h>

#include "isolate/wire/frames.h"

namespace talon::wire {

inline constexpr uint32_t kSegmentMagic = 0x31534754;  // "TGS1"
inline constexpr uint32_t kFrameMagic = 0x31464754;    // "TGF1"
inline constexpr uint32_t kJournalMagic = 0x314a4754;  // "TGJ1"
inline constexpr uint32_t kMaxFrame = 64 * 1024;       // payload bytes

enum class Kind : uint8_t {
  out = 1,     // stdout bytes
  err = 2,     // stderr bytes
  tty = 3,     // terminal output
  resize = 4,  // ResizePayload
  lost = 5,    // LostPayload: bytes of the process that never reached the log
  exit = 6,    // ExitInfo
  end = 7,     // no payload: no writer is left
  input = 8,   // what was typed into the terminal (kExecRecordInput)
};

inline constexpr uint8_t kFrameLate = 1;  // written after the exit frame

struct SegmentHeader {
  uint32_t magic;
  uint32_t crc;  // crc32c of the header with this field 0
  uint32_t version;
  uint32_t index;      // n of the file name
  uint64_t first_seq;  // number of its first frame
  uint64_t offset;     // output bytes (out, err, tty) before it, lost ones included
  char px[kIdSize];
  uint16_t cols;  // of the terminal when the segment was opened; 0 without one
  uint16_t rows;
  uint32_t reserved;
};
static_assert(sizeof(SegmentHeader) == 64);

struct LogFrame {
  uint32_t magic;
  uint32_t crc;  // crc32c of the header with this field 0
  uint64_t seq;
  uint64_t offset;   // output bytes (out, err, tty) before this frame, lost ones included
  uint64_t mono_ns;  // CLOCK_BOOTTIME
  uint64_t wall_ns;  // CLOCK_REALTIME
  uint32_t length;   // payload bytes, <= kMaxFrame
  uint8_t kind;
  uint8_t flags;
  uint16_t reserved;
};
static_assert(sizeof(LogFrame) == 48);

struct ResizePayload {
  uint16_t cols;
  uint16_t rows;
};

struct LostPayload {
  uint64_t bytes;
};

enum class Record : uint16_t {
  init_start = 1,  // value: version
  started = 2,     // value: pid inside
  exit = 3,        // info
  paused = 4,
  resumed = 5,
  init_end = 6,
  service = 7,
};

struct JournalRecord {
  uint32_t magic;
  uint32_t crc;  // crc32c of the record with this field 0
  uint16_t type;
  uint16_t size;  // of the whole record: 184
  uint32_t reserved;
  uint64_t mono_ns;
  uint64_t wall_ns;
  char px[kIdSize];
  uint64_t value;
  ExitInfo info;
  uint64_t spare;
};
static_assert(sizeof(JournalRecord) == 184);

}  // namespace talon::wire
