#include "server/api/api.h"
#include "server/api/decode.h"
#include "server/api/errors.h"
#include "server/api/stream.h"
#include "server/api/views.h"

namespace talon::server::api {

namespace json = boost::json;

namespace {

constexpr Millis kHeartbeat{15'000};
constexpr int kPage = 500;

// Events as they come, until the sandbox is deleted or the client is gone.
Task<http::Response> follow_events(Api& api, Call& call, std::int64_t after, Form form) {
  http::Response done;
  done.status = 0;
  const std::string& id = call.params[0];
  const node::ActorPtr actor = api.node().actor(call.tenant(), id);
  auto started = co_await api.start_stream(call, std::string{content_type(form)});
  if (!started) {
    co_return std::unexpected(std::move(started.error()));
  }
  bool over = false;
  Standing standing(api.auth(), *call.request);
  while (!over) {
    auto good = co_await standing.check();
    if (!good) {
      co_return std::unexpected(std::move(good.error()));
    }
    // Taken before the read, so that nothing falls between.
    const std::uint64_t seen = actor != nullptr ? actor->changed.version() : 0;
    const bool last = actor == nullptr || actor->draining || actor->state() == node::State::deleted;
    auto listed = co_await api.node().events(call.tenant(), id, after, kPage);
    TALON_CO_TRY(rows, std::move(listed));
    std::string out;
    for (const store::EventRow& row : rows) {
      append_event(out, form, row.type, std::to_string(row.seq), event_view(row));
      after = row.seq;
    }
    if (rows.empty() && last) {
      over = true;
    } else if (rows.empty()) {
      auto woken = co_await actor->changed.wait(seen, kHeartbeat);
      if (!woken && woken.error().code != Code::timeout) {
        co_return std::unexpected(std::move(woken.error()));
      }
      if (!woken && call.out->gone()) {
        co_return done;
      }
      if (!woken && form == Form::sse) {
        out = ": waiting\n\n";
      }
    }
    if (!out.empty()) {
      auto written = co_await call.out->write(out);
      if (!written) {
        co_return std::unexpected(std::move(written.error()));
      }
    }
  }
  auto finished = co_await call.out->finish();
  if (!finished) {
    co_return std::unexpected(std::move(finished.error()));
  }
  co_return done;
}

}  // namespace

Task<http::Response> sandbox_events(Api& api, Call& call) {
  auto limit = page_limit(call);
  TALON_CO_TRY(most, std::move(limit));
  std::string from = call.parameter("from").value_or("0");
  if (const auto resumed = call.request->header("last-event-id"); !resumed.empty()) {
    from = resumed;
  }
  auto parsed = query_whole("from", from, 0, 1ull << 62);
  TALON_CO_TRY(cursor, std::move(parsed));
  const auto after = static_cast<std::int64_t>(cursor);
  bool follow = false;
  if (const auto given = call.parameter("follow")) {
    auto flag = query_flag("follow", *given);
    TALON_CO_TRY(wanted, std::move(flag));
    follow = wanted;
  }
  auto known = co_await api.node().row(call.tenant(), call.params[0]);
  TALON_CO_TRY(row, std::move(known));
  static_cast<void>(row);  // of a deleted one too: its events say how it ended
  const Form form = choose_form(*call.request, follow ? Form::sse : Form::json);
  if (follow || form == Form::sse || form == Form::ndjson) {
    if (!follow && form != Form::json) {
      co_return bad_field("follow", "event streams need follow=1");
    }
    const Form used = form == Form::ndjson ? Form::ndjson : Form::sse;
    auto streamed = co_await follow_events(api, call, after, used);
    co_return streamed;
  }
  auto listed = co_await api.node().events(call.tenant(), call.params[0], after, most);
  TALON_CO_TRY(rows, std::move(listed));
  json::array items;
  for (const store::EventRow& event : rows) {
    items.emplace_back(event_view(event));
  }
  json::object body;
  const bool more = rows.size() == static_cast<std::size_t>(most);
  body["next_cursor"] = more ? json::value(std::to_string(rows.back().seq)) : json::value(nullptr);
  body["items"] = std::move(items);
  co_return json_response(200, body);
}

}  // namespace talon::server::api
