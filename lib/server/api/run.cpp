// POST …/run. A client that goes away loses nothing: the command runs on, and its output and
// result stay readable under processes/{px} (architecture §1, sentence 3).

#include "base/id.h"
#include "server/api/api.h"
#include "server/api/decode_requests.h"
#include "server/api/errors.h"
#include "server/api/stream.h"
#include "server/api/text.h"
#include "server/node/codec.h"

namespace talon::server::api {

namespace json = boost::json;

namespace {

// Up to here an answer is built whole; a longer one is written from the log, pass by pass.
constexpr std::size_t kWhole = 1 << 20;

struct Outputs {
  std::string out;  // as long as both together are below kWhole
  std::string err;
  Utf8Check out_check;
  Utf8Check err_check;
  std::uint64_t bytes = 0;
};

// First pass: is it text, and is it short?
Task<Outputs> first_pass(node::LogStream log) {
  Outputs found;
  while (true) {
    auto read = co_await log.next(Millis{1000});
    TALON_CO_TRY(entries, std::move(read));
    if (entries.empty()) {
      break;
    }
    for (const isolate::LogEntry& entry : entries) {
      const bool is_out = entry.kind == wire::Kind::out || entry.kind == wire::Kind::tty;
      if (!is_out && entry.kind != wire::Kind::err) {
        continue;
      }
      found.bytes += entry.bytes.size();
      Utf8Check& check = is_out ? found.out_check : found.err_check;
      check.feed(entry.bytes);
      if (found.bytes <= kWhole) {
        (is_out ? found.out : found.err) += entry.bytes;
      }
    }
  }
  co_return found;
}

std::string_view encoding(const Utf8Check& check) { return check.complete() ? "utf-8" : "base64"; }

json::object head_of(const std::string& px, const wire::ExitInfo& info, const Outputs& outputs) {
  json::object body;
  body["id"] = px;
  for (const auto& entry : node::result_object(info)) {
    body[entry.key()] = entry.value();
  }
  body["stdout_encoding"] = encoding(outputs.out_check);
  body["stderr_encoding"] = encoding(outputs.err_check);
  return body;
}

// One of the two texts, straight from the log into the answer.
Task<> write_text(http::Responder& client, node::LogStream log, bool want_err, bool as_text) {
  Base64 encoder;
  std::string piece;
  while (true) {
    auto read = co_await log.next(Millis{1000});
    TALON_CO_TRY(entries, std::move(read));
    for (const isolate::LogEntry& entry : entries) {
      const bool is_out = entry.kind == wire::Kind::out || entry.kind == wire::Kind::tty;
      if (want_err ? entry.kind != wire::Kind::err : !is_out) {
        continue;
      }
      if (as_text) {
        append_json_escaped(piece, entry.bytes);
      } else {
        encoder.feed(piece, entry.bytes);
      }
    }
    if (entries.empty()) {
      encoder.finish(piece);
    }
    if (!piece.empty()) {
      auto written = co_await client.write(piece);
      if (!written) {
        co_return written;
      }
      piece.clear();
    }
    if (entries.empty()) {
      co_return Result<>{};
    }
  }
}

Task<> write_long(Api& api, Call& call, node::Node::Found found, const Outputs& outputs) {
  auto started = co_await api.start_stream(call, "application/json");
  if (!started) {
    co_return started;
  }
  std::string text = json_text(head_of(found.row.id, found.exec->info, outputs));
  text.back() = ',';  // the object goes on
  text += "\"stdout\":\"";
  auto head = co_await call.out->write(text);
  if (!head) {
    co_return head;
  }
  const isolate::Cursor start;
  auto out = co_await write_text(*call.out, api.node().log(found, start, node::Follow::until_exit),
                                 false, outputs.out_check.complete());
  if (!out) {
    co_return out;
  }
  auto between = co_await call.out->write("\",\"stderr\":\"");
  if (!between) {
    co_return between;
  }
  auto err = co_await write_text(*call.out, api.node().log(found, start, node::Follow::until_exit),
                                 true, outputs.err_check.complete());
  if (!err) {
    co_return err;
  }
  auto end = co_await call.out->write("\"}\n");
  if (!end) {
    co_return end;
  }
  auto finished = co_await call.out->finish();
  co_return finished;
}

// A log that is not there any more because the sandbox was deleted while the command ran.
std::unexpected<Error> gone_or(const node::Node::Found& found, Error error) {
  const node::State state = found.actor->state();
  if (error.code == Code::not_found &&
      (state == node::State::deleting || state == node::State::deleted)) {
    return fail(Code::gone, "the sandbox " + found.actor->id() +
                                " was deleted while the command ran; GET it for its certificate");
  }
  return std::unexpected(std::move(error));
}

}  // namespace

Task<http::Response> run_command(Api& api, Call& call) {
  auto decoded = decode_exec(call.request->body, ExecKind::run);
  TALON_CO_TRY(request, std::move(decoded));
  auto resumed = co_await resume_if_asked(api, call);
  if (!resumed) {
    co_return std::unexpected(std::move(resumed.error()));
  }
  auto spawned = co_await api.node().spawn(call.tenant(), call.params[0], std::move(request));
  TALON_CO_TRY(process, std::move(spawned));
  node::Node::Found found;
  found.actor = process.actor;
  found.exec = process.exec;
  found.row = process.exec->row;

  const Form form = choose_form(*call.request, Form::json);
  if (form != Form::json) {
    StreamOptions options;
    options.form = form;
    options.follow = node::Follow::until_exit;
    options.is_run = true;
    auto streamed = co_await stream_log(api, call, std::move(found), options);
    co_return streamed;
  }

  // Opened before the wait: a delete meanwhile takes the log's name away, not what is open.
  const isolate::Cursor start;
  node::LogStream log = api.node().log(found, start, node::Follow::until_exit);
  auto opened = co_await log.open();
  if (!opened) {
    co_return gone_or(found, std::move(opened.error()));
  }
  auto waited = co_await api.node().wait_exit(found.actor, found.exec);
  if (!waited) {
    co_return std::unexpected(std::move(waited.error()));
  }
  auto looked = co_await first_pass(std::move(log));
  if (!looked) {
    co_return gone_or(found, std::move(looked.error()));
  }
  Outputs outputs = std::move(*looked);
  if (outputs.bytes > kWhole) {
    auto written = co_await write_long(api, call, found, outputs);
    if (!written) {
      co_return gone_or(found, std::move(written.error()));
    }
    http::Response done;
    done.status = 0;
    co_return done;
  }
  json::object body = head_of(found.row.id, found.exec->info, outputs);
  const bool out_text = outputs.out_check.complete();
  const bool err_text = outputs.err_check.complete();
  body["stdout"] = out_text ? std::move(outputs.out) : base64(outputs.out);
  body["stderr"] = err_text ? std::move(outputs.err) : base64(outputs.err);
  co_return json_response(200, body);
}

}  // namespace talon::server::api
