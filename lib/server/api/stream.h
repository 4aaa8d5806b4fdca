#pragma once
// Streamed answers: server-sent events (HTML living standard, 9.2), NDJSON, raw bytes. Each event
// carries the cursor after it, so Last-Event-ID or the last `cursor` resumes without loss.
// Output is text where it is UTF-8 after joining chunks, else base64, and the key says which.

#include <boost/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "isolate/log_reader.h"
#include "server/api/api.h"
#include "server/node/log_stream.h"

namespace talon::server::api {

enum class Form { json, sse, ndjson, raw };

// By the Accept header; `fallback` when it names none of them.
Form choose_form(const http::Request& request, Form fallback);
std::string_view content_type(Form form);

// Appends one event. `cursor` "" = none.
void append_event(std::string& out, Form form, std::string_view name, std::string_view cursor,
                  const boost::json::object& data);

// Which entries are wanted.
struct LogFilter {
  bool out = true;
  bool err = true;
  bool tty = true;
  std::uint64_t since_ns = 0;  // wall clock
  std::uint64_t until_ns = ~0ull;
  bool wants(const isolate::LogEntry& entry) const;
};

// Log entries -> bytes of the answer. A character cut by a chunk's end is held until the rest
// comes; when another stream's bytes come first it goes out as base64, so cursors stay in order.
class LogEncoder {
 public:
  LogEncoder(Form form, LogFilter filter, isolate::Cursor from)
      : form_(form), filter_(filter), position_(from) {}

  void add(std::string& out, const isolate::LogEntry& entry);
  // What is still held.
  void flush(std::string& out);
  isolate::Cursor position() const { return position_; }
  const std::optional<wire::ExitInfo>& exit() const { return exit_; }

 private:
  void output(std::string& out, const isolate::LogEntry& entry);
  void emit_text(std::string& out, std::string_view name, std::string_view bytes,
                 isolate::Cursor cursor, bool late);

  Form form_;
  LogFilter filter_;
  isolate::Cursor position_;
  std::string held_;
  std::string held_name_;
  isolate::Cursor held_after_;
  std::optional<wire::ExitInfo> exit_;
};

// Writes a log to the client until it is over or the client is gone.
struct StreamOptions {
  Form form = Form::raw;
  LogFilter filter;
  isolate::Cursor from;
  node::Follow follow = node::Follow::none;
  bool is_run = false;  // exit is the last event and is called `end`
};
Task<http::Response> stream_log(Api& api, Call& call, node::Node::Found found,
                                StreamOptions options);

}  // namespace talon::server::api
