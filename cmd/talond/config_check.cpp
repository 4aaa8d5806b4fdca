// The rules between configuration values.

#include <arpa/inet.h>

#include <charconv>

#include "config.h"
#include "server/http/http.h"

namespace talon {

namespace {

using server::http::ListenAddress;

// Host ids end at 2^32 - 2; the highest is "nobody" to the kernel (user_namespaces(7)).
constexpr std::uint64_t kIdEnd = 0xFFFFFFFFULL;

Result<> check_directory(std::string_view key, const std::string& path) {
  if (!path.starts_with('/') || path.find('\0') != std::string::npos) {
    return bad_field(std::string{key},
                     std::string{key} + " must be an absolute path, not \"" + path + "\"");
  }
  return {};
}

bool is_cidr(const std::string& text) {
  const auto slash = text.find('/');
  const std::string address = text.substr(0, slash);
  unsigned char raw[16];
  const int bits = ::inet_pton(AF_INET, address.c_str(), raw) == 1    ? 32
                   : ::inet_pton(AF_INET6, address.c_str(), raw) == 1 ? 128
                                                                      : 0;
  if (bits == 0 || slash == std::string::npos) {
    return bits != 0;
  }
  int length = -1;
  const char* const last = text.data() + text.size();
  const auto [end, code] = std::from_chars(text.data() + slash + 1, last, length);
  return code == std::errc{} && end == last && length >= 0 && length <= bits;
}

// Decision 39. Keys and file contents would travel readable for everybody on the way.
Result<> check_listener(const Config& config, std::string_view key, const std::string& text) {
  auto address = server::http::parse_listen(text);
  if (!address) {
    Error error = std::move(address).error();
    error.field = key;
    return std::unexpected(std::move(error).in(key));
  }
  if (address->unix_socket || server::http::is_loopback(*address) || !config.tls_cert.empty() ||
      !config.trusted_proxy.empty()) {
    return {};
  }
  return bad_field(std::string{key},
                   std::string{key} + " " + text +
                       " is reachable from other machines and would carry keys unencrypted; give "
                       "--tls-cert and --tls-key, or --trusted-proxy CIDR if a proxy in front "
                       "ends TLS, or listen on 127.0.0.1");
}

}  // namespace

Result<> validate(const Config& config) {
  TALON_CHECK(check_directory("data_dir", config.data_dir));
  TALON_CHECK(check_directory("run_dir", config.run_dir));
  if (!config.cgroup.empty()) {
    TALON_CHECK(check_directory("cgroup", config.cgroup));
  }
  if (config.tls_cert.empty() != config.tls_key.empty()) {
    return bad_field("tls_key", "tls_cert and tls_key belong together: give both or neither");
  }
  for (const std::string& block : config.trusted_proxy) {
    if (!is_cidr(block)) {
      return bad_field("trusted_proxy",
                       "trusted_proxy \"" + block + "\" is not a CIDR block like 10.0.0.0/8");
    }
  }
  for (const std::string& text : config.listen) {
    TALON_CHECK(check_listener(config, "listen", text));
  }
  if (!config.metrics_listen.empty()) {
    TALON_CHECK(check_listener(config, "metrics_listen", config.metrics_listen));
  }
  if (config.retention_days < 1 || config.retention_days > 36'500) {
    return bad_field("retention_days", "retention_days must be from 1 to 36500");
  }
  // Ids and descriptors of what is made ahead are taken from those of sandboxes.
  if ((config.pools_high != 0 && config.pools_low > config.pools_high) || config.pools_high > 256) {
    return bad_field("pools", "pools.low is at most pools.high, and that at most 256");
  }
  if (config.pools_max_warm > 1024) {
    return bad_field("pools", "pools.max_warm is at most 1024");
  }
  if (config.ids_count == 0 || config.ids_base < limits::kIdRange) {
    return bad_field("ids",
                     "ids.count must be at least 1 and ids.base at least 65537, so that "
                     "no sandbox shares an id with the host");
  }
  if (config.ids_base + std::uint64_t{config.ids_count} * limits::kIdRange > kIdEnd) {
    return bad_field("ids",
                     "ids.base + ids.count * 65537 passes the end of the host's ids; "
                     "lower ids.count");
  }
  return {};
}

}  // namespace talon
