// The log of one exec: segments logs/<px>.<n> of framed bytes (wire/log_format.h). Appending
// never blocks and never fails upwards: on a full disk the torn frame is cut away, the bytes are
// counted, and a `lost` frame says how many as soon as the disk takes one.

#include "isolate/init/state.h"
#include "isolate/wire/crc32.h"

namespace talon::init {
namespace {

constexpr uint64_t kSegmentMin = 64 * 1024;
constexpr uint64_t kSegmentMax = 8u << 20;
constexpr uint64_t kSegmentUnlimited = 64u << 20;

// At `good`, which is the end of what is whole; what lies behind it is overwritten or cut.
bool write_whole(int fd, const IoVec* iov, int count, uint64_t& good) {
  uint64_t size = 0;
  for (int i = 0; i < count; ++i) {
    size += iov[i].size;
  }
  long n = sys(__NR_pwritev, fd, iov, count, good, 0);
  if (n == (long)size) {
    good += size;
    return true;
  }
  if (n > 0) {
    sys(__NR_ftruncate, fd, good);
  }
  return false;
}

constexpr uint32_t kSpares = 6;               // what a burst of execs may take
constexpr uint64_t kSpareIdle = 2 * kMs;      // after the last exec
constexpr uint64_t kSpareRetry = 1000 * kMs;  // on a full disk

void spare_name(uint32_t number, char (&name)[16]) {
  Text(name, sizeof name).add(".spare").add(number);
}

uint32_t held_spare() { return g.next != nullptr ? g.next->log.spare : 0; }

bool write_header(const Exec& e, int fd, uint32_t index, uint64_t& good) {
  wire::SegmentHeader head = {};
  head.magic = wire::kSegmentMagic;
  head.version = wire::kVersion;
  head.index = index;
  head.first_seq = e.log.seq;
  head.offset = e.log.offset;
  memcpy(head.px, e.px, sizeof head.px);
  if (e.tty) {
    head.cols = e.cols;
    head.rows = e.rows;
  }
  head.crc = wire::crc32c(&head, sizeof head);
  IoVec iov = {&head, sizeof head};
  good = 0;
  return write_whole(fd, &iov, 1, good);
}

// Opens segment `index`; the open one is closed only when the new one is usable.
int open_segment(Exec& e, uint32_t index) {
  char name[wire::kIdSize + 16];
  segment_name(e.px, index, name);
  long fd = openat(g.logs, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
  if (fd < 0) {
    return (int)-fd;
  }
  uint64_t good = 0;
  if (!write_header(e, (int)fd, index, good)) {
    close((int)fd);
    sys(__NR_unlinkat, g.logs, name, 0);
    return ENOSPC;
  }
  close_fd(e.log.fd);
  e.log.fd = (int)fd;
  e.log.index = index;
  e.log.good = good;
  e.log.kept += good;
  g.log_bytes += good;
  return 0;
}

void drop_oldest(Exec& e) {
  while (e.log.cap != 0 && e.log.kept > e.log.cap && e.log.first < e.log.index) {
    char name[wire::kIdSize + 16];
    segment_name(e.px, e.log.first, name);
    struct stat st = {};
    long err = sys(__NR_newfstatat, g.logs, name, &st, kAtSymlinkNofollow);
    if (err >= 0) {
      err = sys(__NR_unlinkat, g.logs, name, 0);
    }
    if (err < 0 && err != -ENOENT) {
      return;  // tried again behind the next frame: a reader would wait for ever before a hole
    }
    e.log.kept -= min((uint64_t)st.st_size, e.log.kept);
    g.log_bytes -= min((uint64_t)st.st_size, g.log_bytes);
    ++e.log.first;
    e.log.dropped = true;
  }
}

// One frame, with one writev. False: nothing of it is in the log.
bool append(Exec& e, wire::Kind kind, const void* data, uint32_t size) {
  Log& log = e.log;
  if (log.fd < 0) {
    return false;
  }
  uint64_t bytes = sizeof(wire::LogFrame) + size;
  if (log.good > sizeof(wire::SegmentHeader) && log.good + bytes > log.limit &&
      open_segment(e, log.index + 1) != 0) {
    return false;
  }
  wire::LogFrame frame = {};
  frame.magic = wire::kFrameMagic;
  frame.seq = log.seq;
  frame.offset = log.offset;
  take_times(frame.mono_ns, frame.wall_ns);
  frame.length = size;
  frame.kind = (uint8_t)kind;
  frame.flags = e.exited && kind != wire::Kind::exit ? wire::kFrameLate : 0;
  frame.crc = wire::crc32c(&frame, sizeof frame);
  IoVec iov[2] = {{&frame, sizeof frame}, {data, size}};
  uint64_t before = log.good;
  if (!write_whole(log.fd, iov, size != 0 ? 2 : 1, log.good)) {
    return false;
  }
  log.kept += log.good - before;
  g.log_bytes += log.good - before;
  ++log.seq;
  g.appended = true;
  drop_oldest(e);
  budget_check();
  return true;
}

}  // namespace

int log_open(Exec& e, uint64_t cap, bool unlimited) {
  if (g.logs < 0) {
    return EBADF;
  }
  Log& log = e.log;
  log.cap = unlimited ? 0 : cap;
  uint64_t limit = cap / 16;
  limit = limit < kSegmentMin ? kSegmentMin : limit;
  log.limit = unlimited ? kSegmentUnlimited : min(limit, kSegmentMax);
  log.seq = 1;
  if (log.fd < 0) {
    return open_segment(e, 0);
  }
  return 0;
}

uint64_t log_spare_due() {
  uint32_t goal = min(g.started_count + 2, kSpares);
  uint32_t have = held_spare() != 0 ? 1 : 0;
  for (uint32_t i = 1; i <= kSpares; ++i) {
    have += g.spares >> i & 1;
  }
  // After a failure (a full disk) not before spare_retry, which is 0 after a success.
  uint64_t at = have == 0 || g.spare_retry > g.spare_at ? g.spare_retry : g.spare_at;
  return g.logs < 0 || have >= goal ? kNever : at;
}

void log_make_spare() {
  uint32_t number = 1;
  while ((g.spares >> number & 1) != 0 || number == held_spare()) {
    ++number;
  }
  char name[16];
  spare_name(number, name);
  // One of an earlier life may be there; nobody has it open.
  long fd = openat(g.logs, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
  // Room for the header is taken now: a full disk shows before the clone, not behind it.
  wire::SegmentHeader blank = {};
  bool good = fd >= 0 && write((int)fd, &blank, sizeof blank) == (long)sizeof blank;
  close((int)fd);
  g.spares |= good ? 1u << number : 0;
  g.spare_retry = good ? 0 : now_ns() + kSpareRetry;
}

void log_prepare(Exec& e) {
  for (uint32_t number = 1; number <= kSpares && e.log.fd < 0; ++number) {
    if ((g.spares >> number & 1) != 0) {
      char name[16];
      spare_name(number, name);
      g.spares &= ~(1u << number);
      e.log.fd = (int)openat(g.logs, name, O_WRONLY | O_NOFOLLOW);
      e.log.spare = e.log.fd >= 0 ? number : 0;
    }
  }
}

// The child runs already and may print into the spare: it is nobody's from here on, and the next
// exec must not find frames in it.
static int log_unnamed(Exec& e, int error) {
  char from[16];
  spare_name(e.log.spare, from);
  sys(__NR_unlinkat, g.logs, from, 0);
  g.log_bytes -= min(e.log.kept, g.log_bytes);
  e.log.kept = 0;
  e.log.spare = 0;
  close_fd(e.log.fd);  // append() drops; log_discard() has nothing to do
  return error;
}

int log_name(Exec& e) {
  g.spare_at = now_ns() + kSpareIdle;
  if (e.log.spare == 0) {
    return 0;
  }
  if (!write_header(e, e.log.fd, 0, e.log.good)) {
    return log_unnamed(e, EIO);
  }
  e.log.kept = e.log.good;
  g.log_bytes += e.log.good;
  char from[16];
  spare_name(e.log.spare, from);
  char to[wire::kIdSize + 16];
  segment_name(e.px, 0, to);
  long err = sys(__NR_renameat2, g.logs, from, g.logs, to, 1 /* RENAME_NOREPLACE */);
  if (err < 0) {
    return log_unnamed(e, (int)-err);
  }
  e.log.spare = 0;
  return 0;
}

void log_discard(Exec& e) {
  if (e.log.fd >= 0) {
    char name[wire::kIdSize + 16];
    segment_name(e.px, 0, name);
    if (e.log.spare != 0) {
      g.spares |= 1u << e.log.spare;
      e.log.spare = 0;
    } else {
      sys(__NR_unlinkat, g.logs, name, 0);
    }
    g.log_bytes -= min(e.log.kept, g.log_bytes);
    close_fd(e.log.fd);
  }
}

bool log_flush_lost(Exec& e) {
  Log& log = e.log;
  if (log.lost == 0) {
    return true;
  }
  wire::LostPayload payload = {log.lost};
  if (!append(e, wire::Kind::lost, &payload, sizeof payload)) {
    log.retry_at = now_ns() + kLogRetry;
    return false;
  }
  log.offset += log.lost;
  log.lost = 0;
  log.retry_at = 0;
  return true;
}

void log_output(Exec& e, wire::Kind kind, const void* data, uint32_t size) {
  Log& log = e.log;
  bool waiting = log.retry_at != 0 && now_ns() < log.retry_at;
  if (!waiting && log_flush_lost(e)) {
    if (append(e, kind, data, size)) {
      log.offset += size;
      return;
    }
    log.retry_at = now_ns() + kLogRetry;
  }
  log.lost += size;
  log.dropped = true;
}

bool log_mark(Exec& e, wire::Kind kind, const void* data, uint32_t size) {
  return log_flush_lost(e) && append(e, kind, data, size);
}

}  // namespace talon::init
