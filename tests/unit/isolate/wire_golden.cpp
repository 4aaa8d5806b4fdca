// One golden file per struct that crosses a process boundary or lies on disk: an older init keeps
// running under a newer talond, so the bytes may not change without a new version. The fields are
// filled by hand with values that differ, then compared byte by byte.
// TALON_UPDATE_GOLDEN=1 rewrites the files; look at the diff before you keep it.

#include <catch2/catch.hpp>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <type_traits>

#include "isolate/wire/crc32.h"
#include "isolate/wire/frames.h"
#include "isolate/wire/log_format.h"
#include "isolate/wire/plan_format.h"

using namespace talon;

namespace {

std::string hex(const void* data, std::size_t size) {
  static const char digits[] = "0123456789abcdef";
  std::string out;
  for (std::size_t i = 0; i < size; ++i) {
    const auto byte = static_cast<const unsigned char*>(data)[i];
    out += digits[byte >> 4];
    out += digits[byte & 15];
    out += i % 32 == 31 || i + 1 == size ? "\n" : (i % 4 == 3 ? " " : "");
  }
  return out;
}

template <class T>
void golden(const std::string& name, const T& value) {
  static_assert(std::has_unique_object_representations_v<T>, "a padding hole");
  static_assert(std::is_trivially_copyable_v<T>);
  const std::string path =
      std::string(TALON_SOURCE_DIR) + "/tests/unit/isolate/golden/" + name + ".hex";
  const std::string text = hex(&value, sizeof value);
  if (std::getenv("TALON_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path) << text;
  }
  std::ifstream file(path);
  const std::string want((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  INFO(path);
  CHECK(text == want);
}

template <class T>
T with_px() {
  T value{};
  std::memcpy(value.px, "px0123456789abcdefghij", 22);
  return value;
}

wire::ExitInfo exit_info() {
  return {.code = -1,
          .signal = 9,
          .flags = wire::kTimedOut | wire::kLostOutput,
          .exec_errno = 13,
          .user_us = 101,
          .system_us = 102,
          .max_rss_kb = 103,
          .peak_bytes = 104,
          .out_bytes = 105,
          .err_bytes = 106,
          .duration_ns = 107,
          .throttled = 108,
          .throttled_us = 109,
          .biggest_bytes = 110,
          .biggest_name = "python3"};
}

}  // namespace

TEST_CASE("wire: frames keep their bytes") {
  golden("frame_header", wire::Header{wire::kVersion, 10, 168, 0x1122334455667788});
  wire::Ready ready{};
  ready.version = 1;
  ready.step_count = 2;
  for (std::uint8_t i = 0; i < 16; ++i) {
    ready.nonce[i] = i;
  }
  ready.step_ns[0] = 11;
  ready.step_ns[wire::kMaxSteps - 1] = 12;
  ready.start_ns = 13;
  golden("frame_ready", ready);
  golden("frame_failed", wire::Failed{3, 9, 22, 0});
  wire::Hello hello{};
  hello.nonce[15] = 0xff;
  golden("frame_hello", hello);
  golden("frame_hello_ok", wire::HelloOk{1, 2, 1, 0});
  auto exec = with_px<wire::Exec>();
  exec.flags = wire::kExecTty | wire::kExecUnlimitedLog;
  exec.argc = 1;
  exec.envc = 2;
  exec.argv_off = 3;
  exec.env_off = 4;
  exec.cwd_off = 5;
  exec.user_off = 6;
  exec.cols = 80;
  exec.rows = 24;
  exec.stdin_off = 7;
  exec.stdin_len = 8;
  exec.timeout_ms = 9;
  exec.grace_ms = 10;
  exec.max_output = 11;
  exec.log_cap = 12;
  exec.memory_max = 13;
  exec.pids_max = 14;
  exec.cpu_quota_us = 15;
  exec.cpu_period_us = 16;
  golden("frame_exec", exec);
  auto started = with_px<wire::Started>();
  started.pid = 42;
  golden("frame_started", started);
  auto failed = with_px<wire::ExecFailed>();
  failed.error = 2;
  failed.stage = static_cast<std::uint32_t>(wire::Stage::cwd);
  golden("frame_exec_failed", failed);
  auto exited = with_px<wire::Exited>();
  exited.info = exit_info();
  golden("frame_exited", exited);
  golden("frame_ended", with_px<wire::Ended>());
  auto data = with_px<wire::StdinData>();
  data.offset = 1ull << 40;
  data.flags = wire::kStdinClose;
  data.length = 5;
  golden("frame_stdin_data", data);
  auto ack = with_px<wire::StdinAck>();
  ack.accepted = 77;
  ack.error = 32;
  ack.closed = 1;
  golden("frame_stdin_ack", ack);
  auto signal = with_px<wire::Signal>();
  signal.number = 15;
  signal.scope = static_cast<std::uint32_t>(wire::Scope::all);
  golden("frame_signal", signal);
  auto end = with_px<wire::EndExec>();
  end.grace_ms = 2500;
  golden("frame_end_exec", end);
  auto resize = with_px<wire::Resize>();
  resize.cols = 132;
  resize.rows = 43;
  golden("frame_resize", resize);
  auto flow = with_px<wire::Flow>();
  flow.limit = 0x0102030405060708;
  golden("frame_flow", flow);
  golden("frame_mark", wire::Mark{1, 0});
  golden("frame_done", wire::Done{3, 0});
}

TEST_CASE("wire: log and journal keep their bytes") {
  wire::SegmentHeader segment{};
  segment.magic = wire::kSegmentMagic;
  segment.version = 1;
  segment.index = 2;
  segment.first_seq = 3;
  segment.offset = 4;
  std::memcpy(segment.px, "px1", 3);
  segment.cols = 80;
  segment.rows = 24;
  segment.crc = wire::crc32c(&segment, sizeof segment);
  golden("log_segment", segment);
  wire::LogFrame frame{};
  frame.magic = wire::kFrameMagic;
  frame.seq = 1;
  frame.offset = 2;
  frame.mono_ns = 3;
  frame.wall_ns = 4;
  frame.length = 5;
  frame.kind = static_cast<std::uint8_t>(wire::Kind::err);
  frame.flags = wire::kFrameLate;
  frame.crc = wire::crc32c(&frame, sizeof frame);
  golden("log_frame", frame);
  golden("log_resize", wire::ResizePayload{100, 30});
  golden("log_lost", wire::LostPayload{123456789});
  auto record = with_px<wire::JournalRecord>();
  record.magic = wire::kJournalMagic;
  record.type = static_cast<std::uint16_t>(wire::Record::exit);
  record.size = sizeof record;
  record.mono_ns = 5;
  record.wall_ns = 6;
  record.value = 7;
  record.info = exit_info();
  record.crc = wire::crc32c(&record, sizeof record);
  golden("journal_record", record);
}

TEST_CASE("wire: plans keep their bytes") {
  wire::PlanHeader plan{};
  plan.magic = wire::kPlanMagic;
  plan.version = 1;
  plan.size = 2;
  plan.step_count = 3;
  plan.flags = wire::kDieWithDaemon;
  plan.live_execs = 256;
  plan.workload_caps = 0xcb;
  plan.init_caps = 0x1eb;
  plan.log_budget = 1ull << 30;
  plan.nonce[0] = 1;
  std::memcpy(plan.default_cwd, "/workspace", 10);
  golden("plan_header", plan);
  golden("plan_step",
         wire::PlanStep{static_cast<std::uint32_t>(wire::Op::hostname), 12, 1, 2, 3, 4});
}

TEST_CASE("wire: crc32c is Castagnoli's") {
  // RFC 3720 B.4: 32 zero bytes, 32 bytes of ones, 0..31.
  unsigned char bytes[32] = {};
  CHECK(wire::crc32c(bytes, 32) == 0x8a9136aa);
  std::memset(bytes, 0xff, 32);
  CHECK(wire::crc32c(bytes, 32) == 0x62a8ab43);
  for (unsigned char i = 0; i < 32; ++i) {
    bytes[i] = i;
  }
  CHECK(wire::crc32c(bytes, 32) == 0x46dd794e);
  CHECK(wire::crc32c("123456789", 9) == 0xe3069283);
}
