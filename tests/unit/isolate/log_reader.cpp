// LogReader and the journal reader on logs built from data: whole, torn, dropped, damaged, forged.

#include "isolate/log_reader.h"

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "fuzz/log_reader_input.h"
#include "isolate/wire/crc32.h"

using namespace talon;
using isolate::Cursor;
using isolate::LogEntry;
using isolate::LogReader;
using wire::Kind;

namespace {

class LogDir {
 public:
  LogDir() {
    char name[] = "/tmp/talon-log-test-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    path_ = name;
    fd_.reset(::open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  ~LogDir() { std::filesystem::remove_all(path_); }
  int fd() const { return fd_.get(); }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  void put(const std::string& name, const std::string& bytes) const {
    std::ofstream(file(name), std::ios::binary) << bytes;
  }
  void add(const std::string& name, const std::string& bytes) const {
    std::ofstream(file(name), std::ios::binary | std::ios::app) << bytes;
  }

 private:
  std::string path_;
  UniqueFd fd_;
};

template <class T>
std::string bytes_of(T value) {
  value.crc = 0;
  value.crc = wire::crc32c(&value, sizeof value);
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

// Writes as init does.
struct Writer {
  std::uint64_t seq = 1;
  std::uint64_t offset = 0;

  std::string segment(std::uint32_t index, const std::string& px = "pxa") const {
    wire::SegmentHeader head{};
    head.magic = wire::kSegmentMagic;
    head.version = wire::kVersion;
    head.index = index;
    head.first_seq = seq;
    head.offset = offset;
    px.copy(head.px, sizeof head.px - 1);
    return bytes_of(head);
  }
  std::string frame(Kind kind, const std::string& payload, std::uint8_t flags = 0) {
    wire::LogFrame frame{};
    frame.magic = wire::kFrameMagic;
    frame.seq = seq++;
    frame.offset = offset;
    frame.wall_ns = 1000 + frame.seq;
    frame.length = static_cast<std::uint32_t>(payload.size());
    frame.kind = static_cast<std::uint8_t>(kind);
    frame.flags = flags;
    if (kind == Kind::out || kind == Kind::err || kind == Kind::tty) {
      offset += payload.size();
    }
    return bytes_of(frame) + payload;
  }
  std::string lost(std::uint64_t bytes) {
    std::string text = frame(Kind::lost, std::string(reinterpret_cast<char*>(&bytes), 8));
    offset += bytes;
    return text;
  }
};

std::vector<LogEntry> read_all(LogReader& reader, std::size_t step = 256 * 1024) {
  std::vector<LogEntry> all;
  for (;;) {
    auto more = reader.read(all, step);
    REQUIRE(more);
    if (!*more) {
      return all;
    }
  }
}

LogReader open_log(const LogDir& dir, Cursor from = {}) {
  auto reader = LogReader::open(dir.fd(), "pxa", from);
  REQUIRE(reader);
  return std::move(*reader);
}

std::string joined(const std::vector<LogEntry>& entries, Kind kind = Kind::out) {
  std::string text;
  for (const auto& entry : entries) {
    text += entry.kind == kind ? entry.bytes : "";
  }
  return text;
}

std::string journal_record(wire::Record type, const std::string& px) {
  wire::JournalRecord record{};
  record.magic = wire::kJournalMagic;
  record.type = static_cast<std::uint16_t>(type);
  record.size = sizeof record;
  px.copy(record.px, sizeof record.px);
  return bytes_of(record);
}

}  // namespace

TEST_CASE("log: frames in their order, then the end") {
  LogDir dir;
  Writer w;
  wire::ExitInfo exit{};
  exit.code = 3;
  dir.put("pxa.0", w.segment(0) + w.frame(Kind::out, "one") + w.frame(Kind::err, "two"));
  LogReader reader = open_log(dir);
  auto all = read_all(reader);
  REQUIRE(all.size() == 2);
  CHECK(all[0].kind == Kind::out);
  CHECK(all[0].bytes == "one");
  CHECK(all[0].wall_ns == 1001);
  CHECK(all[0].after == Cursor{2, 0});
  CHECK(all[1].kind == Kind::err);
  CHECK_FALSE(reader.at_end());
  CHECK(reader.cursor() == Cursor{3, 0});
  // It goes on where it was when the log grows.
  dir.add("pxa.0", w.frame(Kind::exit, std::string(reinterpret_cast<char*>(&exit), sizeof exit)) +
                       w.frame(Kind::out, "late", wire::kFrameLate) +
                       w.frame(Kind::end, "", wire::kFrameLate));
  all = read_all(reader);
  REQUIRE(all.size() == 3);
  CHECK(all[0].exit.code == 3);
  CHECK(all[1].late);
  CHECK(all[1].bytes == "late");
  CHECK(reader.at_end());
}

TEST_CASE("log: every cursor gives exactly the rest") {
  LogDir dir;
  Writer w;
  std::string text;
  std::string seg = w.segment(0);
  for (int i = 0; i < 30; ++i) {
    if (i == 10 || i == 20) {
      dir.put("pxa." + std::to_string(i / 10 - 1), seg);
      seg = w.segment(static_cast<std::uint32_t>(i / 10));
    }
    const std::string part(static_cast<std::size_t>(i % 4 + 1), static_cast<char>('a' + i % 26));
    text += part;
    seg += w.frame(Kind::out, part);
  }
  dir.put("pxa.2", seg);
  std::size_t before = 0;
  for (std::uint64_t frame = 1; frame <= 30; ++frame) {
    const auto size = static_cast<std::uint32_t>((frame - 1) % 4 + 1);
    for (std::uint32_t byte = 0; byte <= size; ++byte) {
      LogReader reader = open_log(dir, Cursor{frame, byte});
      const auto all = read_all(reader, 1);
      CHECK(joined(all) == text.substr(before + byte));
      CHECK((all.empty() || all[0].kind == Kind::out));
    }
    before += size;
  }
  auto end = isolate::end_of_log(dir.fd(), "pxa");
  REQUIRE(end);
  CHECK(*end == Cursor{31, 0});
}

TEST_CASE("log: a cursor from the future waits and then goes on") {
  LogDir dir;
  Writer w;
  dir.put("pxa.0", w.segment(0) + w.frame(Kind::out, "one"));
  LogReader reader = open_log(dir, Cursor{3, 1});
  CHECK(read_all(reader).empty());
  dir.add("pxa.0", w.frame(Kind::out, "two") + w.frame(Kind::out, "three"));
  CHECK(joined(read_all(reader)) == "hree");
}

TEST_CASE("log: dropped segments are counted to the byte") {
  LogDir dir;
  Writer w;
  std::vector<std::string> segments;
  for (std::uint32_t i = 0; i < 5; ++i) {
    const std::string head = w.segment(i);
    segments.push_back(head + w.frame(Kind::out, std::string(100 + i, 'a')) +
                       w.frame(Kind::err, "e"));
  }
  SECTION("before the reader came") {
    dir.put("pxa.3", segments[3]);
    dir.put("pxa.4", segments[4]);
    LogReader reader = open_log(dir);
    const auto all = read_all(reader);
    REQUIRE(all.size() == 5);
    CHECK(all[0].kind == Kind::lost);
    CHECK(all[0].lost_bytes == 101 + 102 + 103);
    CHECK(all[0].after == Cursor{7, 0});
    CHECK(joined(all).size() == 103 + 104);
    LogReader old = open_log(dir, Cursor{4, 0});  // its frame is gone: how much is not known
    const auto rest = read_all(old);
    REQUIRE(rest.size() == 5);
    CHECK(rest[0].kind == Kind::lost);
    CHECK(rest[0].lost_bytes == 0);
    CHECK(rest[1].bytes.size() == 103);
  }
  SECTION("while the reader was away") {
    dir.put("pxa.0", segments[0]);
    LogReader reader = open_log(dir);
    CHECK(read_all(reader).size() == 2);
    std::filesystem::remove(dir.file("pxa.0"));
    dir.put("pxa.4", segments[4]);
    const auto all = read_all(reader);
    REQUIRE(all.size() == 3);
    CHECK(all[0].kind == Kind::lost);
    CHECK(all[0].lost_bytes == 102 + 103 + 104);
    CHECK(all[1].bytes.size() == 104);
  }
}

TEST_CASE("log: lost frames of a full disk are passed on and not counted twice") {
  LogDir dir;
  Writer w;
  dir.put("pxa.0", w.segment(0) + w.frame(Kind::out, "aaaa") + w.lost(1000));
  const std::string head = w.segment(1);
  dir.put("pxa.1", head + w.frame(Kind::out, "bb"));
  LogReader reader = open_log(dir);
  const auto all = read_all(reader);
  REQUIRE(all.size() == 3);
  CHECK(all[1].kind == Kind::lost);
  CHECK(all[1].lost_bytes == 1000);
  CHECK(joined(all) == "aaaabb");
}

TEST_CASE("log: a torn tail is not there yet") {
  LogDir dir;
  Writer w;
  const std::string head = w.segment(0) + w.frame(Kind::out, "whole");
  const std::string next = w.frame(Kind::out, "the rest of it");
  for (std::size_t cut = 0; cut < next.size(); ++cut) {
    dir.put("pxa.0", head + next.substr(0, cut));
    LogReader reader = open_log(dir);
    CHECK(joined(read_all(reader)) == "whole");
    dir.put("pxa.0", head + next);
    CHECK(joined(read_all(reader)) == "the rest of it");
  }
}

// What init does to the directory when a log rotates (init/log.cpp), step by step and byte by byte.
// A reader that came before and one that comes now both see the same whole prefix, with a mark
// where the oldest segment has gone; when the rest is there both go on to the same end.
TEST_CASE("log: a rotation that was cut at any byte and between any two steps") {
  Writer w;
  const std::string text[] = {"oldest ", "older ", "last before ", "first behind ", "end"};
  std::string first = w.segment(0);
  first += w.frame(Kind::out, text[0]);
  std::string second = w.segment(1);
  second += w.frame(Kind::out, text[1]) + w.frame(Kind::out, text[2]);
  const std::string head = w.segment(2);
  const std::string frame = w.frame(Kind::out, text[3]);
  const std::string after = w.frame(Kind::out, text[4]);
  const std::string third = head + frame;
  const std::string whole = text[0] + text[1] + text[2];
  // The segment is made, then written up to `cut`; then the oldest one goes.
  for (std::size_t cut = 0; cut <= third.size() + 1; ++cut) {
    const bool dropped = cut > third.size();
    INFO("cut at " << cut);
    LogDir dir;
    dir.put("pxa.0", first);
    dir.put("pxa.1", second);
    LogReader early = open_log(dir);
    CHECK(joined(read_all(early)) == whole);
    LogReader slow = open_log(dir);
    std::vector<LogEntry> slow_seen;
    REQUIRE(slow.read(slow_seen, 1));
    dir.put("pxa.2", third.substr(0, cut));
    if (dropped) {
      std::filesystem::remove(dir.file("pxa.0"));
    }
    const std::string behind = cut >= third.size() ? text[3] : "";
    LogReader late = open_log(dir);
    const auto now = read_all(late);
    CHECK(joined(now) == (dropped ? text[1] + text[2] : whole) + behind);
    CHECK((now.front().kind == Kind::lost) == dropped);
    if (dropped) {
      CHECK(now.front().lost_bytes == text[0].size());
    }
    CHECK(joined(read_all(early)) == behind);
    CHECK(early.cursor() == late.cursor());
    const auto rest = read_all(slow);
    CHECK(joined(slow_seen) + joined(rest) == whole + behind);
    CHECK(isolate::end_of_log(dir.fd(), "pxa").value_or(Cursor{}) == late.cursor());
    CHECK(isolate::last_output(dir.fd(), "pxa", 4).value_or("") ==
          (behind.empty() ? "ore " : "ind "));
    // The write that was under way is whole after all.
    dir.put("pxa.2", third + after);
    CHECK(joined(read_all(early)) == (behind.empty() ? text[3] : "") + text[4]);
    CHECK(joined(read_all(late)) == (behind.empty() ? text[3] : "") + text[4]);
  }
}

TEST_CASE("log: damage ends the read with what was good") {
  LogDir dir;
  Writer w;
  const std::string head = w.segment(0);
  const std::string first = w.frame(Kind::out, "first");
  const std::string second = w.frame(Kind::out, "second");
  const std::string all = head + first + second;
  for (std::size_t at = head.size() + first.size(); at < head.size() + first.size() + 48; ++at) {
    std::string bad = all;
    bad[at] = static_cast<char>(bad[at] ^ 0x40);
    dir.put("pxa.0", bad);
    LogReader reader = open_log(dir);
    CHECK(joined(read_all(reader)) == "first");
  }
  for (std::size_t at = 0; at < head.size(); ++at) {
    std::string bad = all;
    bad[at] = static_cast<char>(bad[at] ^ 0x01);
    dir.put("pxa.0", bad);
    LogReader reader = open_log(dir);
    CHECK(read_all(reader).empty());
  }
}

TEST_CASE("log: only plain files of the exec itself") {
  LogDir dir;
  Writer w;
  CHECK_FALSE(LogReader::open(dir.fd(), "pxa"));
  CHECK_FALSE(LogReader::open(dir.fd(), "../pxa"));
  CHECK_FALSE(LogReader::open(dir.fd(), ""));
  dir.put("real", w.segment(0) + w.frame(Kind::out, "secret"));
  REQUIRE(::symlink("real", dir.file("pxa.0").c_str()) == 0);
  CHECK_FALSE(LogReader::open(dir.fd(), "pxa"));
  std::filesystem::remove(dir.file("pxa.0"));
  REQUIRE(::mkfifo(dir.file("pxa.0").c_str(), 0600) == 0);
  CHECK_FALSE(LogReader::open(dir.fd(), "pxa"));  // and does not block
  std::filesystem::remove(dir.file("pxa.0"));
  Writer other;
  dir.put("pxa.0", other.segment(0, "pxb") + other.frame(Kind::out, "not ours"));
  auto reader = LogReader::open(dir.fd(), "pxa");
  REQUIRE(reader);
  CHECK(read_all(*reader).empty());
}

TEST_CASE("log: removal takes all segments and nothing else") {
  LogDir dir;
  for (const char* name : {"pxa.0", "pxa.12", "pxab.0", "pxa.x", "journal", "pxa.01"}) {
    dir.put(name, "x");
  }
  REQUIRE(isolate::remove_log(dir.fd(), "pxa"));
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(dir.file(""))) {
    left.push_back(entry.path().filename());
  }
  std::ranges::sort(left);
  CHECK(left == std::vector<std::string>{"journal", "pxa.01", "pxa.x", "pxab.0"});
  CHECK_FALSE(LogReader::open(dir.fd(), "pxa"));
}

TEST_CASE("log: cursors as text") {
  CHECK(isolate::to_string(Cursor{7, 512}) == "7.512");
  auto cursor = isolate::parse_cursor("7.512");
  REQUIRE(cursor);
  CHECK(*cursor == Cursor{7, 512});
  CHECK(isolate::parse_cursor("0").value() == Cursor{});
  for (const char* bad : {"", "7", "7.", ".5", "0.1", "-1.0", "7.5x", " 7.5", "7.99999999999",
                          "99999999999999999999.0", "1.65537"}) {
    CHECK_FALSE(isolate::parse_cursor(bad));
  }
}

TEST_CASE("log: the last output is found from the newest segments alone") {
  LogDir dir;
  Writer w;
  CHECK(isolate::last_output(dir.fd(), "pxa", 100).error().code == Code::not_found);
  CHECK(isolate::last_output(dir.fd(), "../x", 100).error().code == Code::not_found);
  dir.put("pxa.0", w.segment(0) + w.frame(Kind::out, "first\n") + w.frame(Kind::err, "second\n"));
  CHECK(isolate::last_output(dir.fd(), "pxa", 100).value() == "first\nsecond\n");
  CHECK(isolate::last_output(dir.fd(), "pxa", 7).value() == "second\n");
  CHECK(isolate::last_output(dir.fd(), "pxa", 3).value() == "nd\n");
  // The newest is short: the one before it is read too, older ones are not even opened.
  dir.put("pxa.1", w.segment(1) + w.frame(Kind::out, "third\n"));
  dir.put("pxa.2", w.segment(2) + w.frame(Kind::tty, "fourth\n"));
  CHECK(isolate::last_output(dir.fd(), "pxa", 100).value() == "third\nfourth\n");
  // Long enough by itself.
  dir.put("pxa.3", w.segment(3) + w.frame(Kind::out, std::string(300, 'x')));
  CHECK(isolate::last_output(dir.fd(), "pxa", 4).value() == "xxxx");
  // The first ones are gone, as when the log's cap was reached.
  std::filesystem::remove(dir.file("pxa.0"));
  std::filesystem::remove(dir.file("pxa.1"));
  CHECK(isolate::last_output(dir.fd(), "pxa", 304).value() == "rth\n" + std::string(300, 'x'));
}

TEST_CASE("journal: records, a torn tail, damage") {
  LogDir dir;
  std::uint64_t offset = 0;
  auto chunk = isolate::read_journal(dir.fd(), offset);
  REQUIRE(chunk);
  CHECK(chunk->records.empty());
  const std::string a = journal_record(wire::Record::started, "pxa");
  const std::string b = journal_record(wire::Record::exit, "pxb");
  dir.put("journal", a + b.substr(0, 100));
  chunk = isolate::read_journal(dir.fd(), offset);
  REQUIRE(chunk);
  REQUIRE(chunk->records.size() == 1);
  CHECK(std::string(chunk->records[0].px) == "pxa");
  CHECK_FALSE(chunk->damaged);
  CHECK(offset == sizeof(wire::JournalRecord));
  dir.put("journal", a + b);
  chunk = isolate::read_journal(dir.fd(), offset);
  REQUIRE(chunk);
  REQUIRE(chunk->records.size() == 1);
  CHECK(std::string(chunk->records[0].px) == "pxb");
  CHECK(offset == 2 * sizeof(wire::JournalRecord));
  std::string bad = a + b + a;
  char& inside = bad[sizeof(wire::JournalRecord) + 6];
  inside = static_cast<char>(inside ^ 1);
  dir.put("journal", bad);
  offset = 0;
  chunk = isolate::read_journal(dir.fd(), offset);
  REQUIRE(chunk);
  CHECK(chunk->records.size() == 1);
  CHECK(chunk->damaged);
  CHECK(offset == sizeof(wire::JournalRecord));
}

TEST_CASE("log: forged content never harms the reader") {
  // Good checksums around random lengths, kinds and numbers: what a taken-over init could write.
  std::mt19937 random(99);
  for (int round = 0; round < 400; ++round) {
    std::string bytes(random() % 600, '\0');
    for (char& c : bytes) {
      c = static_cast<char>(random());
    }
    fuzz::log_reader_input(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  }
  CHECK(true);
}
