#include "server/api/recording.h"

#include <algorithm>
#include <cstdio>

#include "server/api/attach.h"
#include "server/api/pty.h"
#include "server/api/text.h"

namespace talon::server::api {

namespace {

// Above it the answer is handed to the client.
constexpr std::size_t kPiece = 64 * 1024;
constexpr std::string_view kReset = "\033c";  // RIS

std::string size_text(wire::ResizePayload size) {
  return std::to_string(size.cols) + "x" + std::to_string(size.rows);
}

}  // namespace

Asciicast::Asciicast(std::string& out, wire::ResizePayload size, std::int64_t started_ms)
    : started_ms_(started_ms) {
  out += "{\"version\":2,\"width\":" + std::to_string(size.cols) +
         ",\"height\":" + std::to_string(size.rows) +
         ",\"timestamp\":" + std::to_string(started_ms / 1000) + "}\n";
}

void Asciicast::event(std::string& out, char code, std::string_view text) {
  if (text.empty()) {
    return;
  }
  char time[32];
  const int n = std::snprintf(time, sizeof time, "[%.6f,\"%c\",\"", time_, code);
  out.append(time, static_cast<std::size_t>(n));
  append_json_escaped(out, text);
  out += "\"]\n";
}

void Asciicast::add(std::string& out, const isolate::LogEntry& entry) {
  const auto mono = static_cast<std::int64_t>(entry.mono_ns);
  if (!begun_ && mono != 0) {
    begun_ = true;
    const std::int64_t wall = static_cast<std::int64_t>(entry.wall_ns);
    base_ns_ = mono - std::max<std::int64_t>(wall - started_ms_ * 1'000'000, 0);
  }
  if (mono != 0) {  // a gap has no time
    time_ = std::max(time_, static_cast<double>(mono - base_ns_) * 1e-9);
  }
  std::string text;
  switch (entry.kind) {
    case wire::Kind::tty: {
      std::string_view bytes = entry.bytes;
      if (std::exchange(torn_, false)) {
        bytes.remove_prefix(torn_prefix(bytes));
      }
      output_.feed(text, bytes);
      event(out, 'o', text);
      return;
    }
    case wire::Kind::input:
      input_.feed(text, entry.typed);
      event(out, 'i', text);
      return;
    case wire::Kind::resize: event(out, 'r', size_text(entry.size)); return;
    case wire::Kind::lost:
      torn_ = true;
      output_.finish(text);
      event(out, 'o', text);
      if (entry.size.cols != 0) {
        event(out, 'r', size_text(entry.size));
      }
      event(out, 'o', kReset);
      return;
    default: return;
  }
}

void Asciicast::finish(std::string& out) {
  std::string text;
  output_.finish(text);
  event(out, 'o', text);
  text.clear();
  input_.finish(text);
  event(out, 'i', text);
}

Task<http::Response> pty_recording(Api& api, Call& call) {
  auto looked = co_await find_pty(api, call);
  TALON_CO_TRY(pty, std::move(looked));
  if (pty.terminal.record == node::Recording::none) {
    co_return fail(Code::forbidden, "this terminal was made with record: false");
  }
  node::LogStream log = api.node().log(pty.found, {}, node::Follow::none);
  auto opened = co_await log.open();
  if (!opened) {
    co_return std::unexpected(std::move(opened.error()));
  }
  // One entry at first: the size is known with it.
  auto first = co_await log.next(Millis{0}, 1);
  TALON_CO_TRY(entries, std::move(first));
  auto started = co_await api.start_stream(call, "application/x-asciicast");
  if (!started) {
    co_return std::unexpected(std::move(started.error()));
  }
  std::string out;
  Asciicast cast(out, log.size(), pty.found.row.started_ms);
  Standing standing(api.auth(), *call.request);
  while (!entries.empty()) {
    for (const isolate::LogEntry& entry : entries) {
      cast.add(out, entry);
    }
    if (out.size() >= kPiece) {
      auto written = co_await call.out->write(out);
      if (!written) {
        co_return std::unexpected(std::move(written.error()));
      }
      out.clear();
    }
    auto good = co_await standing.check();
    if (!good) {
      co_return std::unexpected(std::move(good.error()));
    }
    auto read = co_await log.next(Millis{0});
    TALON_CO_TRY(more, std::move(read));
    entries = std::move(more);
  }
  cast.finish(out);
  auto written = co_await call.out->write(out);
  if (!written) {
    co_return std::unexpected(std::move(written.error()));
  }
  auto finished = co_await call.out->finish();
  if (!finished) {
    co_return std::unexpected(std::move(finished.error()));
  }
  http::Response done;
  done.status = 0;
  co_return done;
}

}  // namespace talon::server::api
