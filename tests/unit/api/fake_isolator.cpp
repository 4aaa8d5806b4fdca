#include "fake_isolator.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>

#include "base/clock.h"
#include "isolate/wire/crc32.h"

namespace talon::test {

namespace {

UniqueFd make_eventfd() { return UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

void ring(int fd) {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(fd, &one, sizeof one));
}

template <class T>
void seal(T& record) {
  record.crc = 0;
  record.crc = wire::crc32c(&record, sizeof record);
}

}  // namespace

FakeSandbox::FakeSandbox(std::shared_ptr<FakeWorld> world, isolate::Identity identity, DirFd logs)
    : world_(std::move(world)),
      identity_(std::move(identity)),
      logs_(std::move(logs)),
      init_(make_eventfd()),
      pid_(make_eventfd()),
      event_(make_eventfd()) {
  steps_.push_back({.step = "fake", .ns = 1000});
}

void FakeSandbox::post(isolate::Event event) {
  queue_.push_back(std::move(event));
  ring(init_.get());
}

void FakeSandbox::append(const std::string& px, wire::Kind kind, std::string_view payload) {
  Log& log = written_[px];
  const std::string name = px + ".0";
  UniqueFd file(
      ::openat(logs_.get(), name.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  std::string bytes;
  if (log.seq == 0) {
    wire::SegmentHeader header{};
    header.magic = wire::kSegmentMagic;
    header.version = wire::kVersion;
    header.first_seq = 1;
    px.copy(header.px, sizeof header.px - 1);
    seal(header);
    bytes.append(reinterpret_cast<const char*>(&header), sizeof header);
  }
  wire::LogFrame frame{};
  frame.magic = wire::kFrameMagic;
  frame.seq = ++log.seq;
  frame.offset = log.offset;
  frame.wall_ns = static_cast<std::uint64_t>(system_clock().wall_ms()) * 1'000'000;
  frame.length = static_cast<std::uint32_t>(payload.size());
  frame.kind = static_cast<std::uint8_t>(kind);
  seal(frame);
  bytes.append(reinterpret_cast<const char*>(&frame), sizeof frame);
  bytes.append(payload);
  if (kind == wire::Kind::out || kind == wire::Kind::err) {
    log.offset += payload.size();
  }
  static_cast<void>(!::write(file.get(), bytes.data(), bytes.size()));
}

void FakeSandbox::journal(wire::Record type, const std::string& px, std::uint64_t value,
                          const wire::ExitInfo& info) {
  wire::JournalRecord record{};
  record.magic = wire::kJournalMagic;
  record.type = static_cast<std::uint16_t>(type);
  record.size = sizeof record;
  record.wall_ns = static_cast<std::uint64_t>(system_clock().wall_ms()) * 1'000'000;
  px.copy(record.px, sizeof record.px - 1);
  record.value = value;
  record.info = info;
  seal(record);
  UniqueFd file(::openat(logs_.get(), "journal", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  static_cast<void>(!::write(file.get(), &record, sizeof record));
}

void FakeSandbox::finish(const std::string& px, int code, int signal) {
  wire::ExitInfo info{};
  info.code = signal != 0 ? -1 : code;
  info.signal = signal;
  info.flags = signal != 0 ? static_cast<std::uint32_t>(wire::kKilled) : 0u;
  info.duration_ns = 2'500'000;
  info.out_bytes = written_[px].offset;
  append(px, wire::Kind::exit, {reinterpret_cast<const char*>(&info), sizeof info});
  append(px, wire::Kind::end, "");
  journal(wire::Record::exit, px, 0, info);
  ring(event_.get());
  post(isolate::event::Exited{.px = px, .info = info});
  post(isolate::event::Ended{.px = px});
}

Result<std::uint64_t> FakeSandbox::exec(const isolate::ExecSpec& spec) {
  {
    const std::lock_guard lock(world_->mutex);
    world_->execs.push_back(spec);
  }
  const std::uint64_t request = next_request_++;
  if (spec.argv[0] == "baduser") {
    post(isolate::event::ExecFailed{
        .request = request, .px = spec.id, .error = ENOENT, .stage = wire::Stage::user});
    return request;
  }
  journal(wire::Record::started, spec.id, 7, {});
  post(isolate::event::Started{.request = request, .px = spec.id, .pid = 7});
  std::string mode;
  int code = 0;
  bool hang = false;
  for (const std::string& word : spec.argv) {
    if (word == "out" || word == "err" || word == "exit") {
      mode = word;
    } else if (word == "hang") {
      hang = true;
    } else if (mode == "out") {
      append(spec.id, wire::Kind::out, word);
    } else if (mode == "err") {
      append(spec.id, wire::Kind::err, word);
    } else if (mode == "exit") {
      code = std::stoi(word);
    }
  }
  ring(event_.get());
  if (hang) {
    hanging_[spec.id] = {};
    if (!written_.contains(spec.id)) {
      append(spec.id, wire::Kind::out, "");
    }
  } else {
    finish(spec.id, code, 0);
  }
  return request;
}

Result<std::uint64_t> FakeSandbox::send_stdin(std::string_view px, std::uint64_t offset,
                                              std::string_view bytes, bool close) {
  const std::uint64_t request = next_request_++;
  append(std::string{px}, wire::Kind::out, bytes);
  ring(event_.get());
  post(isolate::event::StdinAck{.request = request,
                                .px = std::string{px},
                                .accepted = offset + bytes.size(),
                                .error = 0,
                                .closed = close});
  if (close) {
    hanging_.erase(std::string{px});
    finish(std::string{px}, 0, 0);
  }
  return request;
}

Result<std::uint64_t> FakeSandbox::signal(std::string_view px, int number, wire::Scope) {
  const std::uint64_t request = next_request_++;
  const bool known = hanging_.erase(std::string{px}) != 0;
  post(isolate::event::Done{.request = request, .error = known ? 0 : ESRCH});
  if (known) {
    finish(std::string{px}, 0, number);
  }
  return request;
}

Result<std::uint64_t> FakeSandbox::end_exec(std::string_view px, std::chrono::milliseconds) {
  return signal(px, 15, wire::Scope::all);
}

Result<std::uint64_t> FakeSandbox::resize(std::string_view, std::uint16_t, std::uint16_t) {
  return next_request_++;
}

Result<std::uint64_t> FakeSandbox::mark(bool paused) {
  const std::lock_guard lock(world_->mutex);
  if (paused) {
    world_->marked.insert(identity_.id);
  } else {
    world_->marked.erase(identity_.id);
  }
  post(isolate::event::Done{.request = next_request_, .error = 0});
  return next_request_++;
}

Result<> FakeSandbox::freeze(bool frozen, std::chrono::milliseconds) {
  const std::lock_guard lock(world_->mutex);
  if (frozen && world_->marked.count(identity_.id) == 0) {
    return fail(Code::internal, "frozen before init was told");
  }
  if (frozen) {
    world_->frozen.insert(identity_.id);
  } else {
    world_->frozen.erase(identity_.id);
  }
  return {};
}

bool FakeSandbox::paused() const {
  const std::lock_guard lock(world_->mutex);
  return world_->marked.contains(identity_.id) || world_->frozen.contains(identity_.id);
}

Result<std::optional<isolate::Event>> FakeSandbox::receive() {
  if (queue_.empty()) {
    std::uint64_t count = 0;
    static_cast<void>(!::read(init_.get(), &count, sizeof count));
    return std::nullopt;
  }
  isolate::Event event = std::move(queue_.front());
  queue_.pop_front();
  return event;
}

void FakeSandbox::die(std::optional<int> status) {
  init_status_ = status;
  const std::lock_guard lock(world_->mutex);
  world_->alive.erase(identity_.id);
  ring(pid_.get());
}

Result<> FakeSandbox::kill(std::chrono::milliseconds) {
  die(init_status_);
  return {};
}

Result<> FakeSandbox::remove() { return {}; }

Result<isolate::CgroupStats> FakeSandbox::stats() const {
  isolate::CgroupStats stats;
  stats.cpu_usage_us = 42;
  stats.processes = hanging_.size();
  return stats;
}

FakeIsolator::FakeIsolator(std::shared_ptr<FakeWorld> world, std::string data_dir)
    : world_(std::move(world)), data_dir_(std::move(data_dir)) {
  facts.boot_id = "boot-1";
  facts.kernel = "6.12-fake";
}

Result<> FakeIsolator::check_limits(const isolate::Limits& limits) const {
  if (limits.cpu_cores) {
    auto error = fail(Code::unenforceable, "the cpu controller is not there");
    error.error().field = "resources.cpu";
    return error;
  }
  return {};
}

Result<std::unique_ptr<isolate::Sandbox>> FakeIsolator::create(const isolate::SandboxSpec& spec,
                                                               const isolate::SandboxDirs& dirs) {
  if (during_create) {
    during_create();
  }
  if (fail_create) {
    return std::unexpected(*fail_create);
  }
  TALON_TRY(logs, open_at(dirs.root->get(), "logs", O_RDONLY | O_DIRECTORY));
  isolate::Identity identity{.id = spec.id,
                             .host_pid = 1,
                             .start_time = 1,
                             .cgroup = "",
                             .boot_id = facts.boot_id,
                             .nonce = "00",
                             .lease = 0};
  auto sandbox = std::make_unique<FakeSandbox>(world_, identity, std::move(logs));
  const std::lock_guard lock(world_->mutex);
  world_->alive.insert(spec.id);
  world_->created.push_back(spec);
  live[spec.id] = sandbox.get();
  return sandbox;
}

Result<std::unique_ptr<isolate::Sandbox>> FakeIsolator::adopt(const isolate::Identity& identity) {
  const std::lock_guard lock(world_->mutex);
  if (!world_->alive.contains(identity.id)) {
    return fail(Code::not_found, "its process is gone");
  }
  TALON_TRY(logs, open_at(AT_FDCWD, data_dir_ + "/sandboxes/" + identity.id + "/logs",
                          O_RDONLY | O_DIRECTORY));
  auto sandbox = std::make_unique<FakeSandbox>(world_, identity, std::move(logs));
  live[identity.id] = sandbox.get();
  return sandbox;
}

std::vector<std::string> FakeIsolator::sweep(const std::vector<std::string>& keep) {
  kept = keep;
  return {};
}

}  // namespace talon::test
