// Idempotency-Key on creating POSTs: per tenant, 24 h, across restarts. The claim is a row before
// the act; the id that the act makes is written in the act's own transaction, so that after a
// crash in between the same key finds what it made instead of making another.

#include "base/log.h"
#include "server/api/api.h"
#include "server/api/errors.h"
#include "server/api/text.h"
#include "server/api/views.h"

namespace talon::server::api {

namespace {

constexpr std::size_t kKeyBytes = 255;
constexpr std::int64_t kLifetimeMs = 24ll * 3600 * 1000;

std::string fingerprint(const http::Request& request) {
  std::string text = request.method + "\n" + request.path + "\n" + request.query + "\n";
  text += request.body;
  return sha256_hex(text);
}

http::Response replay(const store::IdempotencyRow& row) {
  http::Response response;
  response.status = row.status;
  response.body = row.response;
  if (row.status >= 400) {
    response.content_type = "application/problem+json";
  }
  response.headers.emplace_back("Idempotent-Replayed", "true");
  return response;
}

}  // namespace

// Claims the key for this call; an answer when it is not ours.
Task<std::optional<http::Response>> Api::claim(Call& call) {
  const http::Request& request = *call.request;
  const std::string_view key = request.header("idempotency-key");
  // An empty one (a variable that was not set) must not make a retry unsafe without a word.
  if (request.count("idempotency-key") > 1 || key.empty() || key.size() > kKeyBytes) {
    co_return bad_field("Idempotency-Key", "give one Idempotency-Key of 1 to 255 characters");
  }
  store::IdempotencyRow row;
  row.tenant = call.who.tenant;
  row.key = key;
  row.route = call.route->operation;
  row.request_hash = fingerprint(request);
  row.created_ms = system_clock().wall_ms();
  std::function<Result<std::optional<store::IdempotencyRow>>()> job =
      [store = parts_.store, row]() -> Result<std::optional<store::IdempotencyRow>> {
    std::optional<store::IdempotencyRow> found;
    TALON_CHECK(store->write([&](store::Db& db) -> Result<> {
      TALON_CHECK(store::expire_idempotency(db, row.created_ms - kLifetimeMs));
      TALON_TRY(present, store::claim_idempotency(db, row));
      found = std::move(present);
      return {};
    }));
    return found;
  };
  auto claimed = co_await parts_.offload->run<std::optional<store::IdempotencyRow>>(std::move(job));
  TALON_CO_TRY(present, std::move(claimed));
  if (!present) {
    call.idempotency = std::move(row);
    co_return std::nullopt;
  }
  if (present->request_hash != row.request_hash || present->route != row.route) {
    auto error = fail(Code::conflict,
                      "this Idempotency-Key was used for another request; use a "
                      "new key for a new request");
    error.error().field = "Idempotency-Key";
    co_return error;
  }
  if (present->status != 0) {
    co_return replay(*present);
  }
  if (present->created_ms >= started_ms_) {
    auto error = fail(Code::busy,
                      "the first request with this Idempotency-Key is still being "
                      "worked on; try again");
    error.error().field = "Idempotency-Key";
    co_return error;
  }
  auto recovered = co_await recover(call, std::move(*present));
  TALON_CO_TRY(response, std::move(recovered));
  if (response.status == 0) {
    call.idempotency = std::move(row);
    co_return std::nullopt;
  }
  co_return response;
}

// A claim of a daemon that died. If it had made its thing, that is the answer; if not, the claim
// is ours (status 0).
Task<http::Response> Api::recover(Call& call, store::IdempotencyRow row) {
  http::Response response;
  response.status = 0;
  if (row.target.empty()) {
    co_return response;
  }
  if (row.route == "createSandbox") {
    auto found = co_await node().row(row.tenant, row.target);
    if (!found) {
      co_return response;
    }
    response = json_response(201, sandbox_view(*found, *this));
  } else if ((row.route == "createProcess" || row.route == "createPty") && !call.params.empty()) {
    auto found = co_await node().exec(row.tenant, call.params.front(), row.target);
    if (!found) {
      co_return response;
    }
    response = json_response(201, process_view(found->row));
  } else {
    co_return response;
  }
  row.status = response.status;
  row.response = response.body;
  std::function<Result<>()> job = [store = parts_.store, row]() -> Result<> {
    return store->write(
        [&](store::Db& db) -> Result<> { return store::finish_idempotency(db, row); });
  };
  auto written = co_await parts_.offload->run<void>(std::move(job));
  if (!written) {
    co_return std::unexpected(std::move(written.error()));
  }
  response.headers.emplace_back("Idempotent-Replayed", "true");
  co_return response;
}

Task<http::Response> Api::with_idempotency(Call& call) {
  auto claimed = co_await claim(call);
  TALON_CO_TRY(answer, std::move(claimed));
  if (answer) {
    co_return std::move(*answer);
  }
  auto served = co_await call.route->handler(*this, call);
  store::IdempotencyRow row = *call.idempotency;
  http::Response response;
  if (served) {
    response = std::move(*served);
  } else {
    response = render(to_problem(served.error()), call.request->id);
  }
  // What made nothing is forgotten, so that the corrected request may use the same key. What made
  // something (also a 504 while it is being made, or a failed sandbox) is the answer from now on.
  const bool keep = !row.target.empty() || response.status < 400;
  row.status = response.status;
  row.response = call.stored_body.empty() ? response.body : call.stored_body;
  std::function<Result<>()> job = [store = parts_.store, row, keep]() -> Result<> {
    return store->write([&](store::Db& db) -> Result<> {
      return keep ? store::finish_idempotency(db, row)
                  : store::drop_idempotency(db, row.tenant, row.key);
    });
  };
  auto written = co_await parts_.offload->run<void>(std::move(job));
  if (!written) {
    log_error("idempotency", {{"request", call.request->id}, {"error", written.error().message}});
  }
  co_return response;
}

}  // namespace talon::server::api
