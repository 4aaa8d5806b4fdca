#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <charconv>

#include "server/http/http.h"

namespace talon::server::http {

namespace {

Result<std::uint16_t> parse_port(std::string_view text, std::string_view whole) {
  unsigned value = 0;
  const char* end = text.data() + text.size();
  auto [at, ec] = std::from_chars(text.data(), end, value);
  if (text.empty() || ec != std::errc{} || at != end || value > 65535) {
    return fail(Code::invalid_request,
                "listen address \"" + std::string(whole) + "\": the port must be 0 to 65535");
  }
  return static_cast<std::uint16_t>(value);
}

Result<ListenAddress> parse_unix(std::string_view path, std::string_view whole) {
  // unix(7): sun_path is 108 bytes with its NUL.
  if (path.empty() || path.front() != '/' || path.size() >= sizeof(sockaddr_un::sun_path) ||
      path.find('\0') != std::string_view::npos) {
    return fail(Code::invalid_request, "listen address \"" + std::string(whole) +
                                           "\": needs an absolute path of at most 107 bytes");
  }
  ListenAddress out;
  out.unix_socket = true;
  out.host = path;
  return out;
}

}  // namespace

Result<ListenAddress> parse_listen(std::string_view text) {
  constexpr std::string_view kUnix = "unix:";
  if (text.starts_with(kUnix)) {
    return parse_unix(text.substr(kUnix.size()), text);
  }
  const bool bracket = text.starts_with('[');
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos || (bracket && (colon == 0 || text[colon - 1] != ']'))) {
    return fail(Code::invalid_request, "listen address \"" + std::string(text) +
                                           "\": write ADDRESS:PORT, [IPV6]:PORT or unix:PATH");
  }
  ListenAddress out;
  out.host = bracket ? text.substr(1, colon - 2) : text.substr(0, colon);
  TALON_TRY(port, parse_port(text.substr(colon + 1), text));
  out.port = port;
  unsigned char raw[16];
  const int family = bracket ? AF_INET6 : AF_INET;
  if (out.host.find('\0') != std::string::npos || ::inet_pton(family, out.host.c_str(), raw) != 1) {
    // No resolver in this process (docs: build.md 1.2), and a name may mean several addresses.
    return fail(Code::invalid_request, "listen address \"" + std::string(text) +
                                           "\": write a literal address, not a name"
                                           " (IPv6 in brackets)");
  }
  return out;
}

bool is_loopback(const ListenAddress& address) {
  if (address.unix_socket) {
    return true;
  }
  in_addr four{};
  if (::inet_pton(AF_INET, address.host.c_str(), &four) == 1) {
    return (ntohl(four.s_addr) >> 24) == 127;
  }
  in6_addr six{};
  if (::inet_pton(AF_INET6, address.host.c_str(), &six) == 1) {
    if (IN6_IS_ADDR_V4MAPPED(&six)) {
      return six.s6_addr[12] == 127;
    }
    return IN6_IS_ADDR_LOOPBACK(&six);
  }
  return false;
}

}  // namespace talon::server::http
