// Terminals: a process under …/processes too, with a size, one writer and any number of readers.

#include "server/api/pty.h"
#include "server/api/attach.h"
#include "server/api/decode.h"
#include "server/api/decode_requests.h"
#include "server/http/websocket.h"

namespace talon::server::api {

namespace {

// Small: what was printed before an interrupt is on its way before the answer to it.
constexpr std::size_t kWindow = 64 * 1024;

// The right to type, if nobody has it or the caller takes it.
Result<std::shared_ptr<node::Writer>> claim(const node::Node::Found& found, bool steal) {
  const node::ExecPtr& exec = found.exec;
  if (exec == nullptr || exec->exited) {
    auto error = fail(Code::wrong_state, "the process " + found.row.id + " has ended");
    error.error().field = "exited";
    return error;
  }
  if (exec->writer && !steal) {
    auto error = fail(Code::conflict, "somebody else writes to this terminal; steal=1 takes over");
    error.error().field = "write";
    return error;
  }
  auto writer = std::make_shared<node::Writer>();
  if (const auto former = std::exchange(exec->writer, writer)) {
    former->held = false;
    found.actor->lift_pace(found.row.id);  // its pace does not count any more
    if (former->lost) {
      former->lost();
    }
  }
  return writer;
}

Result<bool> flag(const Call& call, std::string_view name) {
  const auto given = call.parameter(name);
  return given ? query_flag(name, *given) : Result<bool>{false};
}

}  // namespace

Task<FoundPty> find_pty(Api& api, Call& call) {
  auto looked = co_await api.node().exec(call.tenant(), call.params[0], call.params[1]);
  TALON_CO_TRY(found, std::move(looked));
  const auto terminal = node::terminal_of(found.row);
  if (!terminal) {
    co_return fail(Code::not_found, "the process " + call.params[1] + " has no terminal");
  }
  co_return FoundPty{std::move(found), *terminal};
}

Task<http::Response> attach_pty(Api& api, Call& call) {
  if (auto refused = http::refuse_upgrade(*call.request)) {
    co_return std::move(*refused);
  }
  auto wanted = flag(call, "write");
  TALON_CO_TRY(write, std::move(wanted));
  auto taken = flag(call, "steal");
  TALON_CO_TRY(steal, std::move(taken));
  if (steal && !write) {
    co_return bad_field("steal", "steal=1 needs write=1");
  }
  AttachOptions options;
  options.from = call.parameter("from").value_or("0");
  options.tty = true;
  options.window = kWindow;
  options.may_act = call.who.role >= Role::developer;
  if (write && !options.may_act) {
    co_return fail(Code::forbidden, "write=1 needs the role developer; the key has " +
                                        std::string{to_string(call.who.role)});
  }
  auto looked = co_await find_pty(api, call);
  TALON_CO_TRY(pty, std::move(looked));
  if (options.from != "end") {  // before anybody loses the terminal for it
    auto parsed = isolate::parse_cursor(options.from);
    if (!parsed) {
      co_return bad_field("from", "from must be a cursor that an answer gave, 0 or end");
    }
  }
  if (write) {
    auto claimed = claim(pty.found, steal);
    TALON_CO_TRY(writer, std::move(claimed));
    options.writer = std::move(writer);
  }
  auto served = co_await attach(api, call, std::move(pty.found), std::move(options));
  co_return served;
}

Task<http::Response> resize_pty(Api& api, Call& call) {
  auto decoded = decode_resize(call.request->body);
  TALON_CO_TRY(size, std::move(decoded));
  auto looked = co_await find_pty(api, call);
  TALON_CO_TRY(pty, std::move(looked));
  auto resized = co_await api.node().resize_exec(call.tenant(), call.params[0], pty.found.row.id,
                                                 size.cols, size.rows);
  if (!resized) {
    co_return std::unexpected(std::move(resized.error()));
  }
  http::Response response;
  response.status = 204;
  co_return response;
}

}  // namespace talon::server::api
