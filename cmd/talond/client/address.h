#pragma once
// Where talond is, from the environment: TALON_URL and TALON_API_KEY, else the unix socket.

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace talon::client {

struct Address {
  enum class Kind { unix_socket, tcp, tls };
  Kind kind = Kind::unix_socket;
  std::string host;  // a path, a name or a literal address (IPv6 without brackets)
  std::uint16_t port = 0;
  std::string prefix;  // of every path, "" or "/below"
  std::string key;     // "" = none
  std::string text;    // for people: "unix:/run/talon/talond.sock", "https://talon.example"
};

// TALON_URL is http://HOST[:PORT][/PREFIX], https://… or unix:/PATH. Without it: the socket
// <TALON_RUN_DIR>/talond.sock when this user may open it, else 127.0.0.1:7300 if there is a
// TALON_API_KEY. Errors: invalid_request.
Result<Address> address_of_environment();
// The same from texts; "" = not set. `socket_usable`: whether that socket may be opened.
Result<Address> parse_address(const std::string& url, const std::string& key,
                              const std::string& socket, bool socket_usable);

// Literal addresses of a host name, in the order to try them: the text itself, localhost,
// /etc/hosts, DNS (resolv.conf(5)). Not getaddrinfo: glibc's may load modules of the host into a
// static binary (docs/adr/0003). Blocks as long as the resolver does. Errors: unavailable.
Result<std::vector<std::string>> resolve(const std::string& host);

}  // namespace talon::client
