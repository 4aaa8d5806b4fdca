#include "server/node/log_stream.h"

#include <optional>
#include <utility>

namespace talon::server::node {

struct LogStream::State {
  DirFd logs;
  std::optional<isolate::LogReader> reader;
};

LogStream::LogStream(Source source, isolate::Cursor from, Follow follow)
    : source_(std::move(source)),
      follow_(follow),
      state_(std::make_shared<State>()),
      cursor_(from) {}

LogStream::~LogStream() = default;
LogStream::LogStream(LogStream&&) noexcept = default;

namespace {

Result<> open_reader(const DataDir& data, const std::string& id, const std::string& px,
                     isolate::Cursor from, DirFd& logs, std::optional<isolate::LogReader>& reader) {
  if (reader) {
    return {};
  }
  TALON_TRY(directory, data.open_logs(id));
  logs = std::move(directory);
  TALON_TRY(opened, isolate::LogReader::open(logs.get(), px, from));
  reader.emplace(std::move(opened));
  return {};
}

}  // namespace

Task<> LogStream::open() {
  std::function<Result<>()> job = [state = state_, data = source_.data, id = source_.actor->id(),
                                   px = source_.px, from = cursor_]() -> Result<> {
    return open_reader(*data, id, px, from, state->logs, state->reader);
  };
  auto opened = co_await source_.offload->run<void>(std::move(job));
  co_return opened;
}

Task<> LogStream::seek_end() {
  std::function<Result<isolate::Cursor>()> job = [data = source_.data, id = source_.actor->id(),
                                                  px = source_.px]() -> Result<isolate::Cursor> {
    TALON_TRY(logs, data->open_logs(id));
    return isolate::end_of_log(logs.get(), px);
  };
  auto end = co_await source_.offload->run<isolate::Cursor>(std::move(job));
  TALON_CO_TRY(cursor, std::move(end));
  cursor_ = cursor;
  co_return Result<>{};
}

void LogStream::poke() {
  poked_ = true;
  source_.actor->grew.notify_all();
}

wire::ResizePayload LogStream::size() const {
  return state_->reader ? state_->reader->size() : wire::ResizePayload{};
}

// Nothing more can come: asked while the reader has caught up.
bool LogStream::over() const {
  const ExecPtr& exec = source_.exec;
  if (source_.actor->draining) {
    return true;
  }
  switch (follow_) {
    case Follow::none: return true;
    case Follow::until_exit: return exit_seen_ || exec == nullptr || exec->exited;
    case Follow::all: return exec == nullptr || exec->ended;
  }
  return true;
}

Task<std::vector<isolate::LogEntry>> LogStream::next(Millis idle, std::size_t max_bytes) {
  idle_passed_ = false;
  std::vector<isolate::LogEntry> entries;
  if (exit_seen_ && follow_ == Follow::until_exit) {
    co_return entries;
  }
  // One deadline for the whole call: other processes of the sandbox wake this one too, and must
  // not keep it from its heartbeat, by which a client that went away is noticed.
  const std::int64_t until_ns = system_clock().mono_ns() + idle.count() * 1'000'000;
  while (true) {
    // Both taken before the read: what is written after it changes the version.
    const std::uint64_t seen = source_.actor->grew.version();
    const bool last = over();
    std::function<Result<std::vector<isolate::LogEntry>>()> job =
        [state = state_, data = source_.data, id = source_.actor->id(), px = source_.px,
         from = cursor_, max_bytes]() -> Result<std::vector<isolate::LogEntry>> {
      TALON_CHECK(open_reader(*data, id, px, from, state->logs, state->reader));
      std::vector<isolate::LogEntry> out;
      TALON_TRY(more, state->reader->read(out, max_bytes));
      static_cast<void>(more);
      return out;
    };
    auto got = co_await source_.offload->run<std::vector<isolate::LogEntry>>(std::move(job));
    TALON_CO_TRY(read, std::move(got));
    if (!read.empty()) {
      entries = std::move(read);
      if (follow_ == Follow::until_exit) {
        for (std::size_t i = 0; i < entries.size(); ++i) {
          if (entries[i].kind == wire::Kind::exit) {
            exit_seen_ = true;
            entries.resize(i + 1);
            break;
          }
        }
      }
      cursor_ = entries.back().after;
      co_return entries;
    }
    if (last) {
      co_return entries;
    }
    if (std::exchange(poked_, false)) {
      idle_passed_ = true;
      co_return entries;
    }
    const std::int64_t left_ms = (until_ns - system_clock().mono_ns()) / 1'000'000;
    if (left_ms > 0) {
      auto woken = co_await source_.actor->grew.wait(seen, Millis{left_ms});
      if (woken) {
        continue;
      }
      if (woken.error().code != Code::timeout) {
        co_return std::unexpected(std::move(woken.error()));
      }
    }
    idle_passed_ = true;
    co_return entries;
  }
}

}  // namespace talon::server::node
