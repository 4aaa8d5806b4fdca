#include "server/api/auth.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/clock.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/log.h"
#include "server/api/text.h"

namespace talon::server::api {

namespace {

constexpr std::size_t kCachedKeys = 4096;
constexpr std::string_view kKeyFile = "admin.key";

// The secret as presented, "" when there is none.
Result<std::string> presented(const http::Request& request) {
  const std::string_view bearer = request.header("authorization");
  const std::string_view key = request.header("x-api-key");
  if (request.count("authorization") > 1 || request.count("x-api-key") > 1 ||
      (!bearer.empty() && !key.empty())) {
    return fail(Code::unauthenticated,
                "give one credential: Authorization: Bearer KEY, or "
                "X-API-Key: KEY");
  }
  if (bearer.empty()) {
    return std::string{key};
  }
  constexpr std::string_view scheme = "bearer ";
  if (bearer.size() <= scheme.size()) {
    return fail(Code::unauthenticated, "Authorization must be: Bearer KEY");
  }
  for (std::size_t i = 0; i < scheme.size(); ++i) {
    if ((bearer[i] | (scheme[i] == ' ' ? 0 : 0x20)) != scheme[i]) {
      return fail(Code::unauthenticated, "Authorization must be: Bearer KEY");
    }
  }
  return std::string{bearer.substr(scheme.size())};
}

}  // namespace

std::optional<Role> parse_role(std::string_view text) {
  for (const Role role : {Role::viewer, Role::developer, Role::owner, Role::node_admin}) {
    if (to_string(role) == text) {
      return role;
    }
  }
  return std::nullopt;
}

NewKey make_key(std::string tenant, std::string name, Role role) {
  NewKey key;
  key.secret = "tk_" + random_hex(24);
  key.row.id = new_id(IdKind::key);
  key.row.tenant = std::move(tenant);
  key.row.name = std::move(name);
  key.row.role = to_string(role);
  key.row.hash = sha256_hex(key.secret);
  key.row.hint = key.secret.substr(key.secret.size() - 4);
  key.row.created_ms = system_clock().wall_ms();
  return key;
}

namespace {

// Revoked keys are known, too.
Result<bool> is_known(store::Store& store, const std::string& secret) {
  bool known = false;
  TALON_CHECK(store.read([&](store::Db& db) -> Result<> {
    TALON_TRY(found, store::find_key_by_hash(db, sha256_hex(secret)));
    known = found.has_value();
    return {};
  }));
  return known;
}

}  // namespace

Result<std::string> ensure_admin(store::Store& store, const std::string& data_dir) {
  TALON_TRY(data, open_at(AT_FDCWD, data_dir, O_RDONLY | O_DIRECTORY));
  if (::mkdirat(data.get(), "keys", 0700) != 0 && errno != EEXIST) {
    return fail_sys(errno, "make " + data_dir + "/keys");
  }
  TALON_TRY(keys, open_at(data.get(), "keys", O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  std::optional<store::TenantRow> tenant;
  TALON_CHECK(store.read([&](store::Db& db) -> Result<> {
    TALON_TRY(found, store::find_tenant_by_name(db, "default"));
    tenant = std::move(found);
    return {};
  }));
  if (!tenant) {
    tenant = store::TenantRow{
        .id = new_id(IdKind::tenant), .name = "default", .created_ms = system_clock().wall_ms()};
    TALON_CHECK(
        store.write([&](store::Db& db) -> Result<> { return store::insert_tenant(db, *tenant); }));
  }
  const std::string file{kKeyFile};
  NewKey key = make_key(tenant->id, "admin", Role::node_admin);
  // The file first: a key in the store whose secret nobody has would be of no use. So a start that
  // ended in between has left one that the store does not know yet.
  if (const auto text = read_file_at(keys.get(), file, 4096)) {
    const std::string secret = text->substr(0, text->find('\n'));
    TALON_TRY(known, is_known(store, secret));
    if (known || secret.size() != key.secret.size() || !secret.starts_with("tk_")) {
      return tenant->id;
    }
    key.secret = secret;
    key.row.hash = sha256_hex(secret);
    key.row.hint = secret.substr(secret.size() - 4);
  } else if (text.error().sys == ENOENT) {
    TALON_CHECK(replace_file_at(keys.get(), file, key.secret + "\n", 0600));
  } else {
    return std::unexpected(text.error());
  }
  auto written =
      store.write([&](store::Db& db) -> Result<> { return store::insert_key(db, key.row); });
  if (!written) {
    ::unlinkat(keys.get(), file.c_str(), 0);
    return std::unexpected(std::move(written.error()).in("store the admin key"));
  }
  log_info("admin_key", {{"file", data_dir + "/keys/" + file}, {"key", key.row.id}});
  return tenant->id;
}

Auth::Auth(store::Store* store, Offload* offload, std::string default_tenant)
    : store_(store), offload_(offload), default_tenant_(std::move(default_tenant)) {}

Task<Principal> Auth::identify(const http::Request& request) {
  auto given = presented(request);
  TALON_CO_TRY(secret, std::move(given));
  Principal who;
  if (secret.empty()) {
    if (request.peer.unix_socket && (request.peer.uid == 0 || request.peer.uid == ::geteuid())) {
      who.tenant = default_tenant_;
      who.actor = "unix:" + std::to_string(request.peer.uid);
      who.role = Role::node_admin;
      co_return who;
    }
    co_return fail(Code::unauthenticated,
                   "no credential: send Authorization: Bearer KEY (the first key lies in "
                   "keys/admin.key of the data directory)");
  }
  const std::string hash = sha256_hex(secret);
  auto cached = cache_.find(hash);
  while (cached == cache_.end()) {
    const std::uint64_t seen = forgotten_;
    std::function<Result<std::optional<store::ApiKeyRow>>()> job =
        [store = store_, hash]() -> Result<std::optional<store::ApiKeyRow>> {
      std::optional<store::ApiKeyRow> row;
      TALON_CHECK(store->read([&](store::Db& db) -> Result<> {
        TALON_TRY(found, store::find_key_by_hash(db, hash));
        row = std::move(found);
        return {};
      }));
      return row;
    };
    auto looked = co_await offload_->run<std::optional<store::ApiKeyRow>>(std::move(job));
    TALON_CO_TRY(row, std::move(looked));
    if (!row) {
      co_return fail(Code::unauthenticated, "the key is not known");
    }
    if (seen != forgotten_) {
      // Keys changed during the read: what it saw may be of before, and must not stay here.
      cached = cache_.find(hash);
      continue;
    }
    if (cache_.size() >= kCachedKeys) {
      cache_.clear();
    }
    cached = cache_.insert_or_assign(hash, std::move(*row)).first;
  }
  const store::ApiKeyRow& row = cached->second;
  if (row.revoked_ms) {
    co_return fail(Code::unauthenticated, "the key " + row.id + " was revoked");
  }
  if (row.expires_ms && *row.expires_ms <= system_clock().wall_ms()) {
    co_return fail(Code::unauthenticated, "the key " + row.id + " has expired");
  }
  who.tenant = row.tenant;
  who.actor = row.id;
  who.role = parse_role(row.role).value_or(Role::open);
  who.sandbox = row.sandbox;
  co_return who;
}

Task<> Standing::check() {
  const std::int64_t now = system_clock().mono_ns();
  if (now < next_ns_) {
    co_return Result<>{};
  }
  auto known = co_await auth_->identify(*request_);
  if (!known) {
    co_return std::unexpected(std::move(known.error()));
  }
  next_ns_ = now + kEvery.count() * 1'000'000;
  co_return Result<>{};
}

}  // namespace talon::server::api
