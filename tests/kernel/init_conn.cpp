// Connections: who may talk to init, what garbage does, and what happens when talond goes away.

#include <catch2/catch.hpp>

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "kernel/init_support.h"

using namespace talon;
using namespace talon::test;

#define NEED_BOX(...)                       \
  if (auto why = why_not(); !why.empty()) { \
    WARN("SKIP: " << why);                  \
    return;                                 \
  }                                         \
  InitBox box{__VA_ARGS__};                 \
  REQUIRE(box.up())

namespace {

bool is_closed(int fd) {
  pollfd p{fd, POLLIN, 0};
  char byte = 0;
  return ::poll(&p, 1, 10000) == 1 && ::recv(fd, &byte, 1, MSG_DONTWAIT) <= 0;
}

bool hello(int fd, const unsigned char (&nonce)[16]) {
  wire::Hello payload{};
  std::memcpy(payload.nonce, nonce, sizeof payload.nonce);
  return InitBox::send(fd, wire::Type::hello, 7, &payload, sizeof payload);
}

}  // namespace

TEST_CASE("a later connection proves the nonce and sees what lives") {
  NEED_BOX();
  box.shell("pxlive", "sleep 60");
  REQUIRE(box.wait_type(wire::Type::started, "pxlive"));
  UniqueFd second = box.connect();
  REQUIRE(second);
  REQUIRE(hello(second.get(), kNonce));
  auto ok = InitBox::receive(second.get(), std::chrono::seconds(10));
  REQUIRE(ok);
  CHECK(ok->type() == wire::Type::hello_ok);
  CHECK(ok->head.request == 7);
  CHECK(ok->as<wire::HelloOk>().live_execs == 1);
  CHECK(box.signal("pxlive", SIGKILL, wire::Scope::all) == 0);
  auto exited = InitBox::receive(second.get(), std::chrono::seconds(10));
  REQUIRE(exited);
  CHECK(exited->type() == wire::Type::exited);
  CHECK(exited->head.request == 0);
}

TEST_CASE("a wrong nonce or another first frame is refused") {
  NEED_BOX();
  unsigned char wrong[16] = {};
  UniqueFd fd = box.connect();
  REQUIRE(hello(fd.get(), wrong));
  CHECK(is_closed(fd.get()));
  fd = box.connect();
  wire::Mark mark{1, 0};
  REQUIRE(InitBox::send(fd.get(), wire::Type::mark, 1, &mark, sizeof mark));
  CHECK(is_closed(fd.get()));
  fd = box.connect();
  REQUIRE(InitBox::send(fd.get(), wire::Type::shutdown, 1, nullptr, 0));
  CHECK(is_closed(fd.get()));
  CHECK(box.run("pxstill", "true"));
}

TEST_CASE("at most eight connections") {
  NEED_BOX();
  std::vector<UniqueFd> all;
  for (int i = 0; i < 7; ++i) {
    all.push_back(box.connect());
    REQUIRE(hello(all.back().get(), kNonce));
    REQUIRE(InitBox::receive(all.back().get(), std::chrono::seconds(10)));
  }
  UniqueFd one_more = box.connect();
  REQUIRE(one_more);
  CHECK(is_closed(one_more.get()));
  all.pop_back();
  CHECK(InitBox::eventually([&] {
    UniqueFd again = box.connect();
    return hello(again.get(), kNonce) &&
           InitBox::receive(again.get(), std::chrono::seconds(1)).has_value();
  }));
}

TEST_CASE("malformed frames close their connection and harm nothing") {
  NEED_BOX();
  std::mt19937 random(20240611);
  for (int round = 0; round < 300; ++round) {
    UniqueFd fd = box.connect();
    REQUIRE(hello(fd.get(), kNonce));
    REQUIRE(InitBox::receive(fd.get(), std::chrono::seconds(10)));
    std::string bytes(random() % 200, '\0');
    for (char& c : bytes) {
      c = static_cast<char>(random());
    }
    if (round % 2 == 0 && bytes.size() >= sizeof(wire::Header)) {
      // A good header around garbage gets further.
      static const std::uint16_t types[] = {3, 10, 15, 17, 18, 19};
      wire::Header head{wire::kVersion, types[random() % 6],
                        static_cast<std::uint32_t>(bytes.size() - sizeof(wire::Header)), 1};
      std::memcpy(bytes.data(), &head, sizeof head);
    }
    if (bytes.empty()) {
      bytes = "x";
    }
    REQUIRE(send_message(fd.get(), std::as_bytes(std::span(bytes)), {}));
    CHECK(is_closed(fd.get()));
  }
  CHECK(box.run("pxalive", "echo alive"));
  CHECK(box.output("pxalive") == "alive\n");
}

TEST_CASE("exec requests that do not check are refused, not trusted") {
  NEED_BOX();
  auto failed = [&](const std::string& px, const wire::Exec& base, UniqueFd memfd) {
    wire::Exec request = base;
    px.copy(request.px, sizeof request.px - 1);
    InitBox::send(box.conn(), wire::Type::exec, 900, &request, sizeof request, {memfd.get()});
    auto frame = box.wait_type(wire::Type::exec_failed, px);
    return frame ? frame->as<wire::ExecFailed>().error : 0;
  };
  const std::string text("\0/bin/true\0", 11);
  auto sealed = [&](const std::string& bytes) {
    auto fd = sealed_memfd("t", std::as_bytes(std::span(bytes)));
    return fd ? std::move(*fd) : UniqueFd();
  };
  wire::Exec good{};
  good.argc = 1;
  good.argv_off = 1;
  wire::Exec bad = good;
  bad.argv_off = 5000;
  CHECK(failed("pxoff", bad, sealed(text)) == EINVAL);
  bad = good;
  bad.argc = 100;
  CHECK(failed("pxargc", bad, sealed(text)) == EINVAL);
  bad = good;
  bad.argc = 0;
  CHECK(failed("pxzero", bad, sealed(text)) == EINVAL);
  bad = good;
  bad.envc = 0xffffffff;
  CHECK(failed("pxenvc", bad, sealed(text)) == EINVAL);
  bad = good;
  bad.stdin_off = 5;
  bad.stdin_len = ~0ull;
  CHECK(failed("pxstdin", bad, sealed(text)) == EINVAL);
  bad = good;
  bad.cwd_off = 11;
  CHECK(failed("pxcwd", bad, sealed(text)) == EINVAL);
  CHECK(failed("pxtorn", good, sealed(text.substr(0, 8))) == EINVAL);
  int unsealed[2];
  REQUIRE(::pipe(unsealed) == 0);
  UniqueFd writer(unsealed[1]);
  CHECK(failed("pxpipe", good, UniqueFd(unsealed[0])) == EINVAL);
  CHECK(box.log_files() == std::vector<std::string>{"journal"});
}

TEST_CASE("without a reader events are dropped and a resync says so") {
  NEED_BOX();
  UniqueFd deaf = box.connect();
  REQUIRE(hello(deaf.get(), kNonce));
  REQUIRE(InitBox::receive(deaf.get(), std::chrono::seconds(10)));
  const int rounds = 400;
  for (int i = 0; i < rounds; ++i) {
    REQUIRE(box.run("px" + std::to_string(i), "true"));
  }
  bool resync = false;
  int events = 0;
  while (auto frame = InitBox::receive(deaf.get(), std::chrono::milliseconds(500))) {
    resync = resync || frame->type() == wire::Type::resync;
    ++events;
  }
  CHECK(resync);
  CHECK(events < rounds * 3);
  CHECK(box.run("pxend", "true"));
  auto frame = InitBox::receive(deaf.get(), std::chrono::seconds(10));
  REQUIRE(frame);
  CHECK(frame->type() == wire::Type::started);
}

TEST_CASE("shutdown writes init_end; everything inside ends with init") {
  NEED_BOX();
  box.shell("pxlong", "sleep 1000");
  REQUIRE(box.wait_type(wire::Type::started, "pxlong"));
  REQUIRE(InitBox::send(box.conn(), wire::Type::shutdown, 1, nullptr, 0));
  CHECK(InitBox::eventually([&] { return !box.init_alive(); }));
  auto journal = box.journal();
  REQUIRE_FALSE(journal.empty());
  CHECK(journal.back().type == static_cast<std::uint16_t>(wire::Record::init_end));
}

TEST_CASE("on_orphan: die ends at the last connection's end, stay goes on") {
  NEED_BOX(BoxOptions{.flags = wire::kDieWithDaemon});
  UniqueFd second = box.connect();
  REQUIRE(hello(second.get(), kNonce));
  REQUIRE(InitBox::receive(second.get(), std::chrono::seconds(10)));
  ::shutdown(box.conn(), SHUT_RDWR);
  REQUIRE(InitBox::send(second.get(), wire::Type::mark, 1, &second, 0) == true);
  CHECK(is_closed(second.get()));  // an empty mark is malformed; it was the last connection
  CHECK(InitBox::eventually([&] { return !box.init_alive(); }));

  InitBox stay;
  REQUIRE(stay.up());
  ::shutdown(stay.conn(), SHUT_RDWR);
  UniqueFd again = stay.connect();
  REQUIRE(hello(again.get(), kNonce));
  CHECK(InitBox::receive(again.get(), std::chrono::seconds(10)));
  CHECK(stay.init_alive());
}
