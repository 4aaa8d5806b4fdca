#include "isolate/log_reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "isolate/wire/crc32.h"

namespace talon::isolate {
namespace {

using wire::Kind;
using wire::LogFrame;
using wire::SegmentHeader;

constexpr std::size_t kChunk = 128 * 1024;
static_assert(kChunk >= sizeof(LogFrame) + wire::kMaxFrame);
constexpr std::size_t kJournalRecords = 16 * 1024;  // per read_journal call

bool good_px(std::string_view px) {
  return !px.empty() && px.size() < wire::kIdSize &&
         std::ranges::all_of(
             px, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); });
}

template <class T>
bool checksum_ok(T value) {
  const std::uint32_t crc = value.crc;
  value.crc = 0;
  return wire::crc32c(&value, sizeof value) == crc;
}

// pread(2) until `size` bytes or the end of the file.
Result<std::size_t> read_at(int fd, void* to, std::size_t size, std::uint64_t offset) {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t n =
        ::pread(fd, static_cast<char*>(to) + done, size - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      return fail_sys(errno, "read log");
    }
    if (n == 0) {
      break;
    }
    done += static_cast<std::size_t>(n);
  }
  return done;
}

// A regular file in `dir`, never through a link, never blocking. An empty UniqueFd: not there.
Result<UniqueFd> open_plain(int dir, const std::string& name) {
  UniqueFd fd(::openat(dir, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd) {
    if (errno == ENOENT) {
      return UniqueFd();
    }
    return fail_sys(errno, "open " + name);
  }
  struct stat st{};
  if (::fstat(fd.get(), &st) != 0) {
    return fail_sys(errno, "stat " + name);
  }
  if (!S_ISREG(st.st_mode)) {
    return fail(Code::io, name + " is not a regular file");
  }
  return fd;
}

std::string segment_name(std::string_view px, std::uint32_t index) {
  return std::string(px) + "." + std::to_string(index);
}

// All segment numbers of an exec now in the directory, ascending.
Result<std::vector<std::uint32_t>> segments_of(int logs, std::string_view px) {
  UniqueFd dir(::openat(logs, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!dir) {
    return fail_sys(errno, "open logs");
  }
  std::unique_ptr<DIR, int (*)(DIR*)> list(::fdopendir(dir.get()), ::closedir);
  if (!list) {
    return fail_sys(errno, "list logs");
  }
  (void)dir.release();
  std::vector<std::uint32_t> found;
  while (const dirent* entry = ::readdir(list.get())) {
    const std::string_view name = entry->d_name;
    if (name.size() < px.size() + 2 || !name.starts_with(px) || name[px.size()] != '.') {
      continue;
    }
    const std::string_view digits = name.substr(px.size() + 1);
    std::uint32_t index = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (error == std::errc() && end == digits.data() + digits.size() &&
        digits == std::to_string(index)) {
      found.push_back(index);
    }
  }
  std::ranges::sort(found);
  return found;
}

struct Segment {
  UniqueFd fd;
  SegmentHeader header{};
};

// Empty fd: the segment is not there, or its header is not (yet) whole and valid.
Result<Segment> open_segment(int logs, std::string_view px, std::uint32_t index) {
  Segment segment;
  TALON_TRY(fd, open_plain(logs, segment_name(px, index)));
  if (!fd) {
    return segment;
  }
  TALON_TRY(n, read_at(fd.get(), &segment.header, sizeof segment.header, 0));
  const SegmentHeader& head = segment.header;
  const bool good = n == sizeof head && head.magic == wire::kSegmentMagic && checksum_ok(head) &&
                    head.version == wire::kVersion && head.index == index && head.first_seq != 0 &&
                    std::string_view(head.px, ::strnlen(head.px, sizeof head.px)) == px;
  if (good) {
    segment.fd = std::move(fd);
  }
  return segment;
}

bool frame_ok(const LogFrame& frame, std::uint64_t seq) {
  return frame.magic == wire::kFrameMagic && frame.length <= wire::kMaxFrame && frame.seq == seq &&
         checksum_ok(frame);
}

bool is_output(Kind kind) { return kind == Kind::out || kind == Kind::err || kind == Kind::tty; }

template <class T>
T payload_as(std::string_view bytes) {
  T value{};
  std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof value));
  return value;
}

LogEntry make_entry(const LogFrame& frame, std::string_view payload, std::uint32_t from_byte) {
  LogEntry entry;
  entry.kind = static_cast<Kind>(frame.kind);
  entry.late = (frame.flags & wire::kFrameLate) != 0;
  entry.wall_ns = frame.wall_ns;
  entry.mono_ns = frame.mono_ns;
  entry.after = {frame.seq + 1, 0};
  entry.offset = frame.offset + (is_output(entry.kind) ? frame.length : 0);
  if (entry.kind == Kind::input) {
    entry.typed = payload;
  } else if (is_output(entry.kind)) {
    entry.bytes = payload.substr(std::min<std::size_t>(from_byte, payload.size()));
  } else if (entry.kind == Kind::lost) {
    entry.lost_bytes = payload_as<wire::LostPayload>(payload).bytes;
    entry.offset += entry.lost_bytes;
  } else if (entry.kind == Kind::resize) {
    entry.size = payload_as<wire::ResizePayload>(payload);
  } else if (entry.kind == Kind::exit) {
    entry.exit = payload_as<wire::ExitInfo>(payload);
  }
  return entry;
}

bool is_unlinked(int fd) {
  struct stat st{};
  return ::fstat(fd, &st) == 0 && st.st_nlink == 0;
}

}  // namespace

std::string to_string(Cursor cursor) {
  return std::to_string(cursor.frame) + "." + std::to_string(cursor.byte);
}

Result<Cursor> parse_cursor(std::string_view text) {
  if (text == "0") {
    return Cursor{};
  }
  Cursor cursor;
  const char* end = text.data() + text.size();
  const auto frame = std::from_chars(text.data(), end, cursor.frame);
  if (frame.ec != std::errc() || frame.ptr == end || *frame.ptr != '.' || cursor.frame == 0) {
    return bad_field("from", "not a cursor: take one from an earlier answer, \"0\" or \"end\"");
  }
  const auto byte = std::from_chars(frame.ptr + 1, end, cursor.byte);
  if (byte.ec != std::errc() || byte.ptr != end || cursor.byte > wire::kMaxFrame) {
    return bad_field("from", "not a cursor: take one from an earlier answer, \"0\" or \"end\"");
  }
  return cursor;
}

Result<LogReader> LogReader::open(int logs, std::string_view px, Cursor from) {
  if (!good_px(px)) {
    return fail(Code::not_found, "no log of " + std::string(px.substr(0, 64)));
  }
  LogReader reader;
  reader.logs_ = logs;
  reader.px_ = px;
  reader.cursor_ = from;
  std::vector<std::uint32_t> indices;
  if (from.frame > 1 || ::faccessat(logs, segment_name(px, 0).c_str(), F_OK, 0) != 0) {
    TALON_TRY(found, segments_of(logs, px));
    indices = std::move(found);
  } else {
    indices = {0};
  }
  if (indices.empty()) {
    return fail(Code::not_found, "no log of " + reader.px_);
  }
  // The newest segment that begins at or before the cursor; the oldest one if none does.
  for (std::size_t i = indices.size(); i-- > 0;) {
    TALON_TRY(segment, open_segment(logs, px, indices[i]));
    if (!segment.fd) {
      continue;
    }
    const bool last_choice = segment.header.first_seq <= from.frame;
    reader.enter(std::move(segment.fd), segment.header);
    if (last_choice) {
      return reader;
    }
  }
  if (reader.segment_ && from.frame == 1) {
    reader.out_offset_ = 0;  // from the start: how much is missing is known
    reader.offset_known_ = true;
  } else {
    reader.offset_known_ = false;
  }
  return reader;
}

void LogReader::enter(UniqueFd segment, const SegmentHeader& header) {
  segment_ = std::move(segment);
  index_ = header.index;
  position_ = sizeof(SegmentHeader);
  next_seq_ = header.first_seq;
  segment_offset_ = header.offset;
  size_ = {header.cols, header.rows};
  if (cursor_.frame >= header.first_seq) {
    out_offset_ = header.offset;
    offset_known_ = true;
  }
}

// Something lies between the cursor and the first frame that is kept.
void LogReader::note_gap(std::vector<LogEntry>& out) {
  if (cursor_.frame >= next_seq_) {
    return;
  }
  LogEntry entry;
  entry.kind = Kind::lost;
  if (offset_known_ && segment_offset_ > out_offset_) {
    entry.lost_bytes = segment_offset_ - out_offset_;
  }
  entry.after = {next_seq_, 0};
  entry.size = size_;
  entry.offset = segment_offset_;
  cursor_ = entry.after;
  out_offset_ = segment_offset_;
  offset_known_ = true;
  out.push_back(std::move(entry));
}

// The segment to go on with after the open one; an empty fd if there is none yet.
Result<LogReader::Next> LogReader::find_next() const {
  TALON_TRY(next, open_segment(logs_, px_, segment_ ? index_ + 1 : 0));
  if (!next.fd && (!segment_ || is_unlinked(segment_.get()))) {
    // The writer has dropped segments faster than this reader went on.
    TALON_TRY(indices, segments_of(logs_, px_));
    for (const std::uint32_t index : indices) {
      if (segment_ && index <= index_) {
        continue;
      }
      TALON_TRY(later, open_segment(logs_, px_, index));
      if (later.fd) {
        next = std::move(later);
        break;
      }
    }
  }
  if (segment_ && next.header.first_seq < next_seq_) {
    next.fd.reset();
  }
  return Next{std::move(next.fd), next.header};
}

// Frames of the open segment from position_ on; stops at `max_bytes` of payload, at the end, or
// at bytes that are no valid frame.
Result<std::size_t> LogReader::read_segment(std::vector<LogEntry>& out, std::size_t max_bytes) {
  std::size_t taken = 0;
  while (taken < max_bytes && !at_end_) {
    buffer_.resize(kChunk);
    TALON_TRY(size, read_at(segment_.get(), buffer_.data(), buffer_.size(), position_));
    std::size_t at = 0;
    while (taken < max_bytes && !at_end_) {
      LogFrame frame;
      if (size - at < sizeof frame) {
        break;
      }
      std::memcpy(&frame, buffer_.data() + at, sizeof frame);
      if (!frame_ok(frame, next_seq_)) {
        position_ += at;
        return taken;
      }
      if (size - at < sizeof frame + frame.length) {
        break;
      }
      const std::string_view payload(buffer_.data() + at + sizeof frame, frame.length);
      at += sizeof frame + frame.length;
      ++next_seq_;
      const Kind kind = static_cast<Kind>(frame.kind);
      const std::uint64_t lost =
          kind == Kind::lost ? payload_as<wire::LostPayload>(payload).bytes : 0;
      out_offset_ = frame.offset + (is_output(kind) ? frame.length : lost);
      at_end_ = kind == Kind::end;
      if (frame.seq < cursor_.frame) {
        if (kind == Kind::resize) {
          size_ = payload_as<wire::ResizePayload>(payload);
        }
        continue;
      }
      LogEntry entry = make_entry(frame, payload, frame.seq == cursor_.frame ? cursor_.byte : 0);
      cursor_ = entry.after;
      taken += std::max<std::size_t>(entry.bytes.size() + entry.typed.size(), 64);
      out.push_back(std::move(entry));
    }
    position_ += at;
    if (at == 0 || size < buffer_.size()) {
      break;
    }
  }
  return taken;
}

Result<bool> LogReader::read(std::vector<LogEntry>& out, std::size_t max_bytes) {
  const std::size_t before = out.size();
  std::size_t taken = 0;
  while (taken < max_bytes && !at_end_) {
    if (segment_) {
      note_gap(out);
      TALON_TRY(got, read_segment(out, max_bytes - taken));
      taken += got;
      if (taken >= max_bytes || at_end_) {
        break;
      }
    }
    TALON_TRY(next, find_next());
    if (!next.fd) {
      break;
    }
    // The open segment will not grow any more, but it may have grown between the read above and
    // the look at its successor.
    const std::uint64_t seq = next_seq_;
    if (segment_) {
      TALON_TRY(got, read_segment(out, max_bytes - taken));
      taken += got;
    }
    if (next_seq_ == seq || !segment_) {
      enter(std::move(next.fd), next.header);
    }
  }
  if (out.size() == before) {
    std::string().swap(buffer_);  // a follower that waits costs no buffer
  }
  return out.size() != before;
}

Cursor LogReader::cursor() const { return cursor_; }

bool LogReader::at_end() const { return at_end_; }

std::uint64_t LogReader::unread() const {
  std::uint64_t bytes = 0;
  struct stat st{};
  if (segment_ && ::fstat(segment_.get(), &st) == 0) {
    const auto size = static_cast<std::uint64_t>(st.st_size);
    bytes = size > position_ ? size - position_ : 0;
  }
  for (std::uint32_t next = index_ + 1;
       ::fstatat(logs_, segment_name(px_, next).c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0; ++next) {
    bytes += static_cast<std::uint64_t>(st.st_size);
  }
  return bytes;
}

Result<Cursor> end_of_log(int logs, std::string_view px) {
  TALON_TRY(indices, segments_of(logs, good_px(px) ? px : std::string_view("?")));
  for (std::size_t i = indices.size(); i-- > 0;) {
    TALON_TRY(segment, open_segment(logs, px, indices[i]));
    if (!segment.fd) {
      continue;
    }
    std::uint64_t seq = segment.header.first_seq;
    std::uint64_t at = sizeof(SegmentHeader);
    struct stat st{};
    if (::fstat(segment.fd.get(), &st) != 0) {
      return fail_sys(errno, "stat log");
    }
    const auto size = static_cast<std::uint64_t>(st.st_size);
    for (;;) {
      LogFrame frame;
      TALON_TRY(n, read_at(segment.fd.get(), &frame, sizeof frame, at));
      if (n != sizeof frame || !frame_ok(frame, seq) || size < at + sizeof frame + frame.length) {
        return Cursor{seq, 0};
      }
      at += sizeof frame + frame.length;
      ++seq;
    }
  }
  return fail(Code::not_found, "no log of " + std::string(px.substr(0, 64)));
}

namespace {

// Where reading for the end of a log begins: its newest segment, or the one before it when the
// newest may be too short. Without a list of the directory where that can be: thousands of logs
// may lie in it.
Result<Cursor> start_of_end(int logs, std::string_view px, std::uint64_t wanted) {
  struct stat st{};
  const auto exists = [&](std::uint32_t index) {
    return ::fstatat(logs, segment_name(px, index).c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0;
  };
  std::uint32_t newest = 0;
  if (exists(0)) {
    while (exists(newest + 1)) {
      ++newest;
    }
  } else {
    TALON_TRY(indices, segments_of(logs, px));
    newest = indices.empty() ? 0 : indices.back();
  }
  const bool enough = exists(newest) && static_cast<std::uint64_t>(st.st_size) > wanted;
  for (std::uint32_t index = newest > 0 && !enough ? newest - 1 : newest; index <= newest;
       ++index) {
    TALON_TRY(segment, open_segment(logs, px, index));
    if (segment.fd) {
      return Cursor{segment.header.first_seq, 0};
    }
  }
  return Cursor{};
}

}  // namespace

Result<std::string> last_output(int logs, std::string_view px, std::size_t max_bytes) {
  if (!good_px(px)) {
    return fail(Code::not_found, "no log of " + std::string(px.substr(0, 64)));
  }
  TALON_TRY(from, start_of_end(logs, px, 64 * std::uint64_t{max_bytes}));
  TALON_TRY(reader, LogReader::open(logs, px, from));
  std::string text;
  for (;;) {
    std::vector<LogEntry> entries;
    TALON_TRY(more, reader.read(entries));
    if (!more) {
      return text;
    }
    for (const LogEntry& entry : entries) {
      text += entry.bytes;
    }
    text.erase(0, text.size() - std::min(text.size(), max_bytes));
  }
}

Result<> remove_log(int logs, std::string_view px) {
  if (!good_px(px)) {
    return {};
  }
  TALON_TRY(indices, segments_of(logs, px));
  for (const std::uint32_t index : indices) {
    if (::unlinkat(logs, segment_name(px, index).c_str(), 0) != 0 && errno != ENOENT) {
      return fail_sys(errno, "remove log of " + std::string(px));
    }
  }
  return {};
}

Result<JournalChunk> read_journal(int logs, std::uint64_t& offset) {
  JournalChunk chunk;
  TALON_TRY(fd, open_plain(logs, "journal"));
  if (!fd) {
    return chunk;
  }
  std::string buffer(sizeof(wire::JournalRecord) * 256, '\0');
  while (chunk.records.size() < kJournalRecords) {
    TALON_TRY(size, read_at(fd.get(), buffer.data(), buffer.size(), offset));
    std::size_t at = 0;
    for (; size - at >= sizeof(wire::JournalRecord); at += sizeof(wire::JournalRecord)) {
      wire::JournalRecord record;
      std::memcpy(&record, buffer.data() + at, sizeof record);
      if (record.magic != wire::kJournalMagic || record.size != sizeof record ||
          !checksum_ok(record)) {
        chunk.damaged = true;
        offset += at;
        return chunk;
      }
      record.px[sizeof record.px - 1] = '\0';
      chunk.records.push_back(record);
    }
    offset += at;
    if (size < buffer.size()) {
      break;
    }
  }
  return chunk;
}

}  // namespace talon::isolate
