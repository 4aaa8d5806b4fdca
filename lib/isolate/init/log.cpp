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

bool write_whole(int fd, const IoVec* iov, int count, uint64_t& good) {
  uint64_t size = 0;
  for (int i = 0; i < count; ++i) {
    size += iov[i].size;
  }
  long n = sys(__NR_writev, fd, iov, count);
  if (n == (long)size) {
    good += size;
    return true;
  }
  if (n > 0) {
    sys(__NR_ftruncate, fd, good);
  }
  return false;
}

constexpr char kSpare[] = ".spare";
constexpr uint64_t kSpareIdle = 2 * kMs;      // after the last one was used
constexpr uint64_t kSpareRetry = 1000 * kMs;  // on a full disk

int take_spare(const char* name) {
  g.spare_log = false;
  g.spare_at = now_ns() + kSpareIdle;
  long fd = sys(__NR_renameat2, g.logs, kSpare, g.logs, name, 1 /* RENAME_NOREPLACE */);
  if (fd >= 0) {
    fd = openat(g.logs, name, O_WRONLY | O_NOFOLLOW | O_APPEND);
    if (fd < 0) {
      sys(__NR_unlinkat, g.logs, name, 0);
    }
  }
  return (int)fd;
}

// Opens segment `index`; the open one is closed only when the new one is usable.
int open_segment(Exec& e, uint32_t index) {
  char name[wire::kIdSize + 16];
  segment_name(e.px, index, name);
  long fd = g.spare_log ? take_spare(name) : -ENOENT;
  if (fd < 0) {
    fd = openat(g.logs, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_APPEND, 0600);
  }
  if (fd < 0) {
    return (int)-fd;
  }
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
  uint64_t good = 0;
  if (!write_whole((int)fd, &iov, 1, good)) {
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
    if (sys(__NR_newfstatat, g.logs, name, &st, kAtSymlinkNofollow) >= 0) {
      e.log.kept -= min((uint64_t)st.st_size, e.log.kept);
      g.log_bytes -= min((uint64_t)st.st_size, g.log_bytes);
    }
    sys(__NR_unlinkat, g.logs, name, 0);
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
  frame.mono_ns = clock_ns(CLOCK_BOOTTIME);
  frame.wall_ns = clock_ns(CLOCK_REALTIME);
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
  return open_segment(e, 0);
}

void log_make_spare() {
  // It is renamed before anything is written to it: one of an earlier life is empty too.
  long err = sys(__NR_mknodat, g.logs, kSpare, kModeRegular | 0600, 0);
  g.spare_log = err >= 0 || err == -EEXIST;
  g.spare_at = now_ns() + kSpareRetry;
}

void log_discard(Exec& e) {
  if (e.log.fd >= 0) {
    char name[wire::kIdSize + 16];
    segment_name(e.px, 0, name);
    sys(__NR_unlinkat, g.logs, name, 0);
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
