// LC-08: three processes and a terminal print a thousand numbered lines a second, two readers
// follow each; talond is killed twenty times at random moments, its spawner with it or alone.
// Every reader's joined stream has every line once and in order, and what ended in a gap has its
// exit code. The rounds are given by TALON_TEST_ROUNDS.
#include <catch2/catch.hpp>

#include <signal.h>

#include <atomic>
#include <random>
#include <sstream>
#include <thread>

#include "support/daemon.h"
#include "support/machine.h"

using namespace talon::test;
namespace json = boost::json;

namespace {

// Follows one log as a client would: by events, and after each cut from the last cursor it saw.
class Reader {
 public:
  Reader(Client client, std::string target)
      : client_(std::move(client)), target_(std::move(target)), thread_([this] { follow(); }) {}
  ~Reader() { join(); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  void give_up() { given_up_ = true; }
  void join() {
    if (thread_.joinable()) {
      thread_.join();
    }
  }
  // After join().
  const std::string& text() const { return text_; }
  bool ended() const { return ended_; }
  int cuts() const { return cuts_; }

 private:
  void follow() {
    while (!ended_ && !given_up_) {
      Reply head;
      auto stream =
          client_.stream(target_ + "&from=" + cursor_, head, {{"Accept", "application/x-ndjson"}});
      std::string pending;
      while (head.status == 200 && !ended_ && !given_up_) {
        const auto piece = stream.read_piece(Seconds(60));
        if (!piece) {
          break;
        }
        pending += *piece;
        for (std::size_t end = pending.find('\n'); end != std::string::npos;
             end = pending.find('\n')) {
          take(pending.substr(0, end));
          pending.erase(0, end + 1);
        }
      }
      cuts_ += head.status == 200 && !ended_ ? 1 : 0;
      if (!ended_) {
        nap(Seconds(0.02));
      }
    }
  }

  void take(const std::string& line) {
    boost::system::error_code ec;
    const json::value event = json::parse(line, ec);
    if (ec || !event.is_object()) {
      return;
    }
    const auto& object = event.get_object();
    if (const auto* text = object.if_contains("text"); text != nullptr && text->is_string()) {
      text_ += text->get_string();
    }
    if (const auto* cursor = object.if_contains("cursor");
        cursor != nullptr && cursor->is_string()) {
      cursor_ = cursor->get_string();
    }
    const auto* name = object.if_contains("event");
    ended_ = ended_ || (name != nullptr && *name == "end");
  }

  Client client_;
  std::string target_;
  std::string text_;
  std::string cursor_ = "0";
  int cuts_ = 0;
  std::atomic<bool> ended_ = false;
  std::atomic<bool> given_up_ = false;
  std::thread thread_;
};

// The spawner among the daemon's children.
pid_t spawner_of(pid_t daemon) {
  const auto pid = std::to_string(daemon);
  std::istringstream children(machine::read_file("/proc/" + pid + "/task/" + pid + "/children"));
  for (pid_t child = 0; children >> child;) {
    if (machine::read_file("/proc/" + std::to_string(child) + "/cmdline")
            .starts_with("talon-spawner")) {
      return child;
    }
  }
  return -1;
}

}  // namespace

TEST_CASE("LC-08: twenty kills lose no line, no exit code and no reader") {
  Daemon daemon;
  const auto client = daemon.local();
  const auto id = make_sandbox(client);
  const auto path = "/v1/sandboxes/" + id;
  // Ten lines each 10 ms, until told to stop; the last line says how many there were.
  const auto printer = [](int code) {
    return "import os,sys,time\n"
           "n=0; t=time.monotonic()\n"
           "while not os.path.exists('/workspace/stop'):\n"
           "  sys.stdout.write(''.join('%d\\n' % (n+i+1) for i in range(10))); "
           "sys.stdout.flush()\n"
           "  n+=10; t+=0.01; time.sleep(max(0, t-time.monotonic()))\n"
           "print('end', n); sys.exit(" +
           std::to_string(code) + ")\n";
  };
  std::vector<std::string> printers;
  for (const int code : {11, 12, 13}) {
    printers.push_back(
        spawn_in(client, id, json::object{{"argv", {"python3", "-c", printer(code)}}}));
  }
  const auto pty = client.post(
      path + "/pty",
      json::object{{"argv", {"python3", "-c", printer(14)}}, {"cols", 80}, {"rows", 24}});
  INFO(pty.body);
  REQUIRE(pty.status == 201);
  printers.push_back(pty.text("id"));
  std::vector<std::unique_ptr<Reader>> readers;
  for (const auto& px : printers) {
    for (int i = 0; i < 2; ++i) {
      readers.push_back(
          std::make_unique<Reader>(client, path + "/processes/" + px + "/logs?follow=1"));
    }
  }

  std::mt19937 random(std::random_device{}());
  const auto upto = [&](double most) {
    return std::uniform_real_distribution<double>(0, most)(random);
  };
  std::vector<std::pair<std::string, int>> ends;  // of processes that end in a gap
  const int kills = rounds(20);
  for (int i = 0; i < kills; ++i) {
    const auto ending = client.post(
        path + "/processes", json::object{{"command", "sleep 0." + std::to_string(i % 4) +
                                                          "; exit " + std::to_string(100 + i)}});
    if (ending.status == 201) {
      ends.emplace_back(ending.text("id"), 100 + i);
    }
    nap(Seconds(upto(0.3)));
    const pid_t spawner = i % 3 == 2 ? -1 : spawner_of(daemon.pid());
    if (spawner > 0) {
      kill(spawner, SIGKILL);
      nap(Seconds(i % 3 == 0 ? 0 : upto(0.05)));
    }
    daemon.kill_hard();
    nap(Seconds(upto(0.3)));
    daemon.start();
  }
  // The spawner alone: the daemon starts another one when it needs it.
  const pid_t spawner = spawner_of(daemon.pid());
  CHECK(spawner > 0);
  kill(spawner, SIGKILL);
  const auto other = make_sandbox(client);
  CHECK(exit_code(run_in(client, other, "exit 5")) == 5);
  CHECK(client.del("/v1/sandboxes/" + other).status == 204);

  run_in(client, id, "touch /workspace/stop");
  CHECK(ends.size() == static_cast<std::size_t>(kills));
  for (const auto& [px, code] : ends) {
    INFO(px);
    CHECK(wait_exec(client, id, px, Seconds(20)).at("result.exit_code") == json::value(code));
  }
  std::int64_t code = 11;
  for (const auto& px : printers) {
    CHECK(wait_exec(client, id, px, Seconds(30)).at("result.exit_code") == json::value(code++));
  }
  CHECK(eventually(Seconds(60), [&] {
    return std::ranges::all_of(readers, [](const auto& one) { return one->ended(); });
  }));
  std::size_t lines_seen = 0;
  int cuts = 0;
  for (const auto& reader : readers) {
    reader->give_up();
    reader->join();
    cuts += reader->cuts();
    std::istringstream lines(reader->text());
    std::string line;
    std::size_t expected = 1;
    while (std::getline(lines, line)) {
      if (line.ends_with('\r')) {
        line.pop_back();
      }
      ++lines_seen;
      if (line.starts_with("end ")) {
        CHECK(line == "end " + std::to_string(expected - 1));
        expected = 0;
        break;
      }
      if (line != std::to_string(expected)) {
        FAIL("line " << expected << " is \"" << line << '"');
      }
      ++expected;
    }
    CHECK(expected == 0);
  }
  WARN(kills << " kills, " << lines_seen << " lines in " << readers.size() << " readers, cut "
             << cuts << " times");
  CHECK(cuts >= kills);
}
