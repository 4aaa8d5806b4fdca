// What a well-behaved client sees.

#include <catch2/catch.hpp>

#include "unit/http/lab.h"

using namespace talon;
using namespace talon::test;

TEST_CASE("a request is answered, and the connection takes the next one") {
  Lab lab;
  REQUIRE(lab.opened);
  Client client(lab);
  for (int i = 0; i < 3; ++i) {
    const Reply r = client.ask(get("/echo?a=1"));
    CHECK(r.status == 200);
    CHECK(r.body == "GET /echo?a=1 ");
    CHECK(r.has("HTTP/1.1 200 OK\r\n"));
    CHECK(r.has("Content-Type: text/plain\r\n"));
    CHECK(r.has("X-Content-Type-Options: nosniff\r\n"));
    CHECK(r.has("X-Request-Id: rq"));
    CHECK(r.has(" GMT\r\n"));
    CHECK_FALSE(r.has("Server:"));
    CHECK_FALSE(r.has("Connection:"));
  }
  CHECK(lab.counters().accepted == 1);
  CHECK(lab.counters().requests == 3);
}

TEST_CASE("a request may arrive in any two pieces, and byte by byte") {
  Lab lab;
  const std::string request =
      "POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3;x=\"y\"\r\nabc\r\n0002\r\nde\r\n0\r\nT: v\r\n\r\n";
  Client client(lab);
  for (std::size_t cut = 1; cut < request.size(); ++cut) {
    client.send(request.substr(0, cut));
    const Reply r = client.ask(request.substr(cut));
    REQUIRE(r.status == 200);
    REQUIRE(r.body == "POST /echo abcde");
  }
  for (const char c : request) {
    client.send({&c, 1});
  }
  CHECK(client.reply().body == "POST /echo abcde");
}

TEST_CASE("pipelined requests are answered in order, bodies and all") {
  Lab lab;
  Client client(lab);
  std::string all;
  for (int i = 0; i < 200; ++i) {
    all +=
        "POST /echo?" + std::to_string(i) + " HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\nabc";
  }
  client.send(all);
  for (int i = 0; i < 200; ++i) {
    REQUIRE(client.reply().body == "POST /echo?" + std::to_string(i) + " abc");
  }
}

TEST_CASE("bytes that come while a handler runs belong to the next request") {
  Lab lab;
  Client client(lab);
  client.send(get("/wait"));
  REQUIRE(eventually([&] { return lab.service.waiting.load(); }));
  client.send(get("/echo?next"));
  lab.release();
  CHECK(client.reply().body == "released");
  CHECK(client.reply().body == "GET /echo?next ");
}

TEST_CASE("HEAD gets the head of GET and no body") {
  Lab lab;
  Client client(lab);
  client.send("HEAD /big HTTP/1.1\r\nHost: t\r\n\r\n");
  const Reply r = client.reply(true);
  CHECK(r.status == 200);
  CHECK(r.has("Content-Length: 4194304\r\n"));
  client.send("HEAD /stream HTTP/1.1\r\nHost: t\r\n\r\n");
  CHECK(client.reply(true).has("Transfer-Encoding: chunked\r\n"));
  CHECK(client.buffer.empty());
  CHECK(client.ask(get("/echo")).body == "GET /echo ");
}

TEST_CASE("204 has neither body nor length") {
  Lab lab;
  Client client(lab);
  const Reply r = client.ask(get("/empty"));
  CHECK(r.status == 204);
  CHECK_FALSE(r.has("Content-Length"));
  CHECK_FALSE(r.has("Content-Type:"));
  CHECK(client.ask(get("/echo")).status == 200);
}

TEST_CASE("a large body goes out whole") {
  Lab lab;
  Client client(lab);
  const Reply r = client.ask(get("/big"));
  CHECK(r.body.size() == (std::size_t{4} << 20));
  CHECK(r.body.find_first_not_of('b') == std::string::npos);
}

TEST_CASE("Connection: close and HTTP/1.0 end the connection after the answer") {
  Lab lab;
  Client one(lab);
  const Reply r = one.ask(get("/echo", "Connection: Foo, Close\r\n"));
  CHECK(r.status == 200);
  CHECK(r.has("Connection: close\r\n"));
  CHECK(one.rest().empty());
  CHECK(one.closed);
  Client old(lab);
  old.send("GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  CHECK(old.reply().body == "GET /echo ");
  CHECK(old.rest().empty());
  CHECK(old.closed);
}

TEST_CASE("an unknown method and an upgrade reach the service") {
  Lab lab;
  Client client(lab);
  CHECK(client.ask("FROB /echo HTTP/1.1\r\nHost: t\r\n\r\n").body == "FROB /echo ");
  CHECK(client.ask(get("/echo", "Connection: Upgrade\r\nUpgrade: websocket\r\n")).status == 200);
  CHECK(client.ask("OPTIONS * HTTP/1.1\r\nHost: t\r\n\r\n").status == 200);
}

TEST_CASE("Expect: 100-continue is answered before the body is read") {
  Lab lab;
  Client client(lab);
  client.send(
      "POST /ten HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n");
  CHECK(client.reply().status == 100);
  CHECK(client.ask("0123456789").body == "POST /ten 0123456789");
  client.send(
      "POST /ten HTTP/1.1\r\nHost: t\r\nContent-Length: 11\r\nExpect: 100-continue\r\n\r\n");
  const Reply r = client.reply();
  CHECK(r.status == 413);
  CHECK(r.has("Connection: close\r\n"));
  Client other(lab);
  CHECK(other.ask(get("/echo", "Expect: tea\r\n")).status == 417);
}

TEST_CASE("a handler that throws, fails or forgets to answer gives 500 and nothing of its reason") {
  Lab lab;
  Client client(lab);
  for (const char* path : {"/throw", "/fail", "/nothing", "/inject", "/limit-throws"}) {
    const Reply r = client.ask(get(path));
    if (std::string_view(path) == "/limit-throws") {
      CHECK(r.status == 200);  // a limit of 0 is enough for no body
      continue;
    }
    INFO(path);
    CHECK(r.status == 500);
    CHECK(r.has("Content-Type: application/problem+json\r\n"));
    CHECK(r.body.find("\"code\":\"internal\"") != std::string::npos);
    CHECK(r.body.find("secret") == std::string::npos);
    const auto id = r.head.substr(r.head.find("X-Request-Id: ") + 14, 22);
    CHECK(r.body.find("\"request_id\":\"" + id + "\"") != std::string::npos);
  }
  CHECK(client.ask(get("/echo")).status == 200);
}

TEST_CASE("IPv6 and several listeners") {
  http::ServerConfig config;
  config.listen = {*http::parse_listen("127.0.0.1:0"), *http::parse_listen("[::1]:0")};
  Lab lab(std::move(config));
  if (!lab.opened) {
    WARN("SKIP: no IPv6 loopback: " << lab.error.message);
    return;
  }
  const auto urls = lab.server->addresses();
  REQUIRE(urls.size() == 2);
  CHECK(urls[0].starts_with("http://127.0.0.1:"));
  CHECK(urls[1].starts_with("http://[::1]:"));
  CHECK(Client(lab).ask(get("/peer")).body.starts_with("127.0.0.1:"));
}

TEST_CASE("an address in use is a conflict that names it") {
  Lab first;
  http::ServerConfig config;
  config.listen = {*http::parse_listen("127.0.0.1:" + std::to_string(first.port()))};
  Lab second(std::move(config));
  CHECK_FALSE(second.opened);
  CHECK(second.error.code == Code::conflict);
  CHECK(second.error.message.find(std::to_string(first.port())) != std::string::npos);
}
