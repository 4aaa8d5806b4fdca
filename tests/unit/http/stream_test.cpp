// Streams: chunks, trailers, cuts; and the server's stop.

#include <catch2/catch.hpp>

#include "unit/http/lab.h"

using namespace talon;
using namespace talon::test;

TEST_CASE("a stream is chunked and ends with its trailers; the connection goes on") {
  Lab lab;
  Client client(lab);
  const Reply r = client.ask(get("/stream"));
  CHECK(r.status == 200);
  CHECK(r.has("Transfer-Encoding: chunked\r\n"));
  CHECK(r.has("Trailer: Talon-Cursor\r\n"));
  CHECK(r.body == "ssssssssss");
  CHECK(r.trailers == "Talon-Cursor: 7.0\n");
  CHECK(client.ask(get("/echo")).status == 200);
}

TEST_CASE("a stream to HTTP/1.0 ends with the connection and has no chunks") {
  Lab lab;
  Client client(lab);
  client.send("GET /stream HTTP/1.0\r\n\r\n");
  const std::string all = client.rest();
  CHECK(client.closed);
  CHECK(all.ends_with("\r\n\r\nssssssssss"));
  CHECK(all.find("chunked") == std::string::npos);
  CHECK(all.find("Trailer") == std::string::npos);
}

TEST_CASE("a stream of declared length is sent plainly") {
  Lab lab;
  Client client(lab);
  const Reply r = client.ask(get("/stream?length"));
  CHECK(r.has("Content-Length: 10\r\n"));
  CHECK_FALSE(r.has("chunked"));
  CHECK(r.body == "ssssssssss");
  CHECK(client.ask(get("/echo")).status == 200);
}

TEST_CASE("a handler that returns in the middle of a stream cuts it visibly") {
  Lab lab;
  Client client(lab);
  const Reply r = client.ask(get("/stream?cut"));
  CHECK(r.status == 0);  // no last chunk
  CHECK(r.body == "ssssssssss");
  CHECK_FALSE(client.more());
}

TEST_CASE("stop closes idle connections at once and lets a running request finish") {
  Lab lab;
  Client idle(lab);
  REQUIRE(idle.ask(get("/echo")).status == 200);
  Client silent(lab);
  Client running(lab);
  running.send(get("/wait"));
  REQUIRE(eventually([&] { return lab.service.waiting.load(); }));
  REQUIRE(eventually([&] { return lab.counters().open == 3; }));
  auto stopped = lab.stop_later(30s);
  CHECK(idle.rest().empty());
  CHECK(idle.closed);
  CHECK(silent.rest().empty());
  CHECK_FALSE(Client(lab).connected);
  lab.release();
  const Reply r = running.reply();
  CHECK(r.body == "released");
  CHECK(r.has("Connection: close\r\n"));
  CHECK(running.rest().empty());
  running.close();
  stopped.get();
  CHECK(lab.counters().open == 0);
}

TEST_CASE("stop ends a request that outlasts its grace") {
  Lab lab;
  Client running(lab);
  running.send(get("/wait"));
  Client streaming(lab);
  streaming.send(get("/stream?endless"));
  REQUIRE(eventually([&] { return lab.service.waiting.load() && lab.service.streamed > 0; }));
  const auto start = std::chrono::steady_clock::now();
  lab.stop(50ms);
  CHECK(std::chrono::steady_clock::now() - start < 5s);
  CHECK(lab.service.saw_gone);
  CHECK(lab.service.stream_ended);
  CHECK(lab.counters().open == 0);
  CHECK(running.rest().find("200") == std::string::npos);
}
