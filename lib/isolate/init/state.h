#pragma once
// Everything talon-init knows while it runs: one static State, a table of execs, a table of
// connections. There is no allocator; what varies in size is mapped per exec (see ChildBlock).
// Pages of the tables that were never used stay untouched, so an idle init is a few pages.

#include <stdint.h>

#include "isolate/init/sys.h"
#include "isolate/init/text.h"
#include "isolate/wire/frames.h"
#include "isolate/wire/log_format.h"
#include "isolate/wire/plan_format.h"

namespace talon::init {

inline constexpr uint32_t kMaxExecs = 1024;  // live ones and ended ones with children left
inline constexpr uint32_t kMaxConns = 8;
inline constexpr uint32_t kIoSize = wire::kMaxFrame;
inline constexpr int kReadsPerTurn = 4;    // 64 KiB reads of one pipe before others get a turn
inline constexpr int kFramesPerTurn = 16;  // requests of one connection
inline constexpr uint64_t kMs = 1000000;
inline constexpr uint64_t kStartDeadline = 5000 * kMs;  // clone to execve
inline constexpr uint64_t kSilence = 50 * kMs;          // decision 18
inline constexpr uint64_t kDrainMost = 1000 * kMs;
inline constexpr uint64_t kLogRetry = 200 * kMs;  // between attempts on a full disk
inline constexpr uint64_t kGather = kMs;  // many small writes collect this long into one frame
inline constexpr uint64_t kNever = ~0ull;
inline constexpr int kFdsLost = -1;  // fd_count of a frame whose descriptors found no room
inline constexpr int kAcks = wire::kStdinFrames;  // stdin frames of one exec that wait for the pipe

// What an epoll event is about: kind, generation of the slot, index of the slot.
enum class What : uint8_t { conn = 1, listener, child, status, out, err, in };

inline uint64_t tag(What what, uint16_t generation, uint32_t index) {
  return (uint64_t)what << 56 | (uint64_t)generation << 32 | index;
}

struct Conn {
  int fd;
  uint16_t generation;
  bool authed;
  bool resync_due;  // events were dropped: say so when the socket takes it
};

struct Ack {
  uint64_t request;
  uint64_t end;  // acknowledged when this many bytes were written
  uint32_t conn;
  uint16_t generation;
};

struct Log {
  int fd;
  uint32_t index;     // of the open segment
  uint32_t first;     // oldest segment kept
  uint64_t good;      // bytes of the open segment that are whole frames
  uint64_t limit;     // of one segment
  uint64_t cap;       // of all segments; 0 = none
  uint64_t kept;      // bytes in all segments
  uint64_t seq;       // of the next frame
  uint64_t offset;    // output bytes so far, those reported in `lost` frames too
  uint64_t lost;      // output bytes that wait for a `lost` frame
  uint64_t retry_at;  // CLOCK_MONOTONIC; 0 = the disk took the last frame
  bool dropped;       // something was lost at any time
  uint32_t spare;     // the file is still logs/.spare<n>; 0 = it has its name
};

// The child's ends of its pipes, until it has been cloned.
struct ChildEnds {
  int in;  // 0 = the null device that init itself has
  int out;
  int err;
  int status;
};

struct Exec {
  char px[wire::kIdSize];
  uint16_t generation;
  bool used;
  bool tty;
  bool starting;  // the status pipe is open: before execve
  bool failed;    // fail_stage and fail_error say why; ExecFailed is sent after reaping
  bool alive;     // the process has not been reaped
  bool exited;    // the exit frame is due or written
  bool finished;  // the end frame is due or written
  bool exit_due;  // the exit frame did not fit on the disk yet
  bool end_due;
  bool journal_started_due;
  bool journal_exit_due;
  bool has_group;    // x/<group> exists
  bool stdin_open;   // more may come by StdinData
  bool close_stdin;  // close it when what is queued is written
  uint8_t rmdir_tries;
  int32_t pid;
  uint32_t fail_stage;
  int32_t fail_error;
  int status_fd;
  int out_fd;  // stdout, or the PTY's master
  int err_fd;
  int in_fd;  // our end of stdin; with a PTY a duplicate of the master
  ChildEnds ends;
  uint32_t pipe_uid;  // that out and err were made for
  uint32_t pipe_gid;
  uint32_t group;       // number of its cgroup
  int group_dir;        // until the clone
  uint32_t flags;       // wire::ExecFlags
  uint32_t exit_flags;  // wire::ExitFlags so far
  uint16_t cols;
  uint16_t rows;

  uint32_t conn;  // that asked
  uint16_t conn_generation;
  uint64_t request;

  // what the child needs until its execve
  void* block;
  size_t block_size;
  const unsigned char* mem;  // the request's strings: its memfd, mapped, or a copy in `block`
  bool mem_inline;
  size_t mem_size;
  int mem_fd;  // kept while inline stdin is left

  // stdin
  uint64_t head_at;  // next byte of the memfd
  uint64_t head_left;
  uint64_t stdin_queued;     // bytes taken so far (inline ones too)
  uint64_t stdin_written;    // bytes the pipe took
  unsigned char* in_buffer;  // kStdinWindow bytes, mapped while something waits
  uint32_t in_begin;
  uint32_t in_size;
  bool in_watched;  // registered for EPOLLOUT
  Ack acks[kAcks];
  uint32_t ack_count;

  // times: CLOCK_MONOTONIC without pauses (active_now), except where said
  uint64_t started_ns;  // plain monotonic
  uint64_t start_by;    // deadline for execve
  uint64_t timeout_at;
  uint64_t kill_at;  // TERM was sent: KILL then
  uint64_t grace_ns;
  bool term_sent;
  uint64_t drain_until;  // plain monotonic, set at reaping
  uint64_t quiet_at;
  uint64_t must_read[2];  // bytes that were in the pipes when the process was reaped
  uint64_t rmdir_at;
  uint64_t gather_at[2];  // many small writes: the pipe is read again then, 0 = at once
  uint64_t last_read[2];
  uint8_t small_reads[2];  // in a row

  uint64_t flow_limit;  // output bytes up to which the terminal is read
  uint32_t flow_conn;   // whose limit it is
  bool held;            // the limit is reached: out_fd is not watched

  uint64_t max_output;
  int32_t end_signal;  // the last signal asked for by talond; -1 = end_exec
  wire::ExitInfo info;
  Log log;
};

struct State {
  const wire::PlanHeader* plan;
  int epoll;
  int child_signals;
  int listener;
  int event;
  int logs;
  int journal;
  int execs;
  uint64_t init_caps;
  uint64_t workload_caps;
  uint64_t child_nofile_soft;  // RLIMIT_NOFILE as the plan set it: children get it back
  uint64_t child_nofile_hard;
  uint64_t journal_size;
  uint64_t log_bytes;      // in all logs of this life
  Exec* next;              // a free slot in which what the next exec needs is made, or null
  bool prepare_due;        // make it when nothing else is to be done
  uint32_t groups;         // the number given last
  uint32_t spares;         // bit n: logs/.spare<n> is there and free
  uint64_t spare_at;       // when to make more of them
  uint64_t spare_retry;    // when to make one if there is none
  uint32_t started_count;  // execs so far
  int retired[32];         // descriptors to close
  uint32_t retired_count;
  uint32_t last_uid;  // of the last exec: the next one's pipes are made for it
  uint32_t last_gid;
  uint32_t live;  // execs whose process is not reaped
  uint32_t high;  // slots [0, high) may be in use
  bool paused;
  bool appended;  // a log grew in this turn of the loop
  bool reap_more;
  bool no_memory_controller;  // learned at the first exec
  bool no_cpu_controller;
  uint64_t paused_since;
  uint64_t paused_total;
  Conn conns[kMaxConns];
  Exec execs_table[kMaxExecs];
};

extern State g;
extern unsigned char g_io[kIoSize];          // one read or one message at a time
extern unsigned char g_scratch[256 * 1024];  // passwd, group, cgroup.procs

inline uint64_t now_ns() { return clock_ns(CLOCK_MONOTONIC); }
// CLOCK_MONOTONIC that stands still while the sandbox is paused (decision 20).
inline uint64_t active_now() { return (g.paused ? g.paused_since : now_ns()) - g.paused_total; }
inline uint32_t index_of(const Exec& e) { return (uint32_t)(&e - g.execs_table); }
Exec* find_exec(const char* px);
bool watch(int fd, uint32_t events, What what, uint16_t generation, uint32_t index);

// loop.cpp
// CLOCK_BOOTTIME and CLOCK_REALTIME as they were when this turn of the loop first asked.
void take_times(uint64_t& mono, uint64_t& wall);
[[noreturn]] void run_loop(const wire::Ready& ready);
[[noreturn]] void end_init();

// conn.cpp
void accept_conns();
void conn_event(uint32_t index, uint32_t events);
// To one connection; false when it is gone or full (then it will get a resync).
bool send_to(uint32_t conn, uint16_t generation, wire::Type type, uint64_t request,
             const void* payload, uint32_t size);
// To every connection; `conn` gets `request`, the others 0.
void broadcast(wire::Type type, const void* payload, uint32_t size, uint32_t conn = kMaxConns,
               uint16_t generation = 0, uint64_t request = 0);
void close_conn(uint32_t index);

// request.cpp: one whole frame of an authenticated connection. False = malformed.
bool handle_frame(uint32_t conn, const wire::Header& head, const unsigned char* payload, int* fds,
                  int fd_count);

// exec.cpp
struct ExecInput {
  const unsigned char* strings;  // kExecInline: valid only during the call
  size_t size;
  int memfd;   // else
  int script;  // -1 = none
};
void start_exec(uint32_t conn, const wire::Header& head, const wire::Exec& request,
                const ExecInput& input);
void status_event(Exec& e);  // the child has exec'd, failed to, or died
// A piece of what the next exec will need; g.prepare_due says whether more is to be made. What
// fails is left to that exec.
void prepare_next();
void release_exec(Exec& e);  // the slot is free afterwards
void unwatch_close(int& fd);
void retire(int& fd);  // the same, the closing itself when there is time
void close_retired();

void refuse_exec(uint32_t conn, uint64_t request, const char* px, wire::Stage stage, int error);

// child.cpp: what the new process runs, on its own stack in init's memory, until execve.
struct ChildContext {
  const char** argv;  // one writable slot lies before argv[0]
  const char** envp;
  const char* file;
  const char* path;  // PATH
  const char* cwd;
  bool default_cwd;
  bool tty;
  int in;
  int out;
  int err;
  int script;  // -1 = none
  int status;
  uint32_t uid;
  uint32_t gid;
  uint32_t group_count;
  uint32_t groups[64];
  uint64_t drop_caps;  // from the bounding set
  uint64_t caps;
  uint64_t nofile_soft;
  uint64_t nofile_hard;
  char buffer[4096 + 256];
};
struct ChildReport {
  uint32_t stage;  // wire::Stage; 0 = execve itself
  int32_t error;
};
void child_main(void* context);

// block.cpp
inline constexpr size_t kChildStack = 16 * 1024;
void prepare_block();      // the next one's memory is there, not to be faulted in
int map_request(Exec& e);  // 0 or errno
struct User;
int fill_block(Exec& e, const wire::Exec& request, const User& user);  // 0 or errno
ChildContext& context_of(const Exec& e);
void free_block(Exec& e);  // once the child runs in memory of its own, or is dead

// user.cpp
struct User {
  uint32_t uid;
  uint32_t gid;
  uint32_t group_count;
  uint32_t groups[64];
  char name[64];
  char home[256];
  char shell[128];
};
int resolve_user(const char* text, User& user);  // 0 or errno

// pipes.cpp
// Each makes what is not there yet, and watches it; 0 or errno.
int make_status(Exec& e);
int make_output(Exec& e, uint32_t uid, uint32_t gid);
int make_pipes(Exec& e, const User& user, bool want_stdin);
void close_child_ends(Exec& e);

// group.cpp: the exec's cgroup
int make_group(Exec& e);                                    // if there is none; 0 or errno
int limit_group(const Exec& e, const wire::Exec& request);  // 0 or errno
int signal_exec(Exec& e, int number, wire::Scope scope);    // 0 or errno
void kill_group(Exec& e);
void remove_group(Exec& e);  // tries; on EBUSY sets rmdir_at
void read_group_end(Exec& e);
bool group_lives(const Exec& e);  // a process that is not a zombie is in it
// Looks at the child that is to be reaped next, while it still has a name; its pid, or -1.
int32_t note_killed();
bool memory_is_tight();

// log.cpp
// logs/.spare<n>: files with room for a header. A create may have to look for an inode for long
// (ext4, after many deletes), so they are made while nothing waits. Of the time when one is due.
uint64_t log_spare_due();
void log_make_spare();
void log_prepare(Exec& e);                            // opens one if there is one
int log_open(Exec& e, uint64_t cap, bool unlimited);  // 0 or errno
int log_name(Exec& e);                                // gives it its name; 0 or errno
void log_discard(Exec& e);                            // unlinks what log_open made
void log_output(Exec& e, wire::Kind kind, const void* data, uint32_t size);
bool log_mark(Exec& e, wire::Kind kind, const void* data, uint32_t size);  // resize, exit, end
bool log_flush_lost(Exec& e);  // true when no lost bytes are left unreported

// budget.cpp
void segment_name(const char* px, uint32_t index, char (&name)[wire::kIdSize + 16]);
void budget_check();               // removes logs of ended execs while all are above the budget
void budget_ended(const Exec& e);  // its log is complete

// journal.cpp
void journal_open();
bool journal_write(wire::Record type, const char* px, uint64_t value, const wire::ExitInfo* info);

// output.cpp: reading pipes, the end rule
void output_event(Exec& e, int which);
void set_flow(Exec& e, uint64_t limit, uint32_t conn);
void forget_flow(uint32_t conn);  // the connection is gone: so are its limits
void reaped(Exec& e, int status, const struct rusage& usage);
void settle(Exec& e);            // whatever is due now: exit, end, retries, release
uint64_t due_at(const Exec& e);  // CLOCK_MONOTONIC time of the next settle(), kNever if none

// stdin.cpp
void stdin_pump(Exec& e);
inline void stdin_event(Exec& e) { stdin_pump(e); }
void stdin_frame(uint32_t conn, const wire::Header& head, wire::StdinData data,
                 const unsigned char* bytes);
void stdin_drop(Exec& e, int error);  // closes it and answers what waits

}  // namespace talon::init
