// N5: without a network there is lo and nothing else. Abstract names and loopback ports of the host
// and of other sandboxes are not there, and nothing about it can be changed.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "base/fd.h"
#include "base/id.h"
#include "security/attack.h"

using namespace talon;
using namespace talon::testing;

namespace {

// A service of the host's: a port of 127.0.0.1 and an abstract name.
struct Services {
  Services() : name("talon-canary-" + random_hex(6)) {
    abstract = UniqueFd{socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::memcpy(at.sun_path + 1, name.data(), name.size());
    REQUIRE(bind(abstract.get(), reinterpret_cast<sockaddr*>(&at),
                 static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())) == 0);
    tcp = UniqueFd{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(bind(tcp.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
    socklen_t size = sizeof to;
    REQUIRE(getsockname(tcp.get(), reinterpret_cast<sockaddr*>(&to), &size) == 0);
    REQUIRE(listen(abstract.get(), 8) == 0);
    REQUIRE(listen(tcp.get(), 8) == 0);
    port = std::to_string(ntohs(to.sin_port));
  }
  std::string name;
  std::string port;
  UniqueFd abstract;
  UniqueFd tcp;
};

}  // namespace

TEST_CASE("N5: lo is all there is, and nothing of the host answers on it") {
  TALON_NEED_SANDBOXES();
  const Services host;
  from_every_side([&](Attacker& a) {
    const std::string links = a.run({"/bin/ip", "-o", "link"}).out;
    CHECK(std::ranges::count(links, '\n') == 1);
    CHECK(links.find("lo: <LOOPBACK,UP,LOWER_UP>") != std::string::npos);
    CHECK(a.run({"/bin/ip", "route"}).out == "");
    CHECK(a.attempt({"connect", "127.0.0.1", host.port}) == "ECONNREFUSED");
    CHECK(a.attempt({"connect", "::1", host.port}) == "ECONNREFUSED");
    CHECK(a.attempt({"connect", "10.0.0.1", "80"}) == "ENETUNREACH");
    CHECK(a.attempt({"connect", "169.254.169.254", "80"}) == "ENETUNREACH");
    CHECK(a.attempt({"connect-abstract", host.name}) == "ECONNREFUSED");
    CHECK(a.attempt({"packet"}) == "EAFNOSUPPORT");
    CHECK(a.attempt({"raw-icmp"}) == "EPERM");
    CHECK(a.attempt({"route-change"}) == "EPERM");
    CHECK(a.run({"/bin/cat", "/proc/net/unix"}).out.find(host.name) == std::string::npos);
  });
  CHECK(attempt_outside({"connect", "127.0.0.1", host.port}) == "OK");  // the controls
  CHECK(attempt_outside({"connect-abstract", host.name}) == "OK");
}

TEST_CASE("N5: nothing of another sandbox answers either") {
  TALON_NEED_SANDBOXES();
  in_every_column([](Field& field) {
    Box one = field.create();
    Box two = field.create();
    isolate::ExecSpec server;
    server.id = "pxserver";
    server.argv = {"/bin/probe", "serve", "8080", "talon-neighbour"};
    REQUIRE(one->exec(server).has_value());
    Attacker near{field.lab, one, field.column.user};
    Attacker far{field.lab, two, field.column.user};
    std::string got;
    for (int i = 0; i < 400 && got != "OK"; ++i) {  // until it listens
      got = near.attempt({"connect", "127.0.0.1", "8080"});
    }
    CHECK(got == "OK");
    CHECK(near.attempt({"connect-abstract", "talon-neighbour"}) == "OK");
    CHECK(far.attempt({"connect", "127.0.0.1", "8080"}) == "ECONNREFUSED");
    CHECK(far.attempt({"connect-abstract", "talon-neighbour"}) == "ECONNREFUSED");
    field.lab.destroy(one);
    field.lab.destroy(two);
  });
}
