#include <catch2/catch.hpp>

#include "server/http/http.h"
#include "server/http/response.h"

using namespace talon;
using namespace talon::server;
using namespace std::string_literals;

TEST_CASE("listen addresses are literal") {
  const auto four = http::parse_listen("127.0.0.1:7300");
  REQUIRE(four);
  CHECK(four->host == "127.0.0.1");
  CHECK(four->port == 7300);
  const auto six = http::parse_listen("[::1]:0");
  REQUIRE(six);
  CHECK(six->host == "::1");
  CHECK(six->port == 0);
  const auto local = http::parse_listen("unix:/run/talon/x.sock");
  REQUIRE(local);
  CHECK(local->unix_socket);
  CHECK(local->host == "/run/talon/x.sock");
  for (const auto& bad : {"localhost:80"s, "127.0.0.1"s, "127.0.0.1:"s, "127.0.0.1:65536"s,
                          "127.0.0.1:-1"s, "127.0.0.1:8 "s, ":80"s, "::1:80"s, "[::1]"s, "[::1]80"s,
                          "[127.0.0.1]:80"s, "1.2.3:80"s, "unix:"s, "unix:rel"s,
                          "unix:/"s + std::string(107, 'x'), "127.0.0.1\0:80"s, ""s, "]:80"s}) {
    INFO(bad);
    CHECK_FALSE(http::parse_listen(bad));
  }
  CHECK(http::parse_listen("unix:/" + std::string(106, 'x')));
}

TEST_CASE("loopback is 127/8, ::1, its mapped form, and unix") {
  const auto loop = [](const char* text) { return http::is_loopback(*http::parse_listen(text)); };
  CHECK(loop("127.0.0.1:1"));
  CHECK(loop("127.9.9.9:1"));
  CHECK(loop("[::1]:1"));
  CHECK(loop("[::ffff:127.0.0.1]:1"));
  CHECK(loop("unix:/x"));
  CHECK_FALSE(loop("0.0.0.0:1"));
  CHECK_FALSE(loop("[::]:1"));
  CHECK_FALSE(loop("10.0.0.1:1"));
  CHECK_FALSE(loop("[::ffff:10.0.0.1]:1"));
  CHECK_FALSE(loop("128.0.0.1:1"));
}

TEST_CASE("percent-decoding") {
  CHECK(http::percent_decode("a%2Fb%c3%A9", false) == "a/b\xc3\xa9");
  CHECK(http::percent_decode("a+b", false) == "a+b");
  CHECK(http::percent_decode("a+b", true) == "a b");
  CHECK(http::percent_decode("%2B", true) == "+");
  for (const char* bad : {"%", "%4", "a%4", "%g1", "%1g", "%00", "a%00b"}) {
    INFO(bad);
    CHECK_FALSE(http::percent_decode(bad, false));
  }
  CHECK_FALSE(http::percent_decode("a\0b"s, false));
}

TEST_CASE("queries keep order and repetition") {
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  CHECK(http::parse_query("") == Pairs{});
  CHECK(http::parse_query("b=1&a=2&b=3") == Pairs{{"b", "1"}, {"a", "2"}, {"b", "3"}});
  CHECK(http::parse_query("label=k%3Dv&x=a=b&flag&e=&&") ==
        Pairs{{"label", "k=v"}, {"x", "a=b"}, {"flag", ""}, {"e", ""}});
  CHECK_FALSE(http::parse_query("a=%"));
  CHECK_FALSE(http::parse_query("=1"));
  CHECK_FALSE(http::parse_query("a%00=1"));
}

TEST_CASE("problems are JSON whatever their detail says") {
  http::Fault fault{400, "invalid_request", "a \"quote\"\n", 7};
  const auto r = http::problem(fault, "rq1");
  CHECK(r.status == 400);
  CHECK(r.content_type == "application/problem+json");
  CHECK(r.body ==
        "{\"type\":\"urn:talon:problem:invalid_request\",\"title\":\"Bad Request\",\"status\":400,"
        "\"code\":\"invalid_request\",\"detail\":\"a \\\"quote\\\"\\n\",\"limit\":7,"
        "\"request_id\":\"rq1\"}\n");
}

TEST_CASE("fields that frame a message are never the handler's") {
  http::Response r;
  r.headers = {{"Content-Length", "1"}, {"transfer-encoding", "x"}, {"Server", "y"}, {"ETag", "z"}};
  http::HeadPlan plan;
  plan.length = 5;
  plan.request_id = "rq1";
  std::string out;
  http::append_head(out, r, plan);
  CHECK(out.find("Content-Length: 5\r\n") != std::string::npos);
  CHECK(out.find("Content-Length: 1\r\n") == std::string::npos);
  CHECK(out.find("transfer-encoding") == std::string::npos);
  CHECK(out.find("Server") == std::string::npos);
  CHECK(out.find("ETag: z\r\n") != std::string::npos);
}
