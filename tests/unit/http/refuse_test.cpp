// What is refused, each with its status, and that the connection ends with it. Requests that two
// parsers could read differently (RFC 9112 §11.2) never reach the service.

#include <catch2/catch.hpp>

#include "server/http/parser.h"
#include "unit/http/lab.h"

using namespace talon;
using namespace talon::test;
using namespace std::string_literals;

namespace {

struct Case {
  const char* name;
  std::string bytes;
  int status;
};

std::string post(std::string_view fields, std::string_view body = "") {
  return "POST /echo HTTP/1.1\r\nHost: t\r\n" + std::string(fields) + "\r\n" + std::string(body);
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"two Content-Lengths", post("Content-Length: 3\r\nContent-Length: 4\r\n", "abcd"), 400},
      {"two equal Content-Lengths", post("Content-Length: 3\r\nContent-Length: 3\r\n", "abc"), 400},
      {"a list of Content-Lengths", post("Content-Length: 3, 3\r\n", "abc"), 400},
      {"Content-Length with a sign", post("Content-Length: +3\r\n", "abc"), 400},
      {"negative Content-Length", post("Content-Length: -1\r\n", "abc"), 400},
      {"hexadecimal Content-Length", post("Content-Length: 0x3\r\n", "abc"), 400},
      {"empty Content-Length", post("Content-Length: \r\n", "abc"), 400},
      {"Content-Length beyond 64 bits", post("Content-Length: 18446744073709551619\r\n"), 400},
      {"length and coding",
       post("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), 400},
      {"coding and length",
       post("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", "0\r\n\r\n"), 400},
      {"coding gzip", post("Transfer-Encoding: gzip\r\n"), 501},
      {"coding gzip, chunked", post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"), 501},
      {"coding chunked twice",
       post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), 400},
      {"coding that looks chunked", post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"), 501},
      {"coding with vertical tab",
       post("Transfer-Encoding: \x0b"
            "chunked\r\n",
            "0\r\n\r\n"),
       400},
      {"coding in HTTP/1.0", "POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
       400},
      {"space before the colon", post("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"), 400},
      {"obs-fold", post("X-A: b\r\n c\r\n"), 400},
      {"obs-fold with a tab", post("X-A: b\r\n\tTransfer-Encoding: chunked\r\n"), 400},
      {"a first header line that is folded", "GET / HTTP/1.1\r\n Host: t\r\n\r\n", 400},
      {"bare LF after the request line", "GET /echo HTTP/1.1\nHost: t\n\n", 400},
      {"bare LF in the headers", "GET /echo HTTP/1.1\r\nHost: t\nX: y\r\n\r\n", 400},
      {"bare CR in a value", post("X-A: b\rTransfer-Encoding: chunked\r\n"), 400},
      {"NUL in a value", post("X-A: b\0c\r\n"s), 400},
      {"NUL in a name", post("X-\0A: b\r\n"s), 400},
      {"control character in a value",
       post("X-A: b\x01"
            "c\r\n"),
       400},
      {"DEL in a value", post("X-A: b\x7f\r\n"), 400},
      {"a header without a colon", post("X-A\r\n"), 400},
      {"an empty header name", post(": v\r\n"), 400},
      {"NUL in the target", "GET /a\0b HTTP/1.1\r\nHost: t\r\n\r\n"s, 400},
      {"control character in the target", "GET /a\x02 HTTP/1.1\r\nHost: t\r\n\r\n", 400},
      {"a space in the target", "GET /a b HTTP/1.1\r\nHost: t\r\n\r\n", 400},
      {"a tab for a space", "GET\t/echo\tHTTP/1.1\r\nHost: t\r\n\r\n", 400},
      {"bytes above 127 in the target", "GET /\xc3\xa9 HTTP/1.1\r\nHost: t\r\n\r\n", 400},
      {"a fragment", "GET /a#b HTTP/1.1\r\nHost: t\r\n\r\n", 400},
      {"absolute form", "GET http://t/ HTTP/1.1\r\nHost: t\r\n\r\n", 400},
      {"CONNECT", "CONNECT t:80 HTTP/1.1\r\nHost: t:80\r\n\r\n", 400},
      {"star without OPTIONS", "GET * HTTP/1.1\r\nHost: t\r\n\r\n", 400},
      {"no target", "GET HTTP/1.1\r\nHost: t\r\n\r\n", 400},
      {"HTTP/0.9", "GET /\r\n", 400},
      {"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
      {"HTTP/1.2", "GET / HTTP/1.2\r\nHost: t\r\n\r\n", 505},
      {"lower-case http", "GET / http/1.1\r\nHost: t\r\n\r\n", 400},
      {"version with more digits", "GET / HTTP/1.10\r\nHost: t\r\n\r\n", 400},
      {"a TLS hello", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"s, 400},
      {"method with a colon", "G:T / HTTP/1.1\r\nHost: t\r\n\r\n", 400},
      {"a method without end", std::string(33, 'A'), 400},
      {"empty lines without end", "\r\n\r\n\r\n", 400},
      {"no Host", "GET / HTTP/1.1\r\n\r\n", 400},
      {"two Hosts", "GET / HTTP/1.1\r\nHost: t\r\nHost: t\r\n\r\n", 400},
      {"Host with a path", "GET / HTTP/1.1\r\nHost: t/x\r\n\r\n", 400},
      {"Host with userinfo", "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", 400},
      {"too many fields",
       [] {
         std::string out = "GET / HTTP/1.1\r\nHost: t\r\n";
         for (std::size_t i = 0; i < http::kMaxFields; ++i) {
           out += "A: b\r\n";
         }
         return out + "\r\n";
       }(),
       431},
      {"no chunk size", post("Transfer-Encoding: chunked\r\n", "\r\n"), 400},
      {"chunk size with a sign", post("Transfer-Encoding: chunked\r\n", "+3\r\nabc\r\n0\r\n\r\n"),
       400},
      {"chunk size 0x", post("Transfer-Encoding: chunked\r\n", "0x3\r\nabc\r\n0\r\n\r\n"), 400},
      {"chunk size with a space", post("Transfer-Encoding: chunked\r\n", "3 \r\nabc\r\n"), 400},
      {"chunk size that overflows",
       post("Transfer-Encoding: chunked\r\n", "10000000000000003\r\nabc\r\n"), 400},
      {"chunk longer than its size", post("Transfer-Encoding: chunked\r\n", "3\r\nabcd\r\n"), 400},
      {"bare LF after a chunk size", post("Transfer-Encoding: chunked\r\n", "3\nabc\r\n"), 400},
      {"bare LF in an extension", post("Transfer-Encoding: chunked\r\n", "3;a\nabc\r\n"), 400},
      {"extensions without end",
       post("Transfer-Encoding: chunked\r\n", "3;" + std::string(17000, 'a')), 400},
      {"trailers without end",
       post("Transfer-Encoding: chunked\r\n", "0\r\nT: " + std::string(17000, 'a')), 431},
      {"a trailer that is no field", post("Transfer-Encoding: chunked\r\n", "0\r\nab\r\n"), 400},
  };
  return all;
}

}  // namespace

TEST_CASE("malformed and ambiguous requests get a problem and a closed connection") {
  Lab lab;
  REQUIRE(lab.opened);
  for (const Case& c : cases()) {
    INFO(c.name);
    Client client(lab);
    client.send(c.bytes);
    const Reply r = client.reply();
    REQUIRE(r.status == c.status);
    CHECK(r.has("Content-Type: application/problem+json\r\n"));
    CHECK(r.has("Connection: close\r\n"));
    CHECK(r.has("X-Request-Id: rq"));
    CHECK(r.body.find("\"status\":" + std::to_string(c.status)) != std::string::npos);
    client.end_sending();
    CHECK(client.rest().empty());
    CHECK(client.closed);
  }
  CHECK(lab.service.handled == 0);
}

TEST_CASE("what is refused is refused however it is split") {
  for (const Case& c : cases()) {
    INFO(c.name);
    int status = 0;
    http::HeadParser parser;
    std::optional<http::BodyReader> body;
    std::string in;
    std::string content;
    for (const char byte : c.bytes) {
      in.push_back(byte);
      if (!body) {
        auto size = parser.scan(in);
        if (!size) {
          status = size.error().status;
          break;
        }
        if (!*size) {
          continue;
        }
        auto head = parser.take(in.substr(0, **size));
        in.erase(0, **size);
        if (!head) {
          status = head.error().status;
          break;
        }
        body.emplace(*head, 1000);
      }
      auto used = body->feed(in, content);
      if (!used) {
        status = used.error().status;
        break;
      }
      in.erase(0, *used);
    }
    CHECK(status == c.status);
  }
}

TEST_CASE("the head may have 16384 bytes and not one more") {
  Lab lab;
  const std::string start = "GET /echo HTTP/1.1\r\nHost: t\r\nX: ";
  const std::size_t fixed = start.size() + 4;
  Client client(lab);
  client.send("\r\n");  // an empty line before the request does not count
  CHECK(client.ask(start + std::string(16384 - fixed, 'x') + "\r\n\r\n").status == 200);
  CHECK(client.ask(start + std::string(16385 - fixed, 'x') + "\r\n\r\n").status == 431);
  Client unfinished(lab);
  CHECK(unfinished.ask(start + std::string(16385 - start.size(), 'x')).status == 431);
}

TEST_CASE("the target may have 8192 bytes and not one more") {
  Lab lab;
  Client client(lab);
  const Reply r = client.ask(get("/echo?" + std::string(8192 - 6, 'q')));
  CHECK(r.status == 200);
  CHECK(r.body.size() == 8192 + 5);
  CHECK(client.ask(get("/echo?" + std::string(8193 - 6, 'q'))).status == 414);
  Client unfinished(lab);
  CHECK(unfinished.ask("GET /" + std::string(8300, 'q')).status == 414);
}

TEST_CASE("the body may have as many bytes as the service says and not one more") {
  Lab lab;
  Client client(lab);
  const std::string chunked = "POST /ten HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string fixed = "POST /ten HTTP/1.1\r\nHost: t\r\nContent-Length: ";
  CHECK(client.ask(chunked + "7\r\n0123456\r\n3\r\n789\r\n0\r\n\r\n").body ==
        "POST /ten 0123456789");
  CHECK(client.ask(fixed + "10\r\n\r\n0123456789").body == "POST /ten 0123456789");
  const Reply r = client.ask(fixed + "11\r\n\r\n01234567890");
  CHECK(r.status == 413);
  CHECK(r.body.find("\"code\":\"too_large\"") != std::string::npos);
  CHECK(r.body.find("\"limit\":10,") != std::string::npos);
  Client other(lab);
  CHECK(other.ask(chunked + "7\r\n0123456\r\n4\r\n7890\r\n0\r\n\r\n").status == 413);
  Client huge(lab);
  CHECK(huge.ask(chunked + "ffffffffffff\r\n").status == 413);
  CHECK(lab.service.handled == 2);
}

TEST_CASE("a client that sends 10 MB where 1 MiB is allowed still reads its 413") {
  Lab lab;
  Client client(lab);
  client.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 10000000\r\n\r\n");
  REQUIRE(client.send(std::string(10'000'000, 'x')));
  CHECK(client.reply().status == 413);
  client.end_sending();
  CHECK(client.rest().empty());
  CHECK(client.closed);
}

TEST_CASE("request bodies together have a budget") {
  http::ServerConfig config;
  config.max_buffered = 1000;
  Lab lab(std::move(config));
  Client client(lab);
  const std::string start = "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: ";
  CHECK(client.ask(start + "1000\r\n\r\n" + std::string(1000, 'x')).status == 200);
  Client more(lab);
  const Reply r = more.ask(start + "1001\r\n\r\n" + std::string(1001, 'x'));
  CHECK(r.status == 503);
  CHECK(r.has("Retry-After: 1\r\n"));
  CHECK(Client(lab).ask(start + "1000\r\n\r\n" + std::string(1000, 'x')).status == 200);
}

TEST_CASE("a request that ends early is answered when its client still listens") {
  Lab lab;
  Client head(lab);
  head.send("GET /echo HTT");
  head.end_sending();
  CHECK(head.reply().status == 400);
  Client body(lab);
  body.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nabc");
  body.end_sending();
  CHECK(body.reply().status == 400);
  CHECK(lab.service.handled == 0);
}
