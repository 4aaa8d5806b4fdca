#include "server/api/stream.h"

#include "server/api/text.h"
#include "server/node/codec.h"

namespace talon::server::api {

namespace json = boost::json;

namespace {

constexpr Millis kHeartbeat{15'000};

std::string_view stream_name(wire::Kind kind) {
  switch (kind) {
    case wire::Kind::out: return "stdout";
    case wire::Kind::err: return "stderr";
    default: return "tty";
  }
}

// The position of the k-th byte of an entry that was read from `before` on.
isolate::Cursor inside(const isolate::LogEntry& entry, isolate::Cursor before, std::size_t k) {
  isolate::Cursor at;
  if (entry.after.byte == 0) {
    at.frame = entry.after.frame - 1;
    at.byte = before.frame == at.frame ? before.byte : 0;
  } else {
    at.frame = entry.after.frame;
    at.byte = entry.after.byte - static_cast<std::uint32_t>(entry.bytes.size());
  }
  at.byte += static_cast<std::uint32_t>(k);
  return at;
}

bool is_output(wire::Kind kind) {
  return kind == wire::Kind::out || kind == wire::Kind::err || kind == wire::Kind::tty;
}

}  // namespace

Form choose_form(const http::Request& request, Form fallback) {
  const std::string_view accept = request.header("accept");
  if (accept.find("text/event-stream") != std::string_view::npos) {
    return Form::sse;
  }
  if (accept.find("application/x-ndjson") != std::string_view::npos) {
    return Form::ndjson;
  }
  if (accept.find("application/octet-stream") != std::string_view::npos) {
    return Form::raw;
  }
  return fallback;
}

std::string_view content_type(Form form) {
  switch (form) {
    case Form::sse: return "text/event-stream";
    case Form::ndjson: return "application/x-ndjson";
    case Form::raw: return "application/octet-stream";
    case Form::json: break;
  }
  return "application/json";
}

void append_event(std::string& out, Form form, std::string_view name, std::string_view cursor,
                  const json::object& data) {
  if (form == Form::sse) {
    if (!cursor.empty()) {
      out.append("id: ").append(cursor).append("\n");
    }
    // Serialized JSON has no line breaks, so one data line is enough.
    out.append("event: ").append(name).append("\ndata: ");
    out.append(json_text(data)).append("\n\n");
    return;
  }
  json::object line;
  line["event"] = name;
  if (!cursor.empty()) {
    line["cursor"] = cursor;
  }
  for (const auto& entry : data) {
    line[entry.key()] = entry.value();
  }
  out.append(json_text(line)).append("\n");
}

bool LogFilter::wants(const isolate::LogEntry& entry) const {
  if (entry.wall_ns < since_ns || entry.wall_ns > until_ns) {
    return false;
  }
  switch (entry.kind) {
    case wire::Kind::out: return out;
    case wire::Kind::err: return err;
    case wire::Kind::tty:
    case wire::Kind::resize: return tty;
    default: return true;
  }
}

void LogEncoder::emit_text(std::string& out, std::string_view name, std::string_view bytes,
                           isolate::Cursor cursor, bool late) {
  json::object data;
  Utf8Check check;
  if (check.feed(bytes) && check.complete()) {
    data["text"] = bytes;
  } else {
    data["base64"] = base64(bytes);
  }
  if (late) {
    data["late"] = true;
  }
  append_event(out, form_, name, isolate::to_string(cursor), data);
}

void LogEncoder::flush(std::string& out) {
  if (!held_.empty()) {
    emit_text(out, held_name_, held_, held_after_, false);
    held_.clear();
  }
}

void LogEncoder::output(std::string& out, const isolate::LogEntry& entry) {
  if (form_ == Form::raw) {
    out += entry.bytes;
    return;
  }
  const std::string_view name = stream_name(entry.kind);
  if (held_name_ != name) {
    flush(out);
  }
  const std::size_t carried = held_.size();
  std::string joined = std::move(held_);
  held_.clear();
  joined += entry.bytes;
  const std::size_t whole = whole_characters(joined);
  if (whole == std::string::npos || whole == joined.size()) {
    emit_text(out, name, joined, entry.after, entry.late);
    return;
  }
  if (whole > 0) {
    emit_text(out, name, std::string_view{joined}.substr(0, whole),
              inside(entry, position_, whole - std::min(whole, carried)), entry.late);
  }
  held_ = joined.substr(whole);
  held_name_ = name;
  held_after_ = entry.after;
}

void LogEncoder::add(std::string& out, const isolate::LogEntry& entry) {
  if (entry.kind == wire::Kind::exit) {
    exit_ = entry.exit;
  }
  if (filter_.wants(entry)) {
    if (is_output(entry.kind)) {
      output(out, entry);
    } else if (form_ != Form::raw) {
      flush(out);
      const std::string cursor = isolate::to_string(entry.after);
      switch (entry.kind) {
        case wire::Kind::lost:
          append_event(out, form_, "lost", cursor, json::object{{"bytes", entry.lost_bytes}});
          break;
        case wire::Kind::resize:
          append_event(out, form_, "resize", cursor,
                       json::object{{"cols", entry.size.cols}, {"rows", entry.size.rows}});
          break;
        case wire::Kind::exit:
          append_event(out, form_, "exit", cursor, node::result_object(entry.exit));
          break;
        case wire::Kind::end: append_event(out, form_, "end", cursor, json::object{}); break;
        default: break;
      }
    }
  }
  position_ = entry.after;
}

Task<http::Response> stream_log(Api& api, Call& call, node::Node::Found found,
                                StreamOptions options) {
  http::Response done;
  done.status = 0;
  node::LogStream log = api.node().log(found, options.from, options.follow);
  auto opened = co_await log.open();
  if (!opened) {
    co_return std::unexpected(std::move(opened.error()));
  }
  std::vector<std::pair<std::string, std::string>> headers;
  headers.emplace_back("Talon-Process", found.row.id);
  std::vector<std::string> trailers;
  if (options.form == Form::raw) {
    trailers.emplace_back("Talon-Cursor");
    if (options.is_run) {
      trailers.emplace_back("Talon-Exit-Code");
      trailers.emplace_back("Talon-Signal");
    }
  }
  auto started = co_await api.start_stream(call, std::string{content_type(options.form)},
                                           std::move(headers), trailers);
  if (!started) {
    co_return std::unexpected(std::move(started.error()));
  }
  std::string out;
  if (options.is_run && options.form != Form::raw) {
    append_event(out, options.form, "start", isolate::to_string(options.from),
                 json::object{{"id", found.row.id}, {"pid", found.row.pid}});
  }
  LogEncoder encoder(options.form, options.filter, options.from);
  bool over = false;
  Standing standing(api.auth(), *call.request);
  while (!over) {
    auto good = co_await standing.check();
    if (!good) {
      co_return std::unexpected(std::move(good.error()));
    }
    if (!out.empty()) {
      auto written = co_await call.out->write(out);
      if (!written) {
        co_return std::unexpected(std::move(written.error()));  // the exec goes on
      }
      out.clear();
    }
    auto read = co_await log.next(kHeartbeat);
    TALON_CO_TRY(entries, std::move(read));
    for (const isolate::LogEntry& entry : entries) {
      if (options.is_run && entry.kind == wire::Kind::exit) {
        encoder.flush(out);
        if (options.form != Form::raw) {
          append_event(out, options.form, "end", isolate::to_string(entry.after),
                       node::result_object(entry.exit));
        }
      } else {
        encoder.add(out, entry);
      }
      if (entry.wall_ns > options.filter.until_ns && options.filter.until_ns != ~0ull) {
        over = true;
        break;
      }
    }
    if (entries.empty() && log.idle_passed()) {
      if (call.out->gone()) {
        co_return done;
      }
      if (options.form == Form::sse) {
        out += ": waiting\n\n";
      }
    } else if (entries.empty()) {
      over = true;
    }
  }
  encoder.flush(out);
  std::optional<wire::ExitInfo> exit;
  if (options.is_run && found.exec != nullptr) {
    auto waited = co_await api.node().wait_exit(found.actor, found.exec);
    if (!waited) {
      co_return std::unexpected(std::move(waited.error()));
    }
    exit = found.exec->info;
  }
  // No exit frame will come: without this event the stream would look like a whole one.
  if (options.follow != node::Follow::none && options.form != Form::raw && found.exec != nullptr &&
      found.exec->exited && found.exec->cut) {
    append_event(out, options.form, options.is_run ? "end" : "exit",
                 isolate::to_string(log.cursor()), node::result_object(found.exec->info));
  }
  if (!out.empty()) {
    auto written = co_await call.out->write(out);
    if (!written) {
      co_return std::unexpected(std::move(written.error()));
    }
  }
  std::vector<std::pair<std::string, std::string>> last;
  if (options.form == Form::raw) {
    last.emplace_back("Talon-Cursor", isolate::to_string(log.cursor()));
    if (exit) {
      last.emplace_back("Talon-Exit-Code", exit->signal == 0 ? std::to_string(exit->code) : "");
      last.emplace_back("Talon-Signal", std::to_string(exit->signal));
    }
  }
  auto finished = co_await call.out->finish(std::move(last));
  if (!finished) {
    co_return std::unexpected(std::move(finished.error()));
  }
  co_return done;
}

}  // namespace talon::server::api
