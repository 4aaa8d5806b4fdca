// Warm sandboxes of chosen images, for the node admin.

#include "server/api/prewarm.h"

#include "isolate/image/image.h"
#include "server/api/api.h"
#include "server/api/decode.h"
#include "server/api/text.h"
#include "server/node/codec.h"

namespace talon::server::api {

namespace json = boost::json;

json::object prewarm_view(const node::Prewarmed& warm) {
  const isolate::Pool::Warm& state = warm.state;
  json::object out;
  out["image"] = state.image;
  out["generation"] = state.generation;
  out["storage"] = node::to_string(warm.storage);
  out["size"] = state.size;
  out["ready"] = state.ready;
  out["status"] = !state.problem.empty()     ? "failing"
                  : state.ready < state.size ? "filling"
                                             : "ready";
  out["problem"] = state.problem.empty() ? json::value(nullptr) : json::value(state.problem);
  return out;
}

Result<node::PrewarmWish> decode_prewarm(std::string_view body) {
  node::PrewarmWish wish;
  TALON_TRY(object, parse_body(body));
  Fields fields(object);
  TALON_TRY(size, fields.whole("size", 1, 1024));
  if (!size) {
    return bad_field("size", "size says how many sandboxes are kept warm; DELETE ends it");
  }
  wish.size = *size;
  TALON_TRY(storage, fields.word("storage", {"disk", "memory", "readonly"}));
  wish.storage = static_cast<isolate::Storage>(storage.value_or(0));
  TALON_CHECK(fields.done());
  return wish;
}

Task<http::Response> list_prewarm(Api& api, Call& call) {
  static_cast<void>(call);
  json::array items;
  for (const node::Prewarmed& warm : api.node().prewarmed()) {
    items.emplace_back(prewarm_view(warm));
  }
  json::object body;
  body["items"] = std::move(items);
  co_return json_response(200, body);
}

Task<http::Response> put_prewarm(Api& api, Call& call) {
  call.target = call.params[0];
  if (auto named = isolate::check_image_name(call.params[0]); !named) {
    co_return std::unexpected(std::move(named).error());
  }
  auto decoded = decode_prewarm(call.request->body);
  TALON_CO_TRY(wish, std::move(decoded));
  wish.image = call.params[0];
  auto set = co_await api.node().set_prewarm(std::move(wish));
  if (!set) {
    co_return std::unexpected(std::move(set).error());
  }
  for (const node::Prewarmed& warm : api.node().prewarmed()) {
    if (warm.state.image == call.params[0]) {
      co_return json_response(200, prewarm_view(warm));
    }
  }
  co_return fail(Code::unavailable, "talond is shutting down");
}

Task<http::Response> delete_prewarm(Api& api, Call& call) {
  call.target = call.params[0];
  node::PrewarmWish none;
  none.image = call.params[0];
  auto set = co_await api.node().set_prewarm(std::move(none));
  if (!set) {
    co_return std::unexpected(std::move(set).error());
  }
  http::Response response;
  response.status = 204;
  co_return response;
}

}  // namespace talon::server::api
