#include "client/address.h"

#include <unistd.h>

#include <algorithm>
#include <boost/url/parse.hpp>
#include <boost/url/url_view.hpp>
#include <cstdlib>

namespace talon::client {

namespace {

constexpr std::uint16_t kDefaultPort = 7300;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::unexpected<Error> bad_url(const std::string& url) {
  return fail(
      Code::invalid_request,
      "TALON_URL is \"" + url + "\"; write http://HOST[:PORT], https://HOST[:PORT] or unix:/PATH");
}

Result<Address> parse_http(const std::string& url) {
  const auto parsed = boost::urls::parse_uri(url);
  if (!parsed) {
    return bad_url(url);
  }
  Address out;
  out.text = url;
  if (parsed->scheme() == "https") {
    out.kind = Address::Kind::tls;
  } else if (parsed->scheme() == "http") {
    out.kind = Address::Kind::tcp;
  } else {
    return bad_url(url);
  }
  if (parsed->has_userinfo() || parsed->has_query() || parsed->has_fragment() ||
      parsed->host_address().empty() ||
      (parsed->has_port() && std::to_string(parsed->port_number()) != parsed->port()) ||
      parsed->port() == "0") {
    return bad_url(url);
  }
  out.host = parsed->host_address();
  const bool tls = out.kind == Address::Kind::tls;
  out.port =
      parsed->has_port() ? parsed->port_number() : static_cast<std::uint16_t>(tls ? 443 : 80);
  out.prefix = parsed->encoded_path();
  while (out.prefix.ends_with('/')) {
    out.prefix.pop_back();
  }
  return out;
}

}  // namespace

Result<Address> parse_address(const std::string& url, const std::string& key,
                              const std::string& socket, bool socket_usable) {
  Address out;
  if (url.starts_with("unix:/")) {
    out.host = url.substr(5);
    out.text = url;
  } else if (!url.empty()) {
    TALON_TRY(parsed, parse_http(url));
    out = std::move(parsed);
  } else if (socket_usable || key.empty()) {
    out.host = socket;
    out.text = "unix:" + socket;
  } else {
    out.kind = Address::Kind::tcp;
    out.host = "127.0.0.1";
    out.port = kDefaultPort;
    out.text = "http://127.0.0.1:" + std::to_string(kDefaultPort);
  }
  // It becomes a header line.
  if (!std::ranges::all_of(key, [](unsigned char c) { return c > 0x20 && c < 0x7f; })) {
    return fail(Code::invalid_request, "TALON_API_KEY has characters that no key has");
  }
  out.key = key;
  return out;
}

Result<Address> address_of_environment() {
  std::string run_dir = variable("TALON_RUN_DIR");
  if (run_dir.empty()) {
    run_dir = "/run/talon";
  }
  const std::string socket = run_dir + "/talond.sock";
  return parse_address(variable("TALON_URL"), variable("TALON_API_KEY"), socket,
                       ::access(socket.c_str(), R_OK | W_OK) == 0);
}

}  // namespace talon::client
