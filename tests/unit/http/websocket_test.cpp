// WebSocket frames, and clients that do not keep to them.

#include <catch2/catch.hpp>

#include <algorithm>

#include "server/http/ws_frames.h"
#include "unit/http/lab.h"

using namespace talon;
using namespace talon::test;
namespace ws = talon::server::http;

namespace {

constexpr unsigned kText = 1;
constexpr unsigned kBinary = 2;
constexpr unsigned kClose = 8;
constexpr unsigned kPing = 9;
constexpr unsigned kPong = 10;

// The first two bytes and the length as given, then a mask of zeros and the payload as it is.
std::string raw(unsigned first, std::string_view payload, std::uint64_t announced, int length_bytes,
                bool masked = true) {
  std::string out(1, static_cast<char>(first));
  const unsigned bit = masked ? 0x80 : 0;
  if (length_bytes == 0) {
    out += static_cast<char>(bit | announced);
  } else {
    out += static_cast<char>(bit | (length_bytes == 2 ? 126u : 127u));
    for (int i = length_bytes - 1; i >= 0; --i) {
      out += static_cast<char>(announced >> (8 * i) & 0xff);
    }
  }
  return out.append(masked ? 4 : 0, '\0').append(payload);
}

std::string frame(unsigned op, std::string_view payload, bool fin = true) {
  const int bytes = payload.size() < 126 ? 0 : payload.size() < 65536 ? 2 : 8;
  return raw((fin ? 0x80u : 0u) | op, payload, payload.size(), bytes);
}

// What the reader makes of the bytes, given in pieces: "T:text" "B[FL]:bytes" "8:code" …, or the
// code of the fault.
std::string read(std::string_view bytes, std::size_t piece) {
  ws::WsReader reader;
  std::string in;
  std::string log;
  std::string binary;
  while (!bytes.empty() || !in.empty()) {
    in.append(bytes.substr(0, piece));
    const bool more = !bytes.empty();
    bytes.remove_prefix(std::min(piece, bytes.size()));
    std::optional<ws::WsEvent> event;
    do {
      auto used = reader.feed(in, event);
      if (!used) {
        return log + "!" + std::to_string(used.error().code);
      }
      in.erase(0, *used);
      if (!event) {
        continue;
      }
      if (event->op == ws::WsOp::binary) {
        binary += event->bytes;
        if (event->last) {
          log += "B:" + std::exchange(binary, {}) + ";";
        }
      } else {
        log += std::to_string(static_cast<unsigned>(event->op)) + ":" + event->bytes +
               (event->op == ws::WsOp::close ? "/" + std::to_string(event->code) : "") + ";";
      }
    } while (event);
    if (!more) {
      break;
    }
  }
  return log;
}

// The same however the bytes are cut.
std::string read(std::string_view bytes) {
  const std::string whole = read(bytes, bytes.size());
  for (const std::size_t piece : {1ul, 2ul, 3ul, 7ul}) {
    CHECK(read(bytes, piece) == whole);
  }
  return whole;
}

std::string handshake(std::string_view path, std::string_view more = "") {
  return "GET " + std::string(path) +
         " HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n"
         "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" +
         std::string(more) + "\r\n";
}

void open(Client& client, std::string_view path = "/ws") {
  client.send(handshake(path));
  const Reply reply = client.reply(true);
  REQUIRE(reply.status == 101);
  CHECK(reply.has("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
}

struct Got {
  unsigned op = 0;  // 0: the server has closed, or nothing came in time
  std::string payload;
  unsigned code() const {
    return payload.size() < 2 ? 0
                              : static_cast<unsigned char>(payload[0]) * 256u +
                                    static_cast<unsigned char>(payload[1]);
  }
};

Got next(Client& client) {
  const auto need = [&](std::size_t n) {
    while (client.buffer.size() < n) {
      if (!client.more()) {
        return false;
      }
    }
    return true;
  };
  if (!need(2)) {
    return {};
  }
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(client.buffer[i]); };
  Got got;
  got.op = at(0) & 0x0f;
  std::size_t size = at(1);  // never masked
  std::size_t head = 2;
  if (size == 126) {
    if (!need(4)) {
      return {};
    }
    size = at(2) * 256u + at(3);
    head = 4;
  }
  if (size == 127) {
    if (!need(10)) {
      return {};
    }
    size = 0;
    for (std::size_t i = 2; i < 10; ++i) {
      size = size * 256 + at(i);
    }
    head = 10;
  }
  if (size > 70'000 || !need(head + size)) {
    return {};
  }
  got.payload = client.buffer.substr(head, size);
  client.buffer.erase(0, head + size);
  return got;
}

}  // namespace

TEST_CASE("frames are read whole, in fragments and in any pieces") {
  CHECK(read(frame(kText, "hi") + frame(kBinary, "xyz")) == "1:hi;B:xyz;");
  CHECK(read(frame(kText, "a", false) + frame(kPing, "p") + frame(0, "b", false) + frame(0, "c")) ==
        "9:p;1:abc;");
  CHECK(read(frame(kBinary, "a", false) + frame(0, "") + frame(kPong, "")) == "B:a;10:;");
  CHECK(read(frame(kBinary, "") + frame(kText, "")) == "B:;1:;");
  CHECK(read(frame(kText, "\xc3", false) + frame(0, "\xa9")) == "1:\xc3\xa9;");
  CHECK(read(frame(kClose, "") + frame(kClose,
                                       "\x03\xe8"
                                       "bye")) == "8:/1005;8:bye/1000;");
  const std::string long_text(16 * 1024, 'x');
  CHECK((read(frame(kText, long_text)) == "1:" + long_text + ";"));
  // The mask is applied over borders.
  std::string masked = raw(0x82, "", 5, 0);
  masked.replace(2, 4, "\x01\x02\x03\x04");
  for (std::size_t i = 0; i < 5; ++i) {
    masked += static_cast<char>("abcde"[i] ^ "\x01\x02\x03\x04"[i % 4]);
  }
  CHECK(read(masked) == "B:abcde;");
}

TEST_CASE("what is no frame of a client is a fault with its code") {
  CHECK(read(raw(0x81, "hi", 2, 0, false)) == "!1002");  // unmasked
  CHECK(read(raw(0xc1, "hi", 2, 0)) == "!1002");         // reserved bit
  CHECK(read(frame(3, "")) == "!1002");                  // opcodes
  CHECK(read(frame(11, "")) == "!1002");
  CHECK(read(frame(0, "x")) == "!1002");  // a continuation of nothing
  CHECK(read(frame(kText, "a", false) + frame(kText, "b")) == "!1002");
  CHECK(read(frame(kPing, "p", false)) == "!1002");  // a control frame in pieces
  CHECK(read(frame(kPing, std::string(126, 'p'))) == "!1002");
  CHECK(read(raw(0x82, std::string(5, 'x'), 5, 2)) == "!1002");  // not the shortest form
  CHECK(read(raw(0x82, std::string(5, 'x'), 5, 8)) == "!1002");
  CHECK(read(raw(0x82, "", ~0ull, 8)) == "!1002");       // the top bit
  CHECK(read(raw(0x82, "", 1ull << 62, 8)) == "!1009");  // huge: said before its bytes
  CHECK(read(raw(0x81, "", 16 * 1024 + 1, 2)) == "!1009");
  CHECK(read(frame(kText, std::string(16 * 1024, 'x'), false) + frame(0, "y")) == "!1009");
  CHECK(read(frame(kText, "\xff")) == "!1007");
  CHECK(read(frame(kText, "\xc3")) == "!1007");   // cut at the end
  CHECK(read(frame(kClose, "\x03")) == "!1002");  // half a code
  for (const unsigned code : {0u, 999u, 1004u, 1005u, 1006u, 1015u, 2999u, 5000u}) {
    const std::string payload{static_cast<char>(code >> 8), static_cast<char>(code & 0xff)};
    INFO(code);
    CHECK(read(frame(kClose, payload)) == "!1002");
  }
  CHECK(read(frame(kClose, "\x03\xe8\xff")) == "!1007");
}

TEST_CASE("a request that is no upgrade, or a foreign one, is refused as HTTP") {
  Lab lab;
  Client client(lab);
  const Reply plain = client.ask("GET /ws HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK(plain.status == 426);
  CHECK(plain.has("Sec-WebSocket-Version: 13\r\n"));
  std::string old = handshake("/ws");
  old.replace(old.find("Version: 13"), 11, "Version: 8 ");
  CHECK(client.ask(old).status == 426);
  std::string key = handshake("/ws");
  key.replace(key.find("ZQ=="), 4, "ZQ= ");
  CHECK(client.ask(key).status == 400);
  CHECK(client.ask(handshake("/ws", "Origin: https://y\r\n")).status == 403);
  CHECK(client.ask(handshake("/ws", "Origin: null\r\n")).status == 403);
  CHECK(client.ask(handshake("/ws", "Origin: http://x\r\nOrigin: http://x\r\n")).status == 403);
  CHECK(client.ask(handshake("/ws", "Origin: http://x.y\r\n")).status == 403);
  client.send(handshake("/ws", "Origin: http://x\r\nSec-WebSocket-Protocol: b, talon.v1\r\n"));
  const Reply good = client.reply(true);
  CHECK(good.status == 101);
  CHECK(good.has("Sec-WebSocket-Protocol: talon.v1\r\n"));
  CHECK_FALSE(good.has("Content-Length"));
}

TEST_CASE("messages that come with the head of the request are not lost") {
  Lab lab;
  Client client(lab);
  client.send(handshake("/ws") + frame(kText, "early") + frame(kPing, "are you there"));
  REQUIRE(client.reply(true).status == 101);
  const Got text = next(client);
  CHECK(text.op == kText);
  CHECK(text.payload == "FLearly");
  const Got pong = next(client);
  CHECK(pong.op == kPong);
  CHECK(pong.payload == "are you there");
  client.send(frame(kClose, "\x03\xe8"));
  const Got closed = next(client);
  CHECK(closed.op == kClose);
  CHECK(closed.code() == 1000);
  client.rest();
  CHECK(client.closed);
}

TEST_CASE("a handler's close arrives with its code and reason") {
  Lab lab;
  Client client(lab);
  open(client, "/ws-bye");
  client.send(frame(kText, "x"));
  const Got closed = next(client);
  CHECK(closed.op == kClose);
  CHECK(closed.code() == 4000);
  CHECK(closed.payload.substr(2) == "enough");
  client.rest();
  CHECK(client.closed);
}

TEST_CASE("a client that breaks the protocol is told why and closed") {
  struct Attack {
    std::string bytes;
    unsigned code;
  };
  const std::vector<Attack> attacks{{raw(0x81, "hi", 2, 0, false), 1002},
                                    {raw(0x82, "", 1ull << 62, 8), 1009},
                                    {frame(kPing, "p", false), 1002},
                                    {frame(kText, "\xc3\x28"), 1007},
                                    {std::string("GET / HTTP/1.1\r\n\r\n"), 1002}};
  Lab lab;
  for (const Attack& attack : attacks) {
    Client client(lab);
    open(client);
    client.send(attack.bytes);
    const Got closed = next(client);
    CHECK(closed.op == kClose);
    CHECK(closed.code() == attack.code);
    client.rest();
    CHECK(client.closed);
  }
  CHECK(eventually([&] { return lab.counters().open == 0; }));
  CHECK(lab.service.sockets_ended == static_cast<int>(attacks.size()));
}

TEST_CASE("a big message passes in pieces; one that is too big is refused") {
  Lab lab;
  Client client(lab);
  open(client);
  const std::string big(std::size_t{1} << 20, 'b');
  std::thread sender([&] { client.send(frame(kBinary, big)); });
  std::string back;
  bool first = false;
  bool last = false;
  while (!last) {
    const Got got = next(client);
    if (got.op == kPing) {
      client.send(frame(kPong, got.payload));  // may stand between the sender's bytes: not yet
      continue;
    }
    REQUIRE(got.op == kBinary);
    first = first || got.payload[0] == 'F';
    last = got.payload[1] == 'L';
    back += got.payload.substr(2);
    if (back.size() >= 32 * 1024) {
      break;  // the window: the server waits for our pong
    }
  }
  sender.join();
  CHECK(first);
  CHECK((back == std::string(back.size(), 'b')));
  Client other(lab);
  open(other);
  other.send(raw(0x82, "", (1u << 20) + 1, 8));
  CHECK(next(other).code() == 1009);
}

TEST_CASE("a client that answers no ping is sent a window and then given up") {
  http::ServerConfig config;
  config.pong_timeout = 300ms;
  config.ping_every = 100ms;
  Lab lab(config);
  Client flooded(lab);
  open(flooded, "/ws-flood");
  flooded.rest();  // reads all, answers nothing
  CHECK(eventually([&] { return lab.service.stream_ended.load(); }));
  CHECK(lab.service.streamed <= 64 * 1024 + 8192);
  // A silent one is asked too, and lives as long as it answers.
  Client silent(lab);
  open(silent);
  for (int i = 0; i < 5; ++i) {
    const Got ping = next(silent);
    REQUIRE(ping.op == kPing);
    silent.send(frame(kPong, ping.payload));
  }
  CHECK(lab.counters().open == 1);
  silent.rest();
  CHECK(silent.buffer.empty());
  CHECK(eventually([&] { return lab.counters().open == 0; }));
}

TEST_CASE("a client that answers gets everything, one that lies about it no more than its window") {
  Lab lab;
  Client client(lab);
  open(client, "/ws-flood");
  std::size_t seen = 0;
  while (seen < 1'000'000) {
    const Got got = next(client);
    REQUIRE(got.op != 0);
    if (got.op == kPing) {
      client.send(frame(kPong, got.payload));
    }
    seen += got.payload.size();
  }
  client.close();
  CHECK(eventually([&] { return lab.service.stream_ended.load(); }));
  lab.service.stream_ended = false;
  lab.service.streamed = 0;
  Client liar(lab);
  open(liar, "/ws-flood");
  liar.send(frame(kPong, std::string(8, '\xff')) + frame(kPong, "x") + frame(kPong, ""));
  CHECK(eventually([&] { return lab.service.streamed >= 64 * 1024; }));
  liar.send(frame(kPong, std::string(8, '\xff')));
  liar.send(frame(kPing, "still there?"));
  while (next(liar).op != kPong) {
  }
  CHECK(lab.service.streamed <= 64 * 1024 + 8192);
}

TEST_CASE("input that a handler does not take is not buffered without end") {
  Lab lab;
  Client client(lab);
  open(client, "/ws-deaf");
  ::fcntl(client.fd(), F_SETFL, O_NONBLOCK);
  const std::string piece = frame(kBinary, std::string(60'000, 'x'));
  std::size_t sent = 0;
  for (int quiet = 0; quiet < 50;) {
    const ssize_t n = ::send(client.fd(), piece.data(), piece.size(), MSG_NOSIGNAL);
    sent += n > 0 ? static_cast<std::size_t>(n) : 0;
    quiet = n > 0 ? 0 : quiet + 1;
    if (n <= 0) {
      std::this_thread::sleep_for(2ms);
    }
  }
  CHECK(sent < 32u << 20);  // the kernel's buffers and ours; not all we would send
  CHECK(lab.service.received == 0);
  client.close();
  lab.release();
  CHECK(eventually([&] { return lab.counters().open == 0; }));
}

TEST_CASE("a client that leaves while nobody receives is found by its pings") {
  http::ServerConfig config;
  config.pong_timeout = 300ms;
  config.ping_every = 100ms;
  Lab lab(config);
  Client client(lab);
  open(client, "/ws-stalled");
  for (int i = 0; i < 5; ++i) {
    CHECK(next(client).op == 9);  // unanswered: its answer might stand behind what is not received
  }
  CHECK(lab.service.sockets_ended == 0);
  client.close();
  CHECK(eventually([&] { return lab.service.sockets_ended == 1; }));
  CHECK(eventually([&] { return lab.counters().open == 0; }));
}

TEST_CASE("a client that leaves, by half or whole, ends its handler") {
  Lab lab;
  Client half(lab);
  open(half);
  half.end_sending();
  CHECK(eventually([&] { return lab.service.sockets_ended == 1; }));
  Client whole(lab);
  open(whole);
  whole.send(std::string(frame(kBinary, "abc"), 0, 4));  // in the middle of a frame
  whole.close();
  CHECK(eventually([&] { return lab.service.sockets_ended == 2; }));
  CHECK(eventually([&] { return lab.counters().open == 0; }));
}

TEST_CASE("a stop ends open sockets") {
  Lab lab;
  Client client(lab);
  open(client);
  Client flooded(lab);
  open(flooded, "/ws-flood");
  lab.stop(50ms);
  client.rest();
  CHECK(lab.counters().open == 0);
}
