#pragma once
// The frames between talond and talon-init, over SOCK_SEQPACKET. Freestanding: no libc, no
// allocation, plain little-endian structs without padding holes. One message = one Header and
// its payload; descriptors travel as SCM_RIGHTS. Both sides treat the other's bytes as hostile:
// check() first.
//
// Versions. A sandbox outlives the talond that made it, so a newer talond speaks with every init
// since version 1, and reads what it wrote (log_format.h). init knows its own version alone.
// - hello and hello_ok stay version 1 and as they are for ever: HelloOk::version says what this
//   init speaks, and talond writes and reads all later frames of the connection in that version.
// - Every other change is a new kVersion: of a struct, of a number, of a meaning, and a new type or
//   flag as well, since an init closes the connection on what it does not know. Fields named
//   reserved are 0 and not looked at; they may get a meaning whose 0 is what was before.
// - Who raises kVersion keeps encoder, decoder and segment reader of the old one and adds a file to
//   tests/kernel/frozen. What lies there is never changed: it is what runs at our users'.
// Golden files in tests/unit/isolate/golden pin each struct of today.
//
// talond -> init:  hello exec stdin signal end_exec resize mark flow shutdown
// init -> talond:  ready failed hello_ok started exec_failed exited ended stdin_ack done resync

#include <stddef.h>
#include <stdint.h>

namespace talon::wire {

inline constexpr uint16_t kVersion = 1;
inline constexpr uint32_t kMaxMessage = 64 * 1024;
inline constexpr uint32_t kIdSize = 24;  // an id and its NUL
inline constexpr uint32_t kMaxSteps = 96;

enum class Type : uint16_t {
  ready = 1,         // Ready: set-up is complete, init listens
  failed = 2,        // Failed: a step of the plan failed; init exits after it
  hello = 3,         // Hello: a later connection proves that it knows the nonce
  hello_ok = 4,      // HelloOk
  exec = 10,         // Exec + memfd [+ script fd]
  started = 11,      // Started: the exec'd program runs (its execve succeeded, or it died trying)
  exec_failed = 12,  // ExecFailed: nothing was started and nothing is in the log
  exited = 13,       // Exited: the exec's own process ended, its output is in the log
  ended = 14,        // Ended: the last holder of its pipes is gone
  stdin_data = 15,   // StdinData + bytes
  stdin_ack = 16,    // StdinAck
  signal = 17,       // Signal
  end_exec = 18,     // EndExec: TERM, grace, kill of the group
  resize = 19,       // Resize
  mark = 20,         // Mark: write `paused` or `resumed` to the journal
  shutdown = 21,     // no payload: journal init_end and exit 0 (the caller kills the group)
  done = 22,         // Done: the answer to signal, end_exec, resize, mark
  resync = 23,       // no payload: events were dropped on this connection; read the journal
  flow = 24,         // Flow, without an answer
};

struct Header {
  uint16_t version;
  uint16_t type;
  uint32_t length;   // payload bytes that follow
  uint64_t request;  // chosen by talond, echoed in the answer; 0 for events
};
static_assert(sizeof(Header) == 16);

struct Ready {
  uint32_t version;
  uint32_t step_count;
  uint8_t nonce[16];
  uint64_t step_ns[kMaxSteps];  // CLOCK_MONOTONIC at the end of each step
  uint64_t start_ns;            // at init's first instruction
};

struct Failed {
  uint32_t step;  // index into the plan
  uint32_t op;
  int32_t error;  // errno
  uint32_t reserved;
};

struct Hello {
  uint8_t nonce[16];
};

struct HelloOk {
  uint32_t version;
  uint32_t live_execs;
  uint32_t paused;
  uint32_t reserved;
};

enum ExecFlags : uint32_t {
  kExecTty = 1,           // a PTY instead of pipes
  kExecStdin = 2,         // stdin stays open after the inline bytes
  kExecScript = 4,        // a second descriptor came along: the child gets it as fd 3
  kExecUnlimitedLog = 8,  // log_cap is 0 on purpose (run: max_output bounds it)
  kExecService = 16,      // reserved for services
  kExecRecordInput = 64,  // what is typed into the terminal goes into its log too
  kExecInline = 32,       // the strings follow the frame; no memfd, no inline stdin
};

// Strings lie in the memfd that comes with the frame, NUL-terminated, one after the other from
// each offset. init maps it privately and checks every offset against its size. With kExecInline
// (at most kExecInlineMax bytes, no inline stdin) they follow the frame instead: a memfd costs
// more than a small exec's whole request.
inline constexpr uint32_t kExecInlineMax = 16 * 1024;

struct Exec {
  char px[kIdSize];  // [a-z0-9]+; anything else closes the connection
  uint32_t flags;
  uint32_t argc;
  uint32_t envc;
  uint32_t argv_off;
  uint32_t env_off;
  uint32_t cwd_off;   // absolute, or "" for the sandbox's default ("/" if that is missing)
  uint32_t user_off;  // "", "name", "uid", "name:group", "uid:gid"
  uint16_t cols;
  uint16_t rows;
  uint64_t stdin_off;
  uint64_t stdin_len;
  uint64_t timeout_ms;  // 0 = none; CLOCK_MONOTONIC, stands still while paused
  uint64_t grace_ms;    // TERM to KILL on timeout; 0 = kill the group at once
  uint64_t max_output;  // stdout + stderr bytes; 0 = none
  uint64_t log_cap;     // bytes kept; oldest segments go
  // repeated on the exec's own group where the controller exists; 0 = leave
  uint64_t memory_max;
  uint64_t pids_max;
  uint64_t cpu_quota_us;
  uint64_t cpu_period_us;
};

struct Started {
  char px[kIdSize];
  int32_t pid;     // inside the sandbox
  uint32_t group;  // its cgroup is x/<group>; 0 = it has none (or not said)
};

enum class Stage : uint32_t { request = 1, user, cwd, log, cgroup, pipe, clone, too_many, paused };

struct ExecFailed {
  char px[kIdSize];
  int32_t error;  // errno
  uint32_t stage;
};

enum ExitFlags : uint32_t {
  kTimedOut = 1,
  kOom = 2,
  kOutputLimit = 4,
  kKilled = 8,       // ended by end_exec or a signal that talond asked for
  kLostOutput = 16,  // bytes were dropped (disk full, log cap)
  kNotStarted = 32,  // execve itself failed: code is 126 or 127 and stderr says why
};

// Also the payload of the log's exit frame and of the journal's exit record.
struct ExitInfo {
  int32_t code;    // -1 when ended by a signal
  int32_t signal;  // 0 when it exited
  uint32_t flags;
  int32_t exec_errno;   // with kNotStarted
  uint64_t user_us;     // of the whole group where the CPU controller counts it, else of the
  uint64_t system_us;   // exec's own process and what it waited for (rusage)
  uint64_t max_rss_kb;  // of the exec's own process and what it waited for
  uint64_t peak_bytes;  // memory.peak of the group, 0 if unknown
  uint64_t out_bytes;   // stdout (or tty) bytes read; those past max_output do not count
  uint64_t err_bytes;
  uint64_t duration_ns;
  uint64_t throttled;     // CPU periods in which the group had used up its quota
  uint64_t throttled_us;  // how long it then stood still
  // Of the processes that SIGKILL ended and init reaped, the one with the most resident memory: in
  // an exec that ran out of memory the one to blame.
  uint64_t biggest_bytes;
  char biggest_name[16];  // its comm, NUL-terminated
};
static_assert(sizeof(ExitInfo) == 112);

struct Exited {
  char px[kIdSize];
  ExitInfo info;
};

struct Ended {
  char px[kIdSize];
};

struct StdinData {
  char px[kIdSize];
  uint64_t offset;  // of the first byte in the process's stdin, Exec's inline bytes included;
                    // bytes before what init has are skipped (safe retry)
  uint32_t flags;   // kStdinClose
  uint32_t length;
};
inline constexpr uint32_t kStdinClose = 1;
inline constexpr uint64_t kStdinAppend = ~0ull;  // as offset: behind what init has, whoever sent it
inline constexpr uint32_t kStdinFrame = 32 * 1024;  // bytes in one frame
// At most this many bytes and frames unacknowledged.
inline constexpr uint32_t kStdinWindow = 128 * 1024;
inline constexpr uint32_t kStdinFrames = 16;

struct StdinAck {
  char px[kIdSize];
  uint64_t accepted;  // bytes written to the process so far
  int32_t error;      // EPIPE: nobody reads it any more; ENOENT: no such exec; EINVAL: a gap;
                      // EAGAIN: past the window, send it again; EBUSY: paused
  uint32_t closed;
};

enum class Scope : uint32_t { process = 0, group = 1, all = 2 };

struct Signal {
  char px[kIdSize];
  int32_t number;
  uint32_t scope;
};

struct EndExec {
  char px[kIdSize];
  uint64_t grace_ms;
};

struct Resize {
  char px[kIdSize];
  uint16_t cols;
  uint16_t rows;
  uint32_t reserved;
};

// A terminal is read no further than `limit` bytes of output while the connection that said so
// lives: then whoever prints waits, as for any slow terminal. Whoever must not wait says kNoLimit.
struct Flow {
  char px[kIdSize];
  uint64_t limit;  // LogFrame::offset
};
inline constexpr uint64_t kNoLimit = ~0ull;

struct Mark {
  uint32_t paused;  // 1 paused, 0 resumed
  uint32_t reserved;
};

struct Done {
  int32_t error;  // errno, 0 = done; ESRCH: no such exec, or it has ended
  uint32_t reserved;
};

}  // namespace talon::wire
