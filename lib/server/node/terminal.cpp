// Input that streams in, and what only terminals have: a size, a pace, a log that is not kept.

#include <cerrno>

#include "server/node/node.h"

namespace talon::server::node {

namespace {

std::unexpected<Error> has_ended(std::string_view px) {
  auto error = fail(Code::wrong_state, "the process " + std::string{px} + " has ended");
  error.error().field = "exited";
  return error;
}

}  // namespace

Task<> Actor::append_stdin(ExecPtr exec, std::string bytes, bool close) {
  while (true) {
    if (live_ == nullptr || closed_ || state() != State::running) {
      co_return wrong_state(state(), "running");  // while paused nothing is queued (decision 15)
    }
    auto request = live_->send_stdin(exec->row.id, wire::kStdinAppend, bytes, close);
    int error = EAGAIN;
    if (request) {
      // No limit: a process may read its input when it likes.
      auto answered = co_await await_errno(*request, std::nullopt);
      TALON_CO_TRY(answer, std::move(answered));
      error = answer;
    } else if (request.error().sys != EAGAIN) {
      co_return std::unexpected(std::move(request.error()));
    }
    if (error == 0) {
      co_return Result<>{};
    }
    if (error == EBUSY) {
      co_return wrong_state(State::paused, "running");
    }
    if (error != EAGAIN) {
      auto closed = fail(Code::wrong_state, "the input of the process is closed");
      closed.error().field = "stdin_closed";
      co_return closed;
    }
    // Others have filled init's window, or its socket.
    const std::uint64_t seen = exec->changed.version();
    auto woken = co_await exec->changed.wait(seen, Millis{50});
    if (!woken && woken.error().code != Code::timeout) {
      co_return woken;
    }
  }
}

Task<> Actor::resize(std::string px, std::uint16_t cols, std::uint16_t rows) {
  if (live_ == nullptr || closed_) {
    co_return wrong_state(state(), "running");
  }
  auto request = live_->resize(px, cols, rows);
  TALON_CO_TRY(sent, std::move(request));
  auto done = co_await await_done(sent, "resize the terminal");
  co_return done;
}

bool Actor::flow(std::string_view px, std::uint64_t limit) {
  std::erase(lifts_due_, px);
  return live_ == nullptr || closed_ || live_->flow(px, limit).has_value();
}

void Actor::lift_pace(const std::string& px) {
  if (!flow(px, wire::kNoLimit)) {
    lifts_due_.push_back(px);
  }
}

Task<> Node::resize_exec(std::string tenant, std::string id, std::string px, std::uint16_t cols,
                         std::uint16_t rows) {
  auto looked = co_await exec(tenant, id, px);
  TALON_CO_TRY(found, std::move(looked));
  if (found.exec == nullptr || found.exec->exited) {
    co_return has_ended(px);
  }
  auto resized = co_await found.actor->resize(px, cols, rows);
  if (!resized && (resized.error().sys == ESRCH || resized.error().sys == ENOTTY)) {
    co_return has_ended(px);
  }
  co_return resized;
}

Task<> Node::remove_log(ActorPtr actor, std::string px) {
  std::function<Result<>()> job = [data = parts_.data, id = actor->id(), px]() -> Result<> {
    TALON_TRY(logs, data->open_logs(id));
    return isolate::remove_log(logs.get(), px);
  };
  auto removed = co_await parts_.offload->run<void>(std::move(job));
  co_return removed;
}

}  // namespace talon::server::node
