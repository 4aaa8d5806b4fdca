// Host names to addresses, without NSS (address.h says why).

#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <resolv.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "base/fd.h"
#include "client/address.h"

namespace talon::client {

namespace {

bool is_literal(const std::string& host) {
  in6_addr raw{};
  return ::inet_pton(AF_INET, host.c_str(), &raw) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &raw) == 1;
}

// hosts(5): an address, then its names.
std::vector<std::string> from_hosts_file(const std::string& host) {
  std::vector<std::string> found;
  const auto text = read_file_at(AT_FDCWD, "/etc/hosts");
  std::istringstream lines(text.value_or(""));
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string address;
    std::string name;
    words >> address;
    while (words >> name) {
      if (name == host && is_literal(address)) {
        found.push_back(address);
      }
    }
  }
  return found;
}

void append_records(std::vector<std::string>& found, struct __res_state& state,
                    const std::string& host, ns_type type) {
  std::array<unsigned char, 4096> answer;
  const int size = ::res_nsearch(&state, host.c_str(), ns_c_in, type, answer.data(), answer.size());
  ns_msg message;
  if (size < 0 || size > static_cast<int>(answer.size()) ||
      ::ns_initparse(answer.data(), size, &message) != 0) {
    return;
  }
  const int family = type == ns_t_a ? AF_INET : AF_INET6;
  const std::size_t length = type == ns_t_a ? sizeof(in_addr) : sizeof(in6_addr);
  for (int i = 0; i < ns_msg_count(message, ns_s_an); ++i) {
    ns_rr record;
    std::array<char, INET6_ADDRSTRLEN> text;
    if (::ns_parserr(&message, ns_s_an, i, &record) == 0 && ns_rr_type(record) == type &&
        ns_rr_rdlen(record) == length &&
        ::inet_ntop(family, ns_rr_rdata(record), text.data(), text.size()) != nullptr) {
      found.emplace_back(text.data());
    }
  }
}

}  // namespace

Result<std::vector<std::string>> resolve(const std::string& host) {
  if (is_literal(host)) {
    return std::vector{host};
  }
  // RFC 6761 §6.3: never asked of a name server.
  if (host == "localhost" || host.ends_with(".localhost")) {
    return std::vector<std::string>{"127.0.0.1", "::1"};
  }
  std::vector<std::string> found = from_hosts_file(host);
  if (found.empty()) {
    struct __res_state state{};
    if (::res_ninit(&state) == 0) {
      append_records(found, state, host, ns_t_a);
      append_records(found, state, host, ns_t_aaaa);
      ::res_nclose(&state);
    }
  }
  if (found.empty()) {
    return fail(Code::unavailable, "the name " + host + " has no address (/etc/hosts, DNS)");
  }
  return found;
}

}  // namespace talon::client
