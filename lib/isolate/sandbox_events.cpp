// Frames from init, which a workload may have got hold of: every byte is checked.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "isolate/sandbox_impl.h"

namespace talon::isolate {

namespace {

std::unexpected<Error> garbage(std::string_view what) {
  return fail(Code::io, fmt::format("init sent an invalid frame: {}", what));
}

template <class T>
Result<T> payload_as(std::span<const std::byte> payload) {
  if (payload.size() != sizeof(T)) {
    return garbage("wrong length");
  }
  T out;
  std::memcpy(&out, payload.data(), sizeof(T));
  return out;
}

Result<std::string> exec_id(const char (&px)[wire::kIdSize]) {
  const std::string_view text{px, strnlen(px, sizeof(px))};
  if (text.empty() || text.size() == sizeof(px) || !std::ranges::all_of(text, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
      })) {
    return garbage("exec id");
  }
  return std::string{text};
}

bool is_errno(int error) { return error >= 0 && error < 4096; }

Result<Event> exited(std::span<const std::byte> payload) {
  TALON_TRY(frame, payload_as<wire::Exited>(payload));
  TALON_TRY(px, exec_id(frame.px));
  const wire::ExitInfo& info = frame.info;
  const bool by_signal = info.code == -1 && info.signal >= 1 && info.signal <= 64;
  const bool by_exit = info.code >= 0 && info.code <= 255 && info.signal == 0;
  if ((!by_signal && !by_exit) || !is_errno(info.exec_errno)) {
    return garbage("exit status");
  }
  return event::Exited{.px = std::move(px), .info = info};
}

}  // namespace

Result<Event> decode_event(std::span<const std::byte> bytes) {
  wire::Header head{};
  if (bytes.size() < sizeof(head)) {
    return garbage("shorter than a header");
  }
  std::memcpy(&head, bytes.data(), sizeof(head));
  const auto payload = bytes.subspan(sizeof(head));
  if (head.version != wire::kVersion) {
    return garbage(fmt::format("version {}", head.version));
  }
  if (head.length != payload.size()) {
    return garbage("length");
  }
  switch (static_cast<wire::Type>(head.type)) {
    case wire::Type::started: {
      TALON_TRY(frame, payload_as<wire::Started>(payload));
      TALON_TRY(px, exec_id(frame.px));
      if (frame.pid <= 0) {
        return garbage("pid");
      }
      return event::Started{
          .request = head.request, .px = std::move(px), .pid = frame.pid, .group = frame.group};
    }
    case wire::Type::exec_failed: {
      TALON_TRY(frame, payload_as<wire::ExecFailed>(payload));
      TALON_TRY(px, exec_id(frame.px));
      if (!is_errno(frame.error) || frame.stage < 1 ||
          frame.stage > static_cast<std::uint32_t>(wire::Stage::paused)) {
        return garbage("exec failure");
      }
      return event::ExecFailed{.request = head.request,
                               .px = std::move(px),
                               .error = frame.error,
                               .stage = static_cast<wire::Stage>(frame.stage)};
    }
    case wire::Type::exited: return exited(payload);
    case wire::Type::ended: {
      TALON_TRY(frame, payload_as<wire::Ended>(payload));
      TALON_TRY(px, exec_id(frame.px));
      return event::Ended{.px = std::move(px)};
    }
    case wire::Type::stdin_ack: {
      TALON_TRY(frame, payload_as<wire::StdinAck>(payload));
      TALON_TRY(px, exec_id(frame.px));
      if (!is_errno(frame.error)) {
        return garbage("stdin error");
      }
      return event::StdinAck{.request = head.request,
                             .px = std::move(px),
                             .accepted = frame.accepted,
                             .error = frame.error,
                             .closed = frame.closed != 0};
    }
    case wire::Type::done: {
      TALON_TRY(frame, payload_as<wire::Done>(payload));
      if (!is_errno(frame.error)) {
        return garbage("error number");
      }
      return event::Done{.request = head.request, .error = frame.error};
    }
    case wire::Type::resync:
      if (!payload.empty()) {
        return garbage("wrong length");
      }
      return event::Resync{};
    default: return garbage(fmt::format("type {}", head.type));
  }
}

}  // namespace talon::isolate
