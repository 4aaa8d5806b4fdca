#pragma once
// The Responder of one request on one connection.

#include "server/http/connection.h"

namespace talon::server::http {

class Answer final : public Responder {
 public:
  // `head` lives as long as this; its request may be moved from.
  Answer(Connection& connection, const Head& head);

  Task<> send(Response response) override;
  Task<> start(Response head, std::vector<std::string> trailers) override;
  Task<> write(std::string_view bytes) override;
  Task<> finish(std::vector<std::pair<std::string, std::string>> trailers) override;
  Task<std::shared_ptr<WebSocket>> upgrade(const Request& request, UpgradeOptions options) override;
  bool started() const override { return state_ != State::fresh; }
  bool gone() const override;
  void on_gone(std::function<void()> wake) override;

  // The whole answer went out.
  bool complete() const { return state_ == State::complete; }
  // The connection cannot take another request after this answer.
  bool closes() const { return close_; }

 private:
  enum class State { fresh, streaming, complete, broken };
  Task<> flush(std::string_view bytes);
  Task<> write_chunked(std::string_view bytes);

  Connection& connection_;
  State state_ = State::fresh;
  Framing framing_ = Framing::length;
  std::uint64_t left_ = 0;  // Framing::length: bytes still owed
  bool head_only_;
  bool http10_;
  bool close_;
  std::string id_;
  std::string out_;
};

}  // namespace talon::server::http
