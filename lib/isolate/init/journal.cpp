// The sandbox's journal: fixed-size records, appended before the frame that tells talond.

#include "isolate/init/state.h"
#include "isolate/wire/crc32.h"

namespace talon::init {

void journal_open() {
  struct stat st = {};
  if (g.journal < 0 || sys(__NR_fstat, g.journal, &st) < 0) {
    return;
  }
  // An earlier init may have died in the middle of a record: cut its torn end.
  auto size = (uint64_t)st.st_size;
  g.journal_size = size - size % sizeof(wire::JournalRecord);
  if (g.journal_size != size) {
    sys(__NR_ftruncate, g.journal, g.journal_size);
  }
}

bool journal_write(wire::Record type, const char* px, uint64_t value, const wire::ExitInfo* info) {
  if (g.journal < 0) {
    return true;
  }
  wire::JournalRecord record = {};
  record.magic = wire::kJournalMagic;
  record.type = (uint16_t)type;
  record.size = sizeof record;
  take_times(record.mono_ns, record.wall_ns);
  Text(record.px, sizeof record.px).add(px);
  record.value = value;
  if (info != nullptr) {
    record.info = *info;
  }
  record.crc = wire::crc32c(&record, sizeof record);
  long n = write(g.journal, &record, sizeof record);
  if (n == (long)sizeof record) {
    g.journal_size += sizeof record;
    return true;
  }
  if (n > 0) {
    sys(__NR_ftruncate, g.journal, g.journal_size);
  }
  return false;
}

}  // namespace talon::init
