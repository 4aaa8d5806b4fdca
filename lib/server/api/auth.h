#pragma once
// Who is calling. A key is "tk_" and 48 hex digits; only its SHA-256 is stored. On the unix
// socket the kernel says who it is: root and the daemon's own uid are node admin and owner of
// the default tenant (decision 39). Credentials in a query are refused.

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "server/async/task.h"
#include "server/http/http.h"
#include "store/store.h"
#include "store/tables.h"

namespace talon::server::api {

enum class Role { open, viewer, developer, owner, node_admin };
constexpr std::string_view to_string(Role role) {
  switch (role) {
    case Role::open: return "open";
    case Role::viewer: return "viewer";
    case Role::developer: return "developer";
    case Role::owner: return "owner";
    case Role::node_admin: return "node_admin";
  }
  return "open";
}
std::optional<Role> parse_role(std::string_view text);

struct Principal {
  std::string tenant;
  std::string actor = "anonymous";  // key id, or "unix:<uid>"
  Role role = Role::open;
  std::optional<std::string> sandbox;  // the only one it may touch
};

struct NewKey {
  store::ApiKeyRow row;
  std::string secret;  // shown once
};
NewKey make_key(std::string tenant, std::string name, Role role);

// The default tenant and the admin key at first start: <data>/keys/admin.key (0600). Returns the
// tenant's id. Blocking.
Result<std::string> ensure_admin(store::Store& store, const std::string& data_dir);

class Auth {
 public:
  Auth(store::Store* store, Offload* offload, std::string default_tenant);

  // unauthenticated when there is no credential or none that is good now.
  Task<Principal> identify(const http::Request& request);
  // Keys are kept in memory by hash; a change of keys empties that.
  void forget() {
    cache_.clear();
    ++forgotten_;
  }

 private:
  store::Store* store_;
  Offload* offload_;
  std::string default_tenant_;
  std::unordered_map<std::string, store::ApiKeyRow> cache_;
  std::uint64_t forgotten_ = 0;
};

// Whether the credential of a long answer is still good: asked again now and then, so that a key
// that was revoked or has expired does not read on through a stream that it once opened.
class Standing {
 public:
  Standing(Auth& auth, const http::Request& request) : auth_(&auth), request_(&request) {}
  // Asks at most once in kEvery; unauthenticated as identify().
  Task<> check();

 private:
  static constexpr Millis kEvery{1'000};
  Auth* auth_;
  const http::Request* request_;
  std::int64_t next_ns_ = 0;
};

}  // namespace talon::server::api
