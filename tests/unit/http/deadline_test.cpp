// Slow, silent and departed clients, and too many of them.

#include <sys/resource.h>

#include <catch2/catch.hpp>

#include <chrono>

#include "unit/http/lab.h"

using namespace talon;
using namespace talon::test;

namespace {

http::ServerConfig quick() {
  http::ServerConfig config;
  config.header_timeout = 200ms;
  config.idle_timeout = 300ms;
  config.body_timeout = 200ms;
  config.write_timeout = 200ms;
  return config;
}

}  // namespace

TEST_CASE("a head that does not end in time gets 408, however it drips") {
  Lab lab(quick());
  Client client(lab);
  client.send("GET /echo HTTP/1.1\r\nHost: t\r\n");
  std::string seen;
  for (int i = 0; i < 400; ++i) {  // far less than the deadline between two bytes
    if (!client.send("X")) {
      break;
    }
    pollfd p{client.fd(), POLLIN, 0};
    if (::poll(&p, 1, 5) > 0) {
      break;
    }
  }
  const Reply r = client.reply();
  CHECK(r.status == 408);
  CHECK(r.body.find("\"code\":\"timeout\"") != std::string::npos);
  CHECK(lab.service.handled == 0);
}

TEST_CASE("a connection that says nothing is closed without a word") {
  Lab lab(quick());
  Client silent(lab);
  CHECK(silent.rest().empty());
  CHECK(silent.closed);
  Client idle(lab);
  CHECK(idle.ask(get("/echo")).status == 200);
  CHECK(idle.rest().empty());
  CHECK(idle.closed);
}

TEST_CASE("a body that does not come gets 408; one that comes slowly but steadily is read") {
  Lab lab(quick());
  Client stuck(lab);
  stuck.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nab");
  CHECK(stuck.reply().status == 408);
  Client steady(lab);
  steady.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 400000\r\n\r\n");
  for (int i = 0; i < 20; ++i) {
    REQUIRE(steady.send(std::string(20'000, 'x')));
    std::this_thread::sleep_for(20ms);  // 400 ms in all, twice the deadline
  }
  CHECK(steady.reply().status == 200);
}

TEST_CASE("a client that reads nothing is dropped after the write deadline") {
  Lab lab(quick());
  Client client(lab);
  client.send(get("/stream?endless"));
  CHECK(eventually([&] { return lab.service.stream_ended.load(); }));
  CHECK(eventually([&] { return lab.counters().open == 0; }));
}

TEST_CASE("a slow reader holds the handler back and does not grow the server") {
  Lab lab;
  Client client(lab);
  client.send(get("/stream?endless"));
  std::size_t last = 0;
  // Until the handler stands still.
  REQUIRE(eventually([&] {
    const std::size_t now = lab.service.streamed;
    const bool still = now > 0 && now == last;
    last = now;
    std::this_thread::sleep_for(50ms);
    return still;
  }));
  CHECK(last < std::size_t{32} << 20);  // what the kernel's two buffers take
  CHECK(Client(lab).ask(get("/echo")).status == 200);
  const std::size_t before = lab.service.streamed;
  while (client.buffer.size() < (std::size_t{24} << 20)) {
    REQUIRE(client.more());
  }
  CHECK(eventually([&] { return lab.service.streamed > before; }));
  client.close();
  CHECK(eventually([&] { return lab.service.stream_ended.load(); }));
}

TEST_CASE("a client that leaves is noticed while its handler waits") {
  Lab lab;
  Client client(lab);
  client.send(get("/wait"));
  REQUIRE(eventually([&] { return lab.service.waiting.load(); }));
  client.close();
  CHECK(eventually([&] { return lab.service.saw_gone.load(); }));
  CHECK(eventually([&] { return lab.counters().open == 0; }));
}

TEST_CASE("a client that closed only its sending side still gets the answer") {
  Lab lab;
  Client client(lab);
  client.send(get("/echo?half"));
  client.end_sending();
  CHECK(client.reply().body == "GET /echo?half ");
  CHECK(client.rest().empty());
  Client waits(lab);
  waits.send(get("/wait"));
  waits.end_sending();
  CHECK(waits.reply().body == "gave up");  // its handler asked gone()
}

TEST_CASE("2000 half-open connections do not keep others out") {
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const rlimit before = limit;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 10000);
  if (limit.rlim_cur < 5000 || ::setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    WARN("SKIP: needs RLIMIT_NOFILE of 5000");
    return;
  }
  {
    Lab lab;
    std::vector<Client> clients;
    for (int i = 0; i < 2000; ++i) {
      clients.emplace_back(lab);
      REQUIRE(clients.back().connected);
      clients.back().send("GET /echo HTTP/1.1\r\nHost:");
    }
    REQUIRE(eventually([&] { return lab.counters().open == 2000; }));
    const auto start = std::chrono::steady_clock::now();
    Client client(lab);
    for (int i = 0; i < 100; ++i) {
      REQUIRE(client.ask(get("/echo")).status == 200);
    }
    CHECK(std::chrono::steady_clock::now() - start < 2s);
    CHECK(clients[1999].ask(" t\r\n\r\n").status == 200);
    clients.clear();
    CHECK(eventually([&] { return lab.counters().open == 1; }));
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST_CASE("a full server closes the oldest half-open connection, never a working one") {
  http::ServerConfig config;
  config.max_connections = 3;
  Lab lab(std::move(config));
  Client served(lab);
  REQUIRE(served.ask(get("/echo")).status == 200);
  Client working(lab);
  working.send(get("/wait"));
  REQUIRE(eventually([&] { return lab.service.waiting.load(); }));
  Client half(lab);
  half.send("GET /ec");
  REQUIRE(eventually([&] { return lab.counters().open == 3; }));
  Client fourth(lab);
  CHECK(fourth.ask(get("/echo")).status == 200);
  CHECK(half.rest().empty());
  CHECK(served.ask(get("/echo")).status == 200);
  lab.release();
  CHECK(working.reply().body == "released");
  CHECK(lab.counters().refused == 1);
}

TEST_CASE("a server whose connections all work answers 503 to one more") {
  http::ServerConfig config;
  config.max_connections = 2;
  Lab lab(std::move(config));
  Client one(lab);
  one.send(get("/wait"));
  Client two(lab);
  two.send(get("/wait"));
  REQUIRE(eventually([&] { return lab.service.handled == 2; }));
  Client three(lab);
  const Reply r = three.reply();
  CHECK(r.status == 503);
  CHECK(r.body.find("\"code\":\"unavailable\"") != std::string::npos);
  CHECK(r.has("Retry-After: 1\r\n"));
  lab.release();
  CHECK(one.reply().status == 200);
  CHECK(two.reply().status == 200);
}

TEST_CASE("without descriptors the server waits, and goes on when there are some") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  Lab lab;
  Client client(lab);
  REQUIRE(client.ask(get("/echo")).status == 200);
  Client queued(lab);  // its descriptor exists; the server's does not yet
  REQUIRE(queued.ask(get("/echo")).status == 200);
  std::vector<UniqueFd> all;
  UniqueFd late(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  rlimit low = before;
  low.rlim_cur = 200;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
  for (;;) {
    UniqueFd fd(::dup(0));
    if (!fd) {
      break;
    }
    all.push_back(std::move(fd));
  }
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(lab.port());
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(::connect(late.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0);
  const std::string request = get("/echo", "Connection: close\r\n");
  CHECK(::send(late.get(), request.data(), request.size(), MSG_NOSIGNAL) > 0);
  char byte = 0;
  CHECK(::recv(late.get(), &byte, 1, 0) == 1);  // idle ones made room for it
  CHECK(byte == 'H');
  all.clear();
  ::setrlimit(RLIMIT_NOFILE, &before);
  CHECK(Client(lab).ask(get("/echo")).status == 200);
}
