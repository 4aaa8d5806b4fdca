#pragma once
// One input for LogReader and the journal reader: bytes become the segments of a log, with good
// checksums where the first byte says so, because a forger can compute them. Run by the fuzz
// target and, over random bytes, by the unit tests.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "isolate/log_reader.h"
#include "isolate/wire/crc32.h"

namespace talon::fuzz {

inline void put_file(int dir, const char* name, const std::string& bytes) {
  UniqueFd fd(::openat(dir, name, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600));
  (void)write_all(fd.get(), bytes);
}

template <class T>
void sign(std::string& bytes, std::size_t at, std::uint32_t magic) {
  if (at + sizeof(T) > bytes.size()) {
    return;
  }
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  value.magic = magic;
  value.crc = 0;
  value.crc = wire::crc32c(&value, sizeof value);
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

// Makes a chain of valid headers out of raw bytes; lengths are whatever the bytes say.
inline void sign_segment(std::string& bytes, std::uint32_t index) {
  if (bytes.size() < sizeof(wire::SegmentHeader)) {
    return;
  }
  wire::SegmentHeader head;
  std::memcpy(&head, bytes.data(), sizeof head);
  head.version = wire::kVersion;
  head.index = index;
  head.first_seq = head.first_seq % 4 + 1;
  std::memset(head.px, 0, sizeof head.px);
  std::memcpy(head.px, "pxa", 3);
  std::memcpy(bytes.data(), &head, sizeof head);
  sign<wire::SegmentHeader>(bytes, 0, wire::kSegmentMagic);
  std::size_t at = sizeof head;
  for (std::uint64_t seq = head.first_seq; at + sizeof(wire::LogFrame) <= bytes.size(); ++seq) {
    wire::LogFrame frame;
    std::memcpy(&frame, bytes.data() + at, sizeof frame);
    frame.seq = frame.seq % 7 == 6 ? frame.seq : seq;
    frame.kind = frame.kind % 10;
    frame.length = frame.length % 5 == 4 ? frame.length : frame.length % 100;
    std::memcpy(bytes.data() + at, &frame, sizeof frame);
    sign<wire::LogFrame>(bytes, at, wire::kFrameMagic);
    at += sizeof frame + frame.length % 100;
  }
}

inline void log_reader_input(const std::uint8_t* data, std::size_t size) {
  static const std::string dir = [] {
    char name[] = "/tmp/talon-fuzz-log-XXXXXX";
    const std::string made = ::mkdtemp(name) != nullptr ? name : "/tmp";
    static const struct Cleaner {
      std::string path;
      ~Cleaner() { std::filesystem::remove_all(path); }
    } cleaner{made};
    return made;
  }();
  static const UniqueFd logs(::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (size < 4) {
    return;
  }
  std::string bytes(reinterpret_cast<const char*>(data) + 3, size - 3);
  const std::size_t cut = bytes.size() * data[1] / 256;
  std::string first = bytes.substr(0, cut);
  std::string second = bytes.substr(cut);
  std::string journal = bytes;
  if ((data[0] & 1) != 0) {
    sign_segment(first, 0);
    sign_segment(second, 1);
    sign<wire::JournalRecord>(journal, 0, wire::kJournalMagic);
  }
  put_file(logs.get(), "pxa.0", first);
  put_file(logs.get(), "pxa.1", second);
  put_file(logs.get(), "journal", journal);
  if ((data[0] & 2) != 0) {
    ::unlinkat(logs.get(), "pxa.0", 0);
  }
  const isolate::Cursor from{static_cast<std::uint64_t>(data[2] % 8) + 1, data[2]};
  auto reader = isolate::LogReader::open(logs.get(), "pxa", from);
  std::size_t total = 0;
  for (int i = 0; reader && i < 1000; ++i) {
    std::vector<isolate::LogEntry> entries;
    auto more = reader->read(entries, 100);
    for (const auto& entry : entries) {
      total += entry.bytes.size();
    }
    if (!more || !*more) {
      break;
    }
  }
  if (total > size) {
    std::abort();  // more came out than went in
  }
  (void)isolate::end_of_log(logs.get(), "pxa");
  std::uint64_t offset = 0;
  (void)isolate::read_journal(logs.get(), offset);
  if (offset > journal.size()) {
    std::abort();
  }
}

}  // namespace talon::fuzz
