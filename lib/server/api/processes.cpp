#include <deque>

#include "base/id.h"
#include "base/units.h"
#include "server/api/api.h"
#include "server/api/decode.h"
#include "server/api/decode_requests.h"
#include "server/api/errors.h"
#include "server/api/stream.h"
#include "server/api/views.h"

namespace talon::server::api {

namespace json = boost::json;

namespace {

Task<http::Response> spawn(Api& api, Call& call, ExecKind kind) {
  auto decoded = decode_exec(call.request->body, kind);
  TALON_CO_TRY(request, std::move(decoded));
  auto resumed = co_await resume_if_asked(api, call);
  if (!resumed) {
    co_return std::unexpected(std::move(resumed.error()));
  }
  request.id = new_id(IdKind::exec);
  if (call.idempotency) {
    // Before the act: a daemon that dies in between finds by it what was started.
    store::IdempotencyRow claim = *call.idempotency;
    claim.target = request.id;
    std::function<Result<>()> job = [store = &api.store(), claim]() -> Result<> {
      return store->write(
          [&](store::Db& db) -> Result<> { return store::finish_idempotency(db, claim); });
    };
    auto written = co_await api.offload().run<void>(std::move(job));
    if (!written) {
      co_return std::unexpected(std::move(written.error()));
    }
  }
  auto spawned = co_await api.node().spawn(call.tenant(), call.params[0], std::move(request));
  TALON_CO_TRY(process, std::move(spawned));
  if (call.idempotency) {
    call.idempotency->target = process.exec->row.id;
  }
  co_return json_response(201, process_view(process.exec->row));
}

}  // namespace

Task<http::Response> create_process(Api& api, Call& call) {
  return spawn(api, call, ExecKind::spawn);
}

Task<http::Response> create_pty(Api& api, Call& call) { return spawn(api, call, ExecKind::pty); }

Task<http::Response> list_processes(Api& api, Call& call) {
  auto limit = page_limit(call);
  TALON_CO_TRY(most, std::move(limit));
  auto listed = co_await api.node().execs(call.tenant(), call.params[0],
                                          call.parameter("cursor").value_or(""), most);
  TALON_CO_TRY(page, std::move(listed));
  json::array items;
  for (const store::ExecRow& row : page.rows) {
    items.emplace_back(process_view(row));
  }
  json::object body;
  body["items"] = std::move(items);
  body["next_cursor"] = page.next.empty() ? json::value(nullptr) : json::value(page.next);
  co_return json_response(200, body);
}

Task<http::Response> get_process(Api& api, Call& call) {
  auto looked = co_await api.node().exec(call.tenant(), call.params[0], call.params[1]);
  if (!looked && looked.error().code == Code::gone) {
    // Its certificate outlives the sandbox, as the sandbox's own does.
    auto kept = co_await api.node().stored_exec(call.tenant(), call.params[0], call.params[1]);
    TALON_CO_TRY(row, std::move(kept));
    Problem problem = make_problem("gone", "the sandbox " + row.sandbox + " was deleted");
    problem.extra["id"] = row.id;
    problem.extra["certificate"] = stored_json(row.certificate_json);
    co_return render(problem, call.request->id);
  }
  TALON_CO_TRY(found, std::move(looked));
  co_return json_response(200, process_view(found.row));
}

Task<http::Response> delete_process(Api& api, Call& call) {
  Millis grace{10'000};
  if (const auto given = call.parameter("grace")) {
    auto parsed = parse_duration(*given);
    if (!parsed || *parsed > Millis{3'600'000}) {
      co_return bad_field("grace", "grace must be a duration of at most an hour, such as 10s");
    }
    grace = *parsed;
  }
  auto ended = co_await api.node().end_exec(call.tenant(), call.params[0], call.params[1], grace,
                                            call.who.actor);
  if (!ended) {
    co_return std::unexpected(std::move(ended.error()));
  }
  http::Response response;
  response.status = 204;
  co_return response;
}

Task<http::Response> signal_process(Api& api, Call& call) {
  auto decoded = decode_signal(call.request->body);
  TALON_CO_TRY(request, std::move(decoded));
  auto resumed = co_await resume_if_asked(api, call);
  if (!resumed) {
    co_return std::unexpected(std::move(resumed.error()));
  }
  auto sent =
      co_await api.node().signal_exec(call.tenant(), call.params[0], call.params[1], request.number,
                                      static_cast<wire::Scope>(request.scope), call.who.actor);
  if (!sent) {
    co_return std::unexpected(std::move(sent.error()));
  }
  http::Response response;
  response.status = 204;
  co_return response;
}

Task<http::Response> write_stdin(Api& api, Call& call) {
  std::optional<std::uint64_t> offset;
  if (const auto given = call.parameter("offset")) {
    auto parsed = query_whole("offset", *given, 0, ~0ull);
    TALON_CO_TRY(at, std::move(parsed));
    offset = at;
  }
  bool close = false;
  if (const auto given = call.parameter("close")) {
    auto parsed = query_flag("close", *given);
    TALON_CO_TRY(flag, std::move(parsed));
    close = flag;
  }
  auto resumed = co_await resume_if_asked(api, call);
  if (!resumed) {
    co_return std::unexpected(std::move(resumed.error()));
  }
  auto fed = co_await api.node().feed_stdin(call.tenant(), call.params[0], call.params[1], offset,
                                            call.request->body, close, Millis{10'000});
  TALON_CO_TRY(result, std::move(fed));
  json::object body;
  body["accepted"] = result.accepted;
  body["closed"] = result.closed;
  co_return json_response(200, body);
}

namespace {

Result<LogFilter> decode_filter(const Call& call) {
  LogFilter filter;
  if (const auto wanted = call.parameter("stream")) {
    filter.out = *wanted == "stdout";
    filter.err = *wanted == "stderr";
    filter.tty = *wanted == "tty";
    if (!filter.out && !filter.err && !filter.tty) {
      return bad_field("stream", "stream must be stdout, stderr or tty; leave it out for all");
    }
  }
  if (const auto since = call.parameter("since")) {
    TALON_TRY(at, query_time("since", *since));
    filter.since_ns = at;
  }
  if (const auto until = call.parameter("until")) {
    TALON_TRY(at, query_time("until", *until));
    filter.until_ns = at;
  }
  return filter;
}

// The cursor of the last `lines` lines of what the filter lets through.
Task<isolate::Cursor> find_tail(node::LogStream log, LogFilter filter, std::size_t lines) {
  std::deque<isolate::Cursor> starts;
  isolate::Cursor before;
  bool at_line_start = true;
  isolate::Cursor after_all;
  while (true) {
    auto read = co_await log.next(Millis{1000});
    TALON_CO_TRY(entries, std::move(read));
    if (entries.empty()) {
      break;
    }
    for (const isolate::LogEntry& entry : entries) {
      const bool output = entry.kind == wire::Kind::out || entry.kind == wire::Kind::err ||
                          entry.kind == wire::Kind::tty;
      if (output && filter.wants(entry)) {
        isolate::Cursor start = entry.after;
        if (start.byte == 0) {
          start.frame -= 1;
          start.byte = before.frame == start.frame ? before.byte : 0;
        } else {
          start.byte -= static_cast<std::uint32_t>(entry.bytes.size());
        }
        for (std::size_t i = 0; i < entry.bytes.size(); ++i) {
          if (at_line_start) {
            starts.push_back({start.frame, start.byte + static_cast<std::uint32_t>(i)});
            if (starts.size() > lines) {
              starts.pop_front();
            }
          }
          at_line_start = entry.bytes[i] == '\n';
        }
      }
      before = entry.after;
      after_all = entry.after;
    }
  }
  if (lines == 0 || starts.empty()) {
    co_return after_all;
  }
  co_return starts.front();
}

}  // namespace

Task<http::Response> process_logs(Api& api, Call& call) {
  auto filtered = decode_filter(call);
  TALON_CO_TRY(filter, std::move(filtered));
  StreamOptions options;
  options.form = choose_form(*call.request, Form::raw);
  options.filter = filter;
  const auto from = call.parameter("from");
  std::string cursor_text = from.value_or("0");
  if (const auto resumed = call.request->header("last-event-id"); !resumed.empty()) {
    cursor_text = resumed;
  }
  const auto tail = call.parameter("tail");
  std::size_t tail_lines = 0;
  if (tail) {
    if (from) {
      co_return bad_field("tail", "give either from or tail");
    }
    auto parsed = query_whole("tail", *tail, 0, 100'000);
    TALON_CO_TRY(lines, std::move(parsed));
    tail_lines = lines;
  }
  if (const auto follow = call.parameter("follow")) {
    if (*follow == "all") {
      options.follow = node::Follow::all;
    } else {
      auto parsed = query_flag("follow", *follow);
      if (!parsed) {
        co_return bad_field("follow", "follow must be 1, 0 or all");
      }
      options.follow = *parsed ? node::Follow::until_exit : node::Follow::none;
    }
  }
  if (cursor_text != "end") {
    auto parsed = isolate::parse_cursor(cursor_text);
    if (!parsed) {
      co_return bad_field("from", "from must be a cursor that an answer gave, 0 or end");
    }
    options.from = *parsed;
  }
  auto looked = co_await api.node().exec(call.tenant(), call.params[0], call.params[1]);
  TALON_CO_TRY(found, std::move(looked));
  if (cursor_text == "end") {
    node::LogStream log = api.node().log(found, options.from, node::Follow::none);
    auto sought = co_await log.seek_end();
    if (!sought) {
      co_return std::unexpected(std::move(sought.error()));
    }
    options.from = log.cursor();
  } else if (tail) {
    auto start = co_await find_tail(api.node().log(found, options.from, node::Follow::none), filter,
                                    tail_lines);
    TALON_CO_TRY(cursor, std::move(start));
    options.from = cursor;
  }
  auto streamed = co_await stream_log(api, call, std::move(found), options);
  co_return streamed;
}

}  // namespace talon::server::api
