// talon-init where it really lives: unmapped id, user namespace, filter. What differs from
// init alone: setfsuid to the exec's user and back, the sandbox's own devpts and null device.

#include <catch2/catch.hpp>

#include <fcntl.h>

#include "isolate/log_reader.h"
#include "kernel/sandbox_support.h"

using namespace talon;
using namespace talon::testing;

namespace {

std::string tty_output(Lab& lab, Box& box, const std::string& text, const std::string& user) {
  isolate::ExecSpec exec;
  exec.id = "pxtty" + user;
  exec.argv = {"/bin/sh", "-c", text};
  exec.user = user;
  exec.tty = true;
  exec.cols = 101;
  exec.rows = 33;
  isolate::add_default_env(exec.env);
  if (!box->exec(exec)) {
    return "not sent";
  }
  for (;;) {
    auto event = box->wait_event(std::chrono::seconds(20));
    if (!event) {
      return "no answer: " + event.error().message;
    }
    if (const auto* failed = std::get_if<isolate::event::ExecFailed>(&*event)) {
      return "failed " + std::to_string(failed->error) + " at " +
             std::to_string(static_cast<int>(failed->stage));
    }
    if (std::get_if<isolate::event::Exited>(&*event) != nullptr) {
      break;
    }
  }
  auto logs = open_at(AT_FDCWD, (lab.root_of(box->identity().id) / "logs").string(),
                      O_RDONLY | O_DIRECTORY);
  std::string out;
  auto reader = isolate::LogReader::open(logs->get(), exec.id);
  std::vector<isolate::LogEntry> entries;
  while (reader && reader->read(entries).value_or(false)) {
  }
  for (const auto& entry : entries) {
    out += entry.bytes;
  }
  return out;
}

}  // namespace

TEST_CASE("EX-19: stdout and stderr can be opened by name, as root and as another user") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  Box box = lab.create();
  for (const std::string user : {"", "user", "1234:2345"}) {
    const Ran ran = lab.sh(box, "echo one >/dev/stdout; echo two >/dev/stderr", user);
    CHECK(ran.out == "one\n");
    CHECK(ran.err == "two\n");
    CHECK(ran.code == 0);
  }
  lab.destroy(box);
}

TEST_CASE("a terminal in the sandbox belongs to the exec's user") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  Box box = lab.create();
  for (const std::string user : {"", "1000"}) {
    const std::string out = tty_output(
        lab, box, "tty; stty size; echo x >/dev/tty; echo y >/dev/stdout; echo z >/dev/stderr",
        user);
    CHECK(out.starts_with("/dev/pts/"));
    CHECK(out.ends_with("\r\n33 101\r\nx\r\ny\r\nz\r\n"));
  }
  lab.destroy(box);
}

TEST_CASE("init keeps its capabilities over execs of many users") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  Box box = lab.create();
  for (int i = 0; i < 5; ++i) {
    CHECK(lab.sh(box, "id -u", "user").out == "1000\n");
    CHECK(lab.sh(box, "id -u").out == "0\n");
    CHECK(lab.sh(box, "id -u; id -g", "65535:65534").out == "65535\n65534\n");
  }
  lab.destroy(box);
}

TEST_CASE("a passwd that a workload has spoilt neither blocks nor misleads init") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  Box box = lab.create();
  const char* spoilt[] = {
      "rm -f /etc/passwd; mkfifo /etc/passwd",
      "rm -f /etc/passwd; ln -s /proc/self/environ /etc/passwd",
      "rm -f /etc/passwd; ln -s /proc/1/fd/20 /etc/passwd",
      "rm -f /etc/passwd; ln -s /dev/zero /etc/passwd",
      "rm -f /etc/passwd; ln -s passwd /etc/passwd",
      "rm -f /etc/passwd; mkdir /etc/passwd",
      "rmdir /etc/passwd; head -c 3000000 /dev/zero >/etc/passwd",
      "head -c 3000000 /dev/zero | tr '\\0' : >/etc/passwd",
  };
  // Not `id`: it reads passwd itself, and would block where init must not.
  const std::string who = "while read k v; do [ $k = Uid: ] && echo $v; done </proc/self/status";
  for (const char* text : spoilt) {
    INFO(text);
    CHECK(lab.sh(box, text).code == 0);
    CHECK(lab.sh(box, "echo $HOME").out == "/tmp\n");
    CHECK(lab.sh(box, who, "1000").out == "1000 1000 1000 1000\n");
    CHECK(lab.sh(box, who, "user").code == -1);
  }
  CHECK(lab.sh(box, "echo 'x:x:70000:0::/:/bin/sh' >/etc/passwd").code == 0);
  CHECK(lab.sh(box, who, "x").code == -1);
  CHECK(lab.sh(box, "echo 'x:x:7:8::/etc:/bin/sh' >/etc/passwd").code == 0);
  CHECK(lab.sh(box, who + "; echo $HOME", "x").out == "7 7 7 7\n/etc\n");
  lab.destroy(box);
}
