#include "server/api/attach.h"

#include <utility>

#include "base/log.h"
#include "server/api/decode.h"
#include "server/api/decode_requests.h"
#include "server/api/errors.h"
#include "server/api/stream.h"
#include "server/api/text.h"
#include "server/http/websocket.h"
#include "server/node/codec.h"

namespace talon::server::api {

namespace json = boost::json;
namespace ws = http::ws_close;

namespace {

constexpr Millis kHeartbeat{15'000};
constexpr std::size_t kReadBytes = 32 * 1024;
// Input that waits for the process; above it the client waits.
constexpr std::size_t kInputBytes = 256 * 1024;
// A terminal is read this far ahead of what its writer has seen.
constexpr std::uint64_t kAhead = 64 * 1024;
constexpr std::size_t kTornBytes = 4096;
constexpr std::size_t kNoteBytes = 64 * 1024;
// For what a client that left had typed.
constexpr Millis kDeliver{5'000};

void append_position(std::string& out, wire::Kind kind, isolate::Cursor after) {
  out += static_cast<char>(kind);
  for (int shift = 56; shift >= 0; shift -= 8) {
    out += static_cast<char>(after.frame >> shift & 0xff);
  }
  for (int shift = 24; shift >= 0; shift -= 8) {
    out += static_cast<char>(after.byte >> shift & 0xff);
  }
}

void append_json(std::string& out, std::string_view event, isolate::Cursor cursor,
                 const json::object& data) {
  std::string line;
  append_event(line, Form::ndjson, event, isolate::to_string(cursor), data);
  line.pop_back();
  http::append_ws_frame(out, http::WsOp::text, line);
}

class Session {
 public:
  Session(Api& api, Call& call, node::Node::Found found, AttachOptions options, node::LogStream log)
      : api_(api),
        call_(call),
        found_(std::move(found)),
        options_(std::move(options)),
        log_(std::move(log)),
        from_(log_.cursor()),
        standing_(api.auth(), *call.request),
        changed_(found_.actor->executor()),
        group_(found_.actor->executor(), [](std::string_view name, const Error& error) {
          log_warn("attach", {{"task", name}, {"error", error.message}});
        }) {}

  Task<http::Response> run();

 private:
  enum class Next { more, over, cut_off };

  Task<> output();
  Task<Next> next(std::string& out);
  void add(std::string& out, const isolate::LogEntry& entry);
  void add_lost(std::string& out, isolate::Cursor at);
  void add_end(std::string& out);
  void start(std::string& out);
  void keep_pace();

  Task<> receive();
  Task<> take_input(http::WsMessage message);
  Task<> control(std::string text);
  Task<> act(std::string text);
  Task<> pump();
  void note(const Error& error);
  void refuse();
  bool pumping() const { return !input_.empty() || close_due_; }
  bool may_type() const {
    return options_.may_act && (!options_.tty || (options_.writer && options_.writer->held));
  }

  Api& api_;
  Call& call_;
  node::Node::Found found_;
  AttachOptions options_;
  node::LogStream log_;
  const isolate::Cursor from_;
  Standing standing_;
  std::shared_ptr<http::WebSocket> socket_;
  bool left_ = false;  // the client is gone, or was told why it must go

  // output
  bool exit_sent_ = false;
  bool end_sent_ = false;
  bool was_writer_ = false;
  std::optional<isolate::LogEntry> lost_;  // not yet told: where it ends is not known
  std::uint64_t seen_ = 0;                 // output bytes of the process that were sent
  std::uint64_t told_ = 0;                 // the limit that init has

  std::string notes_;  // frames that come from elsewhere

  // input
  std::string input_;          // not yet handed on
  bool close_due_ = false;     // behind it
  bool refused_ = false;       // the client was told that its input is not taken
  bool input_closed_ = false;  // by the client or by the process
  Notifier changed_;           // input_, close_due_, left_
  TaskGroup group_;
};

void Session::start(std::string& out) {
  json::object data;
  data["id"] = found_.row.id;
  data["pid"] = found_.row.pid == 0 ? json::value(nullptr) : json::value(found_.row.pid);
  data["tty"] = options_.tty;
  data["write"] = may_type();
  if (options_.tty) {
    const wire::ResizePayload size = log_.size();
    data["cols"] = size.cols;
    data["rows"] = size.rows;
  }
  was_writer_ = may_type();
  append_json(out, "start", from_, data);
}

void Session::add_lost(std::string& out, isolate::Cursor at) {
  json::object data;
  data["bytes"] = lost_->lost_bytes;
  if (lost_->size.cols != 0) {
    data["cols"] = lost_->size.cols;
    data["rows"] = lost_->size.rows;
  }
  append_json(out, "lost", at, data);
  lost_.reset();
}

void Session::add(std::string& out, const isolate::LogEntry& entry) {
  std::string_view bytes = entry.bytes;
  seen_ = entry.offset;
  switch (entry.kind) {
    case wire::Kind::tty:
      if (lost_) {
        const std::size_t torn = torn_prefix(bytes);
        lost_->lost_bytes += lost_->lost_bytes == 0 ? 0 : torn;
        bytes.remove_prefix(torn);
        isolate::Cursor at = lost_->after;
        at.byte += static_cast<std::uint32_t>(torn);
        add_lost(out, at);
      }
      [[fallthrough]];
    case wire::Kind::out:
    case wire::Kind::err: {
      std::string head;
      append_position(head, entry.kind, entry.after);
      http::append_ws_frame(out, http::WsOp::binary, head, bytes);
      return;
    }
    case wire::Kind::lost:
      if (lost_) {
        add_lost(out, lost_->after);
      }
      lost_ = entry;
      if (!options_.tty) {
        add_lost(out, entry.after);
      }
      return;
    case wire::Kind::input: return;
    default: break;
  }
  if (lost_) {
    add_lost(out, lost_->after);
  }
  if (entry.kind == wire::Kind::resize) {
    append_json(out, "resize", entry.after,
                json::object{{"cols", entry.size.cols}, {"rows", entry.size.rows}});
  } else if (entry.kind == wire::Kind::exit) {
    exit_sent_ = true;
    append_json(out, "exit", entry.after, node::result_object(entry.exit));
  } else if (entry.kind == wire::Kind::end) {
    add_end(out);
  }
}

void Session::add_end(std::string& out) {
  if (!end_sent_) {
    end_sent_ = true;
    append_json(out, "end", log_.cursor(), json::object{});
  }
}

// A terminal moves at the pace of whoever types into it, as any terminal does: else an interrupt
// would be seen behind all that was printed before it.
void Session::keep_pace() {
  constexpr std::uint64_t kStep = kAhead / 4;
  // While nothing was shown nothing is held back; and a program that does not take our input may
  // wait for its output to be taken first.
  if (!options_.tty || !may_type() || seen_ == 0) {
    return;
  }
  const std::uint64_t limit = input_.size() > kInputBytes ? wire::kNoLimit : seen_ + kAhead;
  const bool further = limit >= told_ + kStep && told_ != wire::kNoLimit;
  const bool back = told_ == wire::kNoLimit && limit != told_;
  if ((further || back) && found_.actor->flow(found_.row.id, limit)) {
    told_ = limit;
  }
}

// What comes next of the log, as frames.
Task<Session::Next> Session::next(std::string& out) {
  auto good = co_await standing_.check();
  if (!good) {
    options_.may_act = false;
    note(good.error());
    const std::string last = std::exchange(notes_, {});  // receive() may add to notes_ meanwhile
    auto told = co_await socket_->send(last);
    static_cast<void>(told);
    auto closed = co_await socket_->close(ws::kPolicy, "the credential is not good any more");
    static_cast<void>(closed);
    co_return Next::cut_off;
  }
  auto read = co_await log_.next(kHeartbeat, kReadBytes);
  TALON_CO_TRY(entries, std::move(read));
  if (was_writer_ && !may_type()) {
    was_writer_ = false;
    append_json(out, "writer", log_.cursor(), json::object{{"write", false}});
  }
  for (const isolate::LogEntry& entry : entries) {
    add(out, entry);
  }
  if (!entries.empty() || log_.idle_passed()) {
    co_return Next::more;
  }
  co_return Next::over;
}

Task<> Session::output() {
  std::string out;
  // One entry at first: the size of the terminal is known with it.
  auto first = co_await log_.next(Millis{0}, 1);
  TALON_CO_TRY(entries, std::move(first));
  start(out);
  for (const isolate::LogEntry& entry : entries) {
    add(out, entry);
  }
  bool more = !entries.empty() || log_.idle_passed();
  while (!left_) {
    out += std::exchange(notes_, {});
    auto sent = co_await socket_->send(out);  // after a heartbeat it may be nothing but a ping
    if (!sent) {
      co_return sent;
    }
    out.clear();
    keep_pace();
    if (!more || end_sent_) {
      break;
    }
    auto got = co_await next(out);
    TALON_CO_TRY(what, std::move(got));
    if (what == Next::cut_off) {
      co_return Result<>{};
    }
    more = what == Next::more;
  }
  if (left_) {
    co_return Result<>{};
  }
  // The log may have no exit frame: its init died, or it is not kept.
  const node::ExecPtr& exec = found_.exec;
  if (!exit_sent_ && exec != nullptr && exec->exited) {
    exit_sent_ = true;
    append_json(out, "exit", log_.cursor(), node::result_object(exec->info));
  }
  if (!exit_sent_ && found_.actor->draining) {
    auto closed =
        co_await socket_->close(ws::kGoingAway, "talond is stopping; go on by the cursor");
    co_return closed;
  }
  add_end(out);
  auto sent = co_await socket_->send(out);
  if (!sent) {
    co_return sent;
  }
  auto closed = co_await socket_->close(ws::kNormal, "");
  co_return closed;
}

// Whoever receives must not wait for what is sent: the answers that sending waits for come by it.
void Session::note(const Error& error) {
  if (notes_.size() > kNoteBytes) {
    return;
  }
  const Problem problem = to_problem(error);
  json::object data;
  data["code"] = problem.code;
  data["detail"] = problem.detail;
  for (const auto& entry : problem.extra) {
    data[entry.key()] = entry.value();
  }
  append_json(notes_, "error", log_.cursor(), data);
  log_.poke();
}

Task<> Session::receive() {
  while (true) {
    auto message = co_await socket_->receive();
    if (!message) {
      break;
    }
    Result<> taken;
    if (message->text) {
      taken = co_await control(std::move(message->bytes));
    } else {
      taken = co_await take_input(std::move(*message));
    }
    if (!taken) {
      break;
    }
  }
  left_ = true;
  socket_->shut();
  changed_.notify_all();
  log_.poke();
  co_return Result<>{};
}

Task<> Session::take_input(http::WsMessage message) {
  std::string_view bytes = message.bytes;
  if (message.first) {
    if (bytes.empty() || bytes.front() != 0) {
      auto closed = co_await socket_->close(ws::kUnsupported, "a binary message begins with tag 0");
      static_cast<void>(closed);
      co_return fail(Code::invalid_request, "an unknown tag");
    }
    bytes.remove_prefix(1);
  }
  if (!may_type()) {
    if (!std::exchange(refused_, true)) {  // said once: a reader that types is no fault
      refuse();
    }
    co_return Result<>{};
  }
  while (input_.size() > kInputBytes && !left_ && may_type()) {
    socket_->stalled(true);
    log_.poke();  // for keep_pace()
    auto woken = co_await changed_.wait(changed_.version(), Millis{60'000});
    if (!woken && woken.error().code != Code::timeout) {
      co_return woken;
    }
  }
  socket_->stalled(false);
  if (!input_closed_ && may_type()) {
    input_ += bytes;
    changed_.notify_all();
  }
  co_return Result<>{};
}

void Session::refuse() {
  note(fail(Code::forbidden, options_.tty && options_.may_act
                                 ? "somebody else writes; attach with write=1"
                                 : "this needs the role developer")
           .error());
}

// Hands the input on. What came before the client left is still delivered.
Task<> Session::pump() {
  while (!left_ || pumping()) {
    if (!pumping()) {
      auto woken = co_await changed_.wait(changed_.version(), Millis{60'000});
      if (!woken && woken.error().code != Code::timeout) {
        break;
      }
      continue;
    }
    if (!may_type()) {  // taken over or revoked: what waits is not typed any more
      input_.clear();
      close_due_ = false;
      changed_.notify_all();
      continue;
    }
    std::string piece = input_.substr(0, wire::kStdinFrame);
    input_.erase(0, piece.size());
    const bool close = close_due_ && input_.empty();
    close_due_ = close_due_ && !close;
    changed_.notify_all();
    Result<> sent = fail(Code::wrong_state, "the process has ended");
    if (found_.exec != nullptr) {
      sent = co_await found_.actor->append_stdin(found_.exec, std::move(piece), close);
    }
    if (!sent && sent.error().code == Code::unavailable) {
      break;
    }
    if (!sent) {
      input_closed_ = input_closed_ || sent.error().field == "stdin_closed";
      input_.clear();
      close_due_ = false;
      note(sent.error());
    }
  }
  input_.clear();
  close_due_ = false;
  changed_.notify_all();
  co_return Result<>{};
}

Task<> Session::control(std::string text) {
  auto done = co_await act(std::move(text));
  if (!done) {
    note(done.error());
  }
  co_return Result<>{};
}

Task<> Session::act(std::string text) {
  auto parsed = parse_body(text);
  TALON_CO_TRY(object, std::move(parsed));
  Fields fields(object);
  auto named = fields.word("type", {"close_stdin", "signal", "resize"});
  TALON_CO_TRY(type, std::move(named));
  if (!type) {
    co_return bad_field("type", "type is missing: close_stdin, signal or resize");
  }
  if (!options_.may_act || (*type != 1 && !may_type())) {
    refuse();
    co_return Result<>{};
  }
  if (*type == 0) {
    auto known = fields.done();
    if (known && !std::exchange(input_closed_, true)) {
      close_due_ = true;
      changed_.notify_all();
    }
    co_return known;
  }
  if (*type == 1) {
    object.erase("type");
    auto decoded = decode_signal(json_text(object));
    TALON_CO_TRY(request, std::move(decoded));
    auto sent = co_await api_.node().signal_exec(
        call_.tenant(), call_.params[0], found_.row.id, request.number,
        static_cast<wire::Scope>(request.scope), call_.who.actor);
    co_return sent;
  }
  object.erase("type");
  auto decoded = decode_resize(json_text(object));
  TALON_CO_TRY(size, std::move(decoded));
  auto resized = co_await api_.node().resize_exec(call_.tenant(), call_.params[0], found_.row.id,
                                                  size.cols, size.rows);
  co_return resized;
}

Task<http::Response> Session::run() {
  http::UpgradeOptions upgrade;
  upgrade.window = options_.window;
  upgrade.protocol = kSocketProtocol;
  auto opened = co_await api_.start_socket(call_, upgrade);
  TALON_CO_TRY(socket, std::move(opened));
  socket_ = std::move(socket);
  if (options_.writer) {
    options_.writer->lost = [this] {
      changed_.notify_all();
      log_.poke();
    };
  }
  group_.spawn("attach receive", receive());
  group_.spawn("attach input", pump());
  auto served = co_await output();
  if (!served && !left_) {
    note(served.error());
    const std::string last = std::exchange(notes_, {});
    auto told = co_await socket_->send(last);
    static_cast<void>(told);
    auto closed = co_await socket_->close(ws::kInternal, "");
    static_cast<void>(closed);
  }
  left_ = true;
  socket_->shut();
  changed_.notify_all();
  const std::int64_t until = system_clock().mono_ns() + kDeliver.count() * 1'000'000;
  while (pumping() && system_clock().mono_ns() < until) {
    auto woken = co_await changed_.wait(changed_.version(), Millis{200});
    if (!woken && woken.error().code != Code::timeout) {
      break;
    }
  }
  // Also when this request was cancelled, its tasks end before it.
  co_await asio::this_coro::reset_cancellation_state(asio::enable_total_cancellation());
  auto stopped = co_await group_.stop(Millis{1000});
  static_cast<void>(stopped);
  http::Response done;
  done.status = 101;
  co_return done;
}

}  // namespace

std::size_t torn_prefix(std::string_view bytes) {
  const auto line = bytes.substr(0, kTornBytes).find('\n');
  if (line != std::string_view::npos) {
    return line + 1;
  }
  std::size_t at = 0;
  while (at < bytes.size() && at < 3 && (static_cast<unsigned char>(bytes[at]) & 0xc0) == 0x80) {
    ++at;
  }
  return at;
}

Task<http::Response> attach(Api& api, Call& call, node::Node::Found found, AttachOptions options) {
  struct Release {
    node::ExecPtr exec;
    node::ActorPtr actor;
    std::shared_ptr<node::Writer> writer;
    ~Release() {
      if (writer == nullptr) {
        return;
      }
      writer->lost = nullptr;
      if (exec->writer == writer) {
        exec->writer.reset();
        actor->lift_pace(exec->row.id);
      }
    }
  };
  Release release{found.exec, found.actor, options.writer};
  isolate::Cursor from;
  if (options.from != "end") {
    auto parsed = isolate::parse_cursor(options.from);
    if (!parsed) {
      co_return bad_field("from", "from must be a cursor that an answer gave, 0 or end");
    }
    from = *parsed;
  }
  node::LogStream log = api.node().log(found, from, options.follow);
  if (options.from == "end") {
    auto sought = co_await log.seek_end();
    if (!sought) {
      co_return std::unexpected(std::move(sought.error()));
    }
  }
  auto opened = co_await log.open();
  if (!opened) {
    co_return std::unexpected(std::move(opened.error()));
  }
  Session session(api, call, std::move(found), std::move(options), std::move(log));
  auto served = co_await session.run();
  co_return served;
}

// Attaches to any process. A terminal's input belongs to its writer: here it is only seen.
Task<http::Response> attach_process(Api& api, Call& call) {
  if (auto refused = http::refuse_upgrade(*call.request)) {
    co_return std::move(*refused);
  }
  auto looked = co_await api.node().exec(call.tenant(), call.params[0], call.params[1]);
  TALON_CO_TRY(found, std::move(looked));
  AttachOptions options;
  options.from = call.parameter("from").value_or("0");
  options.may_act = call.who.role >= Role::developer;
  options.tty = node::terminal_of(found.row).has_value();
  if (const auto follow = call.parameter("follow")) {
    if (*follow != "all" && *follow != "1") {
      co_return bad_field("follow", "follow must be 1 (to the exit) or all (to the last output)");
    }
    options.follow = *follow == "all" ? node::Follow::all : node::Follow::until_exit;
  }
  auto served = co_await attach(api, call, std::move(found), std::move(options));
  co_return served;
}

}  // namespace talon::server::api
