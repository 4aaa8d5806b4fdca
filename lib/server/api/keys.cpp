#include "base/id.h"
#include "server/api/api.h"
#include "server/api/decode_requests.h"
#include "server/api/errors.h"
#include "server/api/text.h"
#include "server/api/views.h"

namespace talon::server::api {

namespace json = boost::json;

Task<http::Response> list_api_keys(Api& api, Call& call) {
  auto limit = page_limit(call);
  TALON_CO_TRY(most, std::move(limit));
  std::function<Result<std::vector<store::ApiKeyRow>>()> job =
      [store = &api.store(), tenant = call.tenant(), most,
       after = call.parameter("cursor").value_or("")]() -> Result<std::vector<store::ApiKeyRow>> {
    std::vector<store::ApiKeyRow> rows;
    TALON_CHECK(store->read([&](store::Db& db) -> Result<> {
      TALON_TRY(found, store::list_keys(db, tenant, after, most + 1));
      rows = std::move(found);
      return {};
    }));
    return rows;
  };
  auto listed = co_await api.offload().run<std::vector<store::ApiKeyRow>>(std::move(job));
  TALON_CO_TRY(rows, std::move(listed));
  const bool more = rows.size() > static_cast<std::size_t>(most);
  if (more) {
    rows.resize(static_cast<std::size_t>(most));
  }
  json::array items;
  for (const store::ApiKeyRow& row : rows) {
    items.emplace_back(key_view(row));
  }
  json::object body;
  body["items"] = std::move(items);
  body["next_cursor"] = more ? json::value(rows.back().id) : json::value(nullptr);
  co_return json_response(200, body);
}

Task<http::Response> create_api_key(Api& api, Call& call) {
  auto decoded = decode_key(call.request->body);
  TALON_CO_TRY(request, std::move(decoded));
  if (request.role > call.who.role) {
    co_return fail(Code::forbidden, "a key cannot be given more than its maker has: " +
                                        std::string{to_string(call.who.role)});
  }
  NewKey key = make_key(call.tenant(), request.name, request.role);
  key.row.sandbox = request.sandbox;
  if (request.ttl) {
    key.row.expires_ms = key.row.created_ms + request.ttl->count();
  }
  call.target = key.row.id;
  std::function<Result<>()> job = [store = &api.store(), row = key.row,
                                   claim = call.idempotency]() mutable -> Result<> {
    return store->write([&](store::Db& db) -> Result<> {
      if (row.sandbox) {
        auto bound = store::get_sandbox(db, row.tenant, *row.sandbox);
        if (!bound) {
          return bad_field("sandbox", "there is no sandbox " + *row.sandbox);
        }
      }
      TALON_CHECK(store::insert_key(db, row));
      if (claim) {
        claim->target = row.id;
        return store::finish_idempotency(db, *claim);
      }
      return {};
    });
  };
  auto written = co_await api.offload().run<void>(std::move(job));
  if (!written) {
    co_return std::unexpected(std::move(written.error()));
  }
  json::object body = key_view(key.row);
  if (call.idempotency) {
    call.idempotency->target = key.row.id;
    body["key"] = nullptr;  // shown once: a replay answers without the secret
    call.stored_body = json_text(body) + "\n";
  }
  body["key"] = key.secret;
  co_return json_response(201, body);
}

Task<http::Response> revoke_api_key(Api& api, Call& call) {
  const std::string& id = call.params[0];
  if (!is_id(IdKind::key, id)) {
    co_return fail(Code::not_found, "there is no key " + id);
  }
  std::function<Result<>()> job = [store = &api.store(), tenant = call.tenant(), id,
                                   role = call.who.role]() -> Result<> {
    return store->write([&](store::Db& db) -> Result<> {
      TALON_TRY(key, store::get_key(db, tenant, id));
      if (parse_role(key.role).value_or(Role::node_admin) > role) {
        return fail(Code::forbidden, "this key has the role " + key.role + ", which is more than " +
                                         std::string{to_string(role)} +
                                         ": it cannot be revoked "
                                         "with yours");
      }
      return store::revoke_key(db, tenant, id, system_clock().wall_ms());
    });
  };
  auto done = co_await api.offload().run<void>(std::move(job));
  if (!done) {
    co_return std::unexpected(std::move(done.error()));
  }
  api.auth().forget();
  http::Response response;
  response.status = 204;
  co_return response;
}

}  // namespace talon::server::api
